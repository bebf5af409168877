"""Write docs/comparison.md: eight tasks in steerformer, escnn and e3nn, with the lines of code that each takes.

The code is in docs/comparison/TASK_LIBRARY.py; what follows the line ``# check`` tests it and is neither shown nor
counted. ``--run`` runs the code of every library that is installed, and records its version and which code ran in
docs/comparison.json. How to install escnn, in an environment of its own: ``benchmarks/bench_escnn.py``; the task
"export" needs onnx, onnxscript and onnxruntime as well.
"""

import argparse
import hashlib
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from comparison_tasks import TASKS, Task
from steerformer.io.atomic import write_atomic, write_json
from steerformer.reproduce.markdown import markdown_table

LIBRARIES = ("steerformer", "escnn", "e3nn")
SNIPPETS = Path(__file__).parents[1] / "comparison"
_CHECK = "\n# check\n"


def snippet(task: str, library: str) -> Path:
    """File of the code."""
    return SNIPPETS / f"{task}_{library}.py"


def shown_code(path: Path) -> str:
    """The code before the check."""
    return path.read_text().partition(_CHECK)[0].strip()


def count_lines(code: str) -> int:
    """Lines that are neither blank nor comments only."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in code.splitlines())


def run_snippet(path: Path) -> None:
    """Run the code and its check, in a temporary folder."""
    with TemporaryDirectory() as folder, _working_in(folder):
        runpy.run_path(str(path), run_name="__main__")


def run_library(library: str) -> dict[str, Any]:
    """Run all of its code; the record of versions, date, and a digest of what ran."""
    digests = {}
    for task in TASKS:
        path = snippet(task.name, library)
        run_snippet(path)
        digests[task.name] = digest(path)
        print(f"{path.name} ran", flush=True)
    versions = {"version": version(library), "torch": version("torch")}
    return {**versions, "date": datetime.now(timezone.utc).date().isoformat(), "snippets": digests}


def digest(path: Path) -> str:
    """Short hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def write_page(folder: Path) -> Path:
    """Write the page from the code and comparison.json in the same folder; returns its path."""
    records: dict[str, Any] = json.loads((folder / "comparison.json").read_text())
    code = {task.name: {library: shown_code(snippet(task.name, library)) for library in LIBRARIES} for task in TASKS}
    counts = [[count_lines(code[task.name][library]) for library in LIBRARIES] for task in TASKS]
    rows = [[f"[{task.title}](#{_anchor(task.title)})", *row] for task, row in zip(TASKS, counts, strict=True)]
    total = ["together", *(sum(column) for column in zip(*counts, strict=True))]
    text = _PAGE.format(
        lines=markdown_table(["lines of code", *LIBRARIES], [*rows, total]),
        versions=markdown_table(
            ["library", "version", "torch", "last run"],
            [[name, *(records[name][key] for key in ("version", "torch", "date"))] for name in LIBRARIES],
        ),
        tasks="\n\n".join(_section(task, code[task.name]) for task in TASKS),
    )
    path = folder / "comparison.md"
    write_atomic(path, text)
    return path


def _section(task: Task, code: dict[str, str]) -> str:
    heads = "".join(f"<th>{library}, {count_lines(code[library])} lines</th>" for library in LIBRARIES)
    cells = "\n".join(f'<td valign="top">\n\n```python\n{code[library]}\n```\n\n</td>' for library in LIBRARIES)
    table = f"<table>\n<tr>{heads}</tr>\n<tr>\n{cells}\n</tr>\n</table>"
    return f"## {task.title}\n\n{task.description}\n\n{table}\n\n{task.remarks}"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """A working directory for files that code writes; the helpers of the checks can be imported."""
    before = os.getcwd()
    os.chdir(folder)
    sys.path.insert(0, str(SNIPPETS))
    try:
        yield
    finally:
        sys.path.remove(str(SNIPPETS))
        os.chdir(before)


def _is_installed(library: str) -> bool:
    try:
        return bool(version(library))
    except PackageNotFoundError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page and its record")
    parser.add_argument("--run", action="store_true", help="run the code of the libraries that are installed first")
    given = parser.parse_args()
    if given.run:
        record = given.out / "comparison.json"
        records = json.loads(record.read_text()) if record.exists() else {}
        write_json(record, records | {name: run_library(name) for name in LIBRARIES if _is_installed(name)})
    print(f"wrote {write_page(given.out)}")


_PAGE = """<!-- Written by `python docs/programs/comparison.py`: change the program or the code, not this page. -->
# Eight tasks in steerformer, escnn and e3nn

Each task on volumes, which all three libraries know, most with the same features: 8 scalars, 4 vectors and 2 fields of
degree 2, complex in steerformer, real in the others. Lines are those shown, without blank lines and comments, formatted
by ruff at 120 columns. All code is run, with checks of its result that are not shown (`docs/comparison/`): that of
steerformer and e3nn by the tests of the project, that of escnn by the program that writes this page, where escnn is
installed.

{lines}

{versions}

Few lines are not everything. e3nn is made for points and graphs: its layers act on the last axis of any tensor, are
exact at every angle, include reflections, and are used far beyond voxels. escnn has many more groups, and its tensors
know their type, so that it refuses to add what does not match. steerformer has one group for images and one for
volumes, and layers for voxels only; [escnn.md](escnn.md) compares its errors and speed with those of escnn.

{tasks}
"""


if __name__ == "__main__":
    main()
