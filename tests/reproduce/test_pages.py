"""The programs behind the pages of docs/."""

from pathlib import Path

import numpy as np
import pytest
import torch

from steerformer import SO2, SO3
from steerformer.reproduce import kernels_page, layers_page, profiles, profiles_page
from steerformer.viz import draw_kernels, draw_purity

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_purest_kernels_beat_the_best_sampled_ring_five_times():
    table = kernels_page.single_kernels().splitlines()[2:]
    ratios = {
        (cells[1], int(cells[2])): float(cells[6]) for cells in ([c.strip() for c in row.split("|")] for row in table)
    }
    assert all(ratios[grid, degree] >= 5 for grid in ("5x5", "5x5x5") for degree in (1, 2, 3)), ratios


@pytest.mark.parametrize("page", [kernels_page, layers_page, profiles_page])
def test_the_pages_were_written_by_the_program_as_it_is(page):
    written = (DOCS / (page.__name__.split(".")[-1].replace("_page", "") + ".md")).read_text()
    for line in page._PAGE.splitlines():
        assert "{" in line or line in written, line


def test_kernels_can_be_drawn(tmp_path):
    for group in (SO2, SO3):
        draw_kernels(group, tmp_path / "kernels.png", degrees=2)
    draw_purity(tmp_path / "purity.png", degrees=2)
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("kernels.png", "purity.png"))


def test_profiles_train_resume_and_make_a_page(tmp_path, monkeypatch):
    """On noise in place of digits, and hardly any of it: that the program runs, not what comes out."""
    generator = np.random.default_rng(0)
    images = {f"{part}_images": generator.integers(0, 255, (60, 28, 28), dtype=np.uint8) for part in ("train", "test")}
    labels = {f"{part}_labels": generator.integers(0, 10, 60) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **images, **labels)
    for name, value in {"TRAIN": 20, "TEST": 20, "EPOCHS": 1, "BATCH": 10, "CHOICES": profiles.CHOICES[1:3]}.items():
        monkeypatch.setattr(profiles, name, value)
    results, said = tmp_path / "profiles.jsonl", []
    profiles.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=said.append)
    profiles.run_all(tmp_path / "mnist.npz", results, seeds=1, progress=said.append)
    assert len(said) == len(profiles.read_results(results)) == 2
    table = profiles_page.write_page(results, tmp_path / "profiles.md").read_text()
    assert "| fitted |" in table and "| purest |" in table


def test_every_layer_is_on_the_page_of_layers():
    import steerformer.nn as layers

    shown = {type(layer).__name__ for layer in layers_page.example_layers(SO2).values()}
    assert shown == {name for name in layers.__all__ if issubclass(getattr(layers, name), torch.nn.Module)}
