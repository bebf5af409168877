"""Tables of benchmarks: rendered from measured rows, written between markers."""

import pytest
import torch

import bench_presets
import growth
import report
import results
import run
import step
from bench_presets import BEFORE, CONTROL, NOW, SAME
from core import BASELINE

pytestmark = pytest.mark.slow
ROW = {"forward_ms": 1.0, "forward_ratio": 2.5, "training_ms": 3.0, "training_ratio": 2.9, "peak_mb": 54.2}


def test_attention_table_leaves_skipped_cells_empty():
    row = attention_row(implementations={BASELINE: ROW, "blockwise": ROW, "auto": ROW})
    header, _, line = report.attention_table([row]).splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert cells["blockwise"] == cells["auto"] == "2.5 / 2.9"
    assert cells["limit"] == "3 / 2.5" and cells["blockwise [MB]"] == "54.2"
    assert cells["dense"] == cells["naive"] == ""


def attention_row(implementations):
    limits = {"forward_ratio": 3, "training_ratio": 2.5, "peak_mb": None}
    return {"grid": "2D, 32x32", "tokens": 1024, "implementations": implementations, "limits": limits}


def test_tables_are_written_between_their_markers():
    text = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n<!-- bench-attention -->\n<!-- /bench-attention -->\n"
    replaced = report.replace_between(text, "bench", "new")
    assert replaced == text.replace("old", "new")
    assert report.replace_between(replaced, "bench-attention", r"\1").count(r"\1") == 1


def test_pages_without_markers_are_rejected(tmp_path):
    with pytest.raises(SystemExit, match=r"no <!-- bench --> ... <!-- /bench --> for the table"):
        report.replace_between("nothing here", "bench", "table")
    page = tmp_path / "benchmarks.md"
    page.write_text("<!-- bench-steps -->\n<!-- /bench-steps -->\n")
    with pytest.raises(SystemExit, match=r"no <!-- bench-losses -->"):
        run.require_markers(page)


def test_page_is_rendered_from_the_measured_rows(tmp_path):
    """docs/benchmarks.md and docs/guide.md have their markers, and rendering them again changes nothing."""
    run.require_markers(run.PAGE)
    found, page = results.read(), tmp_path / "page.md"
    page.write_text(run.PAGE.read_text())
    run.write_tables(page, found)
    assert page.read_text() == run.PAGE.read_text()
    assert (run.PAGE.parent / run.FIGURE).exists()
    page.write_text(step.GUIDE.read_text())
    step.write_guide(page, found["full_size"])
    assert page.read_text() == step.GUIDE.read_text()


def test_slopes_are_exponents_on_large_grids(tmp_path):
    rows = [
        {
            "dim": dim,
            "tokens": n,
            "auto": {"peak_mb": n**1.5},
            BASELINE: {"peak_mb": n},
            "naive": {"peak_mb": n**2.0} if n < 2000 else {"extrapolated_mb": n**2.0},
        }
        for dim in (2, 3)
        for n in (10, 1000, 2000, 4000)
    ]
    assert growth.slopes(rows) == {"2D": 1.5, "3D": 1.5}
    assert "1.5 in 2D" in report.growth_note(growth.slopes(rows), "plot.png")
    growth.draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_table_of_steps_has_medians_and_ratios():
    rounds = {BEFORE: [900.0, 1000.0, 5000.0], SAME: [400.0, 500.0, 2500.0], NOW: [300.0, 250.0, 1250.0]}
    row = {
        "preset": "p",
        "rounds_ms": rounds | {CONTROL: [50.0, 50.0, 50.0]},
        "peak_mb": {BEFORE: 300.0, SAME: 200.4, NOW: 100.0, CONTROL: 10.0},
        "faster_limit": 3,
    }
    header, _, line = report.steps_table([row]).splitlines()
    assert line == "| `p` | 1 | 0.5 | 2.00 | 0.3 | 4.00 | 3 | 0.05 | 6.0 | 300 / 200 / 100 / 10 |"
    assert header.count("|") == line.count("|")


def test_table_of_losses_has_the_largest_differences():
    labels = bench_presets.LOSS_OVERRIDES
    compared = dict(zip(labels, ({"difference": d} for d in (2.3e-14, 1e-6, 0.0)), strict=True))
    lines = report.losses_table([{"preset": "p", "comparisons": compared}]).splitlines()
    assert lines[-1] == "| `p` | 2e-14 | 1e-06 | 0 |"


def test_table_of_full_size_steps_has_limits():
    row = {"preset": "p", "size": [8, 8, 8], "batch": 5, "seconds": 71.4, "peak": 3.21e9}
    lines = report.full_size_table([row | {"seconds_limit": 120, "gigabyte_limit": None}]).splitlines()
    assert lines[-1] == "| `p` | 8 x 8 x 8 | 5 | 71 | 120 | 3.21 |  |"


def test_single_rows_are_measured_without_writing(monkeypatch, capsys):
    monkeypatch.setattr(run, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(results, "save", lambda found: pytest.fail("must not write"))
    options = {"--only": "layers invariants 2D", "--seconds": "0", "--threads": str(torch.get_num_threads())}
    monkeypatch.setattr("sys.argv", ["run.py", *(word for pair in options.items() for word in pair)])
    run.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("| Invariants 2D | relu |")


def test_jobs_have_unique_names_in_known_sections():
    jobs = [(section, name) for section, name, _ in run.all_jobs(seconds=0, threads=1)]
    assert len(set(jobs)) == len(jobs)
    sections = {section for section, _ in jobs}
    assert sections >= {"full_size", "layers", "attention", "memory"} and sections <= set(results.SECTIONS)
