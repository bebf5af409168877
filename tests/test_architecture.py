"""Rules that keep the code small and general: import direction, start-up time, length of files, forbidden names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "steerformer"
FILES = sorted(PACKAGE.rglob("*.py"))
PARTS = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in FILES}
ORDER = ("groups", "fields", "kernels", "nn", "models", "data", "train", "infer", "audit", "reproduce", "cli")
GENERAL = ("fields", "kernels", "nn", "models")
DIMENSIONAL = {"SO2", "SO3", "conv2d", "conv3d"}


def name_of(file):
    return str(file.relative_to(PACKAGE))


def part_of(file):
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(file):
    """Everything the file imports, anywhere in it, with full dotted names."""
    package = ["steerformer", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_imports(file):
    """Imports of a later part and, in the library proper, of names from the package's front door."""
    rank = ORDER.index(part_of(file))
    for module in imported_modules(file):
        root, _, rest = module.partition(".")
        part = rest.split(".")[0]
        later = part in ORDER and ORDER.index(part) > rank
        front_door = part not in ORDER and part not in PARTS and rank <= ORDER.index("models")
        if root == "steerformer" and (later or front_door):
            yield module


def test_the_tests_see_the_package():
    assert {"groups", "fields", "kernels", "testing"} <= PARTS


@pytest.mark.parametrize("file", [file for file in FILES if part_of(file) in ORDER], ids=name_of)
def test_each_part_imports_only_those_before_it(file):
    assert list(wrong_imports(file)) == []


def test_a_backward_import_would_be_seen(tmp_path, monkeypatch):
    """A negative control, with every spelling of an import."""
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    file = tmp_path / "kernels" / "bad.py"
    file.parent.mkdir()
    file.write_text(
        "import steerformer\n"
        "import steerformer.nn\n"
        "from steerformer import FieldType, models\n"
        "from ..nn.ops import convolve\n"
        "from steerformer.groups import Group\n"
        "from .rings import Rings\n"
        "def late():\n"
        "    from steerformer.cli import app\n"
    )
    late = {"steerformer.nn", "steerformer.models", "steerformer.nn.ops.convolve", "steerformer.cli.app"}
    assert set(wrong_imports(file)) == late | {"steerformer", "steerformer.FieldType"}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_no_file_is_longer_than_300_lines(file):
    assert len(file.read_text().splitlines()) <= 300


def names_in(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.split(".")[-1]


@pytest.mark.parametrize(
    "file", [file for file in FILES if part_of(file) in GENERAL and name_of(file) != "nn/ops.py"], ids=name_of
)
def test_code_for_images_and_volumes_never_asks_which_it_is(file):
    assert DIMENSIONAL.isdisjoint(names_in(file))
    assert not any(asks_for_the_dimension(node) for node in ast.walk(ast.parse(file.read_text())))


def asks_for_the_dimension(node):
    """``dim == 2`` and the like."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    names = {getattr(side, "attr", getattr(side, "id", None)) for side in sides}
    return "dim" in names and any(isinstance(side, ast.Constant) for side in sides)


START = """
import time
start = time.process_time(); import torch
middle = time.process_time(); import steerformer
end = time.process_time()
import sys
print(end - middle, *[name for name in ("e3nn", "scipy", "matplotlib", "sympy") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def starts():
    """Seconds of computing beyond torch, and heavy modules loaded, in three fresh processes."""
    runs = [subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True) for _ in range(3)]
    lines = [run.stdout.split() for run in runs]
    return [float(line[0]) for line in lines], set().union(*(line[1:] for line in lines))


def test_importing_costs_at_most_700_ms_more_than_torch(starts):
    seconds, _ = starts
    assert min(seconds) < 0.7


def test_importing_loads_no_heavy_module_that_images_do_not_need(starts):
    _, loaded = starts
    assert not loaded
