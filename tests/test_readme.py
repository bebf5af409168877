"""What the README says, run."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer.main

import readme_results
from steerformer.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_readme_is_a_front_page():
    assert len(README.splitlines()) <= 120


@pytest.mark.slow
def test_example_runs_and_gives_the_shape_it_says():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, object] = {}
    exec(example, scope)
    (shape,) = re.findall(r"shape  # (\(.*?\))", example)
    assert str(tuple(eval("net(torch.randn(1, 4, 8, 8, 8)).shape", scope))) == shape


def test_make_targets_exist():
    targets = set(re.findall(r"`make (\w+)`", README))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_commands_exist():
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = re.findall(r"^steerformer .*", "\n".join(blocks), re.MULTILINE)
    commands = typer.main.get_command(app).commands
    for line in lines:
        _, name, *words = shlex.split(line.split("#")[0])
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    assert len(lines) == 4


def test_links_and_pictures_exist():
    targets = re.findall(r"\]\(([^):#]+?)\)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_results_are_those_of_the_records():
    records = json.loads((ROOT / "docs" / "results.json").read_text())
    assert readme_results.update(README, records) == README


def test_badges_are_true():
    project = (ROOT / "pyproject.toml").read_text()
    badges = {file.stem: file.read_text() for file in (ROOT / "docs" / "images" / "badges").glob("*.svg")}
    claims = {
        "python": ('requires-python = ">=3.10"', "3.10+"),
        "torch": ('"torch>=2.6"', "2.6+"),
        "license": ('license = "MIT"', "MIT"),
        "typing": ("strict = true", "strict"),
    }
    assert badges.keys() == claims.keys()
    for name, (fact, claim) in claims.items():
        assert fact in project and claim in badges[name]
