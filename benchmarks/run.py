"""Measures every layer, writes benchmarks/results.json and the table of README.md. Run it with `make bench`."""

import argparse
import json
import platform
import re
from pathlib import Path

import torch
from cases import Case, all_cases
from measure import Contestant, interleaved_times, peak_memory

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure the cases whose name contains this, and write nothing")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    for case in all_cases():
        if options.only in case.name:
            rows.append(measure(case))
            print(line(rows[-1]), flush=True)
    if not options.only:
        machine = {"torch": torch.__version__, "threads": options.threads, "processor": platform.machine()}
        RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
        write_readme(rows)


def measure(case: Case) -> dict[str, object]:
    """Forward in eval mode, forward and backward in training mode, and peak memory of the latter."""
    row: dict[str, object] = {"name": case.name, "peer": case.peer_name}
    for mode, backward in (("forward", False), ("training", True)):
        case.ours.train(backward)
        ours = Contestant("ours", lambda: case.ours(case.input), backward)
        peer = Contestant("peer", lambda: case.peer(case.peer_input), backward)
        times = interleaved_times([ours, peer], rounds=15)
        row[f"{mode}_ms"] = round(1e3 * times["ours"], 2)
        row[f"{mode}_ratio"] = round(times["ours"] / times["peer"], 2)
        row[f"{mode}_memory_ratio"] = round(peak_memory(ours) / max(peak_memory(peer), 1), 2)
    row["allowed"] = [case.limit_eval, case.limit]
    return row


def line(row: dict[str, object]) -> str:
    keys = ("name", "peer", "forward_ms", "forward_ratio", "training_ms", "training_ratio", "training_memory_ratio")
    return "| " + " | ".join(str(row[key]) for key in keys) + " |"


def write_readme(rows: list[dict[str, object]]) -> None:
    header = "| layer | beside | forward, ms | ratio | forward + backward, ms | ratio | peak memory, ratio |"
    table = "\n".join([header, "|" + " --- |" * 7, *map(line, rows)])
    readme = ROOT / "README.md"
    text = readme.read_text()
    marked = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit("README.md has no <!-- bench --> ... <!-- /bench --> to write the table into.")
    readme.write_text(marked.sub(lambda found: found[1] + table + "\n" + found[2], text))


if __name__ == "__main__":
    main()
