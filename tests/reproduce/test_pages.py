"""The programs behind the pages of docs/."""

from pathlib import Path

import numpy as np
import pytest
import torch

from steerformer import SO2, SO3, FieldType
from steerformer.reproduce import attention_page, kernels_page, layers_page, profiles, profiles_page, results_page
from steerformer.viz import draw_encodings, draw_kernels, draw_purity

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_purest_kernels_beat_the_best_sampled_ring_five_times():
    table = kernels_page.single_kernels().splitlines()[2:]
    ratios = {
        (cells[1], int(cells[2])): float(cells[6]) for cells in ([c.strip() for c in row.split("|")] for row in table)
    }
    assert all(ratios[grid, degree] >= 5 for grid in ("5x5", "5x5x5") for degree in (1, 2, 3)), ratios


@pytest.mark.parametrize("page", [kernels_page, layers_page, attention_page, profiles_page, results_page])
def test_the_pages_were_written_by_the_program_as_it_is(page):
    written = (DOCS / (page.__name__.split(".")[-1].replace("_page", "") + ".md")).read_text()
    for line in page._PAGE.splitlines():
        assert "{" in line or line in written, line


def test_pictures_can_be_drawn(tmp_path):
    for group in (SO2, SO3):
        draw_kernels(group, tmp_path / "kernels.png", degrees=2)
    draw_purity(tmp_path / "purity.png", degrees=2)
    draw_encodings(tmp_path / "encodings.png", degrees=2)
    drawn = ("kernels.png", "purity.png", "encodings.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_profiles_train_resume_and_make_a_page(tmp_path, monkeypatch):
    """On noise in place of digits, and hardly any of it: that the program runs, not what comes out."""
    generator = np.random.default_rng(0)
    images = {f"{part}_images": generator.integers(0, 255, (60, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    labels = {f"{part}_labels": generator.integers(0, 10, 60) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **images, **labels)
    for name, value in {"TRAIN": 20, "TEST": 20, "EPOCHS": 1, "BATCH": 10, "CHOICES": profiles.CHOICES[2:5:2]}.items():
        monkeypatch.setattr(profiles, name, value)
    results, said = tmp_path / "profiles.jsonl", []
    profiles.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=said.append)
    profiles.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=said.append)
    assert len(said) == len(profiles.read_results(results)) == 2
    table = profiles_page.write_page(results, tmp_path / "profiles.md").read_text()
    assert "| fitted |" in table and "| purest |" in table


def test_every_layer_is_on_the_page_of_layers_or_of_attention():
    import steerformer.nn as layers

    examples = [*layers_page.example_layers(SO2).values(), *attention_page.modules(FieldType(SO2, (2,))).values()]
    shown = {type(layer).__name__ for layer in examples}
    maps_of_fields = set(layers.__all__) - {"PositionalEncoding"}
    assert shown == {name for name in maps_of_fields if issubclass(getattr(layers, name), torch.nn.Module)}


def test_attention_errs_by_less_than_a_percent_on_its_page():
    """Of the default; the table's other columns are there to compare."""
    table = attention_page.__name__.split(".")[-1].replace("_page", ".md")
    rows = [line.split("|") for line in (DOCS / table).read_text().splitlines() if line.startswith(("| Att", "| Tra"))]
    errors = [float(cells[4]) for cells in rows if "x1" in cells[3]]
    assert len(errors) == 8
    assert max(errors) < 1e-2
