"""Rules that keep the code small and general: import direction, cycles, names, lengths, start-up time."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "steerformer"
FILES = sorted(PACKAGE.rglob("*.py"))
ORDER = (
    *(
        "version",
        "constants",
        "config",
        "groups",
        "fields",
        "kernels",
        "nn",
        "testing",
        "io",
        "models",
        "data",
        "metrics",
        "runs",
    ),
    *("exporting", "infer", "training", "audit", "plots", "viz", "api", "reproduce", "cli", "__main__"),
)
"""Rooms and root modules; each imports only those before it."""
GENERAL = ("fields", "kernels", "nn", "models")
DIMENSIONAL = {"SO2", "SO3", "conv2d", "conv3d"}
REPEATED_FILES = {"__init__.py", "config.py"}
"""File names that hold the same kind of thing in every room."""
SAME_TASK = {"load", "find", "CLASSES", "SOURCE"}
"""Names that every data set module has: one interface, not two things of one name."""


def name_of(file):
    return str(file.relative_to(PACKAGE))


def room_of(file):
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(file):
    parts = ["steerformer", *file.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(file, *, deferred=True):
    """Everything the file imports, with full dotted names; imports inside functions only if ``deferred``."""
    tree = ast.parse(file.read_text())
    package = ["steerformer", *file.relative_to(PACKAGE).parts[:-1]]
    nodes = list(ast.walk(tree))
    if not deferred:
        late = {id(inner) for node in nodes if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
        typing = {id(i) for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
                  for i in ast.walk(node)}  # fmt: skip
        nodes = [node for node in nodes if id(node) not in late | typing]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def wrong_imports(file):
    """Imports of a later room and, below the API, of names from the package itself."""
    rank = ORDER.index(room_of(file))
    for name in imported_names(file):
        root, _, rest = name.partition(".")
        room = rest.split(".")[0]
        later = room in ORDER and ORDER.index(room) > rank
        front_door = room not in ORDER and rank < ORDER.index("api")
        if root == "steerformer" and (later or front_door):
            yield name


def test_every_module_has_a_rank():
    rooms = {room_of(file) for file in FILES} - {"__init__"}
    assert rooms == set(ORDER)


def test_each_room_imports_only_those_before_it():
    found = {name_of(file): list(wrong_imports(file)) for file in FILES if room_of(file) != "__init__"}
    assert {name: names for name, names in found.items() if names} == {}


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


def import_graph():
    """Modules of each module's imports, deferred ones included; importing a package from itself does not count."""
    modules = {module_of(file): file for file in FILES if file.name != "__init__.py"}
    graph = {}
    for module, file in modules.items():
        names = list(imported_names(file))
        graph[module] = {known for known in modules if known != module
                         and any(name == known or name.startswith(f"{known}.") for name in names)}  # fmt: skip
    return graph


def test_there_are_no_import_cycles():
    TopologicalSorter(import_graph()).prepare()


def test_an_import_cycle_would_be_seen():
    with pytest.raises(CycleError):
        TopologicalSorter({**import_graph(), "steerformer.constants": {"steerformer.nn.conv"}}).prepare()


def test_drawing_is_imported_by_commands_reports_and_the_api_only():
    users = {room_of(file) for file in FILES if any(".plots" in name for name in imported_names(file))}
    assert users <= {"plots", "viz", "api", "reproduce", "cli"}
    eager = [name for name in imported_names(PACKAGE / "api.py", deferred=False) if ".plots" in name]
    assert eager == []


def test_matplotlib_is_imported_in_plots_only():
    users = {name_of(file) for file in FILES if any(name.startswith("matplotlib") for name in imported_names(file))}
    assert users and all(name.startswith("plots/") for name in users)


def test_no_file_is_longer_than_300_lines():
    assert [name_of(file) for file in FILES if len(file.read_text().splitlines()) > 300] == []


def test_file_names_do_not_repeat():
    counts = Counter(file.name for file in FILES if file.name not in REPEATED_FILES)
    commands = {file.name for file in FILES if room_of(file) == "cli"}  # named after what they call
    assert {name for name, count in counts.items() if count > 1} - commands == set()


def test_public_names_are_unique():
    """One word, one meaning: no two modules define a public function or class of the same name."""
    places = defaultdict(set)
    for file in FILES:
        if room_of(file) in ("cli", "__init__"):
            continue  # commands are named after the functions they call
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(name_of(file))
    repeated = {name: sorted(files) for name, files in places.items() if len(files) > 1 and name not in SAME_TASK}
    assert repeated == {}


def names_in(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.split(".")[-1]


def test_generic_code_does_not_branch_on_the_dimension():
    files = [file for file in FILES if room_of(file) in GENERAL and name_of(file) != "nn/ops.py"]
    assert [name_of(file) for file in files if not DIMENSIONAL.isdisjoint(names_in(file))] == []
    asking = [file for file in files if any(map(asks_for_the_dimension, ast.walk(ast.parse(file.read_text()))))]
    assert [name_of(file) for file in asking] == []


def asks_for_the_dimension(node):
    """``dim == 2`` and the like."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    names = {getattr(side, "attr", getattr(side, "id", None)) for side in sides}
    return "dim" in names and any(isinstance(side, ast.Constant) for side in sides)


def test_a_branch_on_the_dimension_would_be_seen():
    assert any(map(asks_for_the_dimension, ast.walk(ast.parse("if group.dim == 2: pass"))))


START = """
import time
start = time.process_time(); import torch
middle = time.process_time(); import steerformer
end = time.process_time()
import sys
heavy = ("e3nn", "scipy", "matplotlib", "sympy", "monai", "nibabel", "lightning_fabric", "steerformer.training",
         "onnx", "onnxscript", "onnxruntime")
print((end - middle) / (middle - start), *[name for name in heavy if name in sys.modules])
"""


@pytest.fixture(scope="module")
def starts():
    """CPU time of the import beyond torch, relative to that of torch, and heavy modules loaded, in three processes."""
    runs = [subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True) for _ in range(3)]
    lines = [run.stdout.split() for run in runs]
    return [float(line[0]) for line in lines], set().union(*(line[1:] for line in lines))


@pytest.mark.slow
def test_importing_costs_at_most_half_of_what_torch_costs(starts):
    ratios, _ = starts
    assert min(ratios) < 0.5


@pytest.mark.slow
def test_importing_loads_no_heavy_module(starts):
    _, loaded = starts
    assert not loaded
