"""The comparison of eight tasks in three libraries: its code runs, and its page shows it."""

import json
import re
from pathlib import Path

import pytest

import comparison
from comparison_tasks import TASKS

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
TORCH_ONNX = ("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.mark.parametrize("library", ["steerformer", "e3nn"])
@pytest.mark.parametrize("task", [task.name for task in TASKS if task.name != "export"])
def test_code_runs(task, library):
    comparison.run_snippet(comparison.snippet(task, library))


@pytest.mark.filterwarnings(*TORCH_ONNX)  # torch's exporter warns about torch's own use of pytrees
@pytest.mark.parametrize("library", ["steerformer", "e3nn"])
def test_exported_files_run(library):
    comparison.run_snippet(comparison.snippet("export", library))


def test_every_task_is_done_in_every_library():
    names = {f"{task.name}_{library}.py" for task in TASKS for library in comparison.LIBRARIES}
    assert {path.name for path in (DOCS / "comparison").glob("*.py")} - {"grid_rotation.py"} == names
    assert len(TASKS) == 8
    for name in names:
        _, check = (DOCS / "comparison" / name).read_text().split("\n# check\n")
        assert "assert" in check, name


def test_a_wrong_result_would_be_seen(tmp_path):
    text = comparison.snippet("concatenation", "steerformer").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        text.replace("both = sf.concat([f, g], [type_f, type_g])", "import torch\n\nboth = torch.cat([f, g], 1)")
    )
    assert wrong.read_text() != text
    with pytest.raises(AssertionError):
        comparison.run_snippet(wrong)


def test_code_of_escnn_ran_as_shown():
    """Else: run ``docs/programs/comparison.py --run`` where escnn is installed."""
    record = json.loads((DOCS / "comparison.json").read_text())["escnn"]
    assert record["version"] == "1.0.11"
    assert record["snippets"] == {
        task.name: comparison.digest(comparison.snippet(task.name, "escnn")) for task in TASKS
    }


def test_page_is_rendered_from_the_code(tmp_path):
    (tmp_path / "comparison.json").write_text((DOCS / "comparison.json").read_text())
    assert comparison.write_page(tmp_path).read_text() == (DOCS / "comparison.md").read_text()


def test_lines_are_those_of_the_code_shown():
    code = "import a  # first\n\n# comment\nb = [\n    1,\n]\n"
    assert comparison.count_lines(code) == 4
    page = (DOCS / "comparison.md").read_text()
    shown = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    counts = [int(count) for count in re.findall(r"<th>\w+, (\d+) lines", page)]
    assert counts == [comparison.count_lines(code) for code in shown] and len(counts) == 24
    assert "# check" not in page
