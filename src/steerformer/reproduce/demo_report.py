"""The report of the demonstration: one self-contained HTML file."""

import html
import platform
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import torch
from torch import Tensor, nn

from steerformer import data
from steerformer.audit import received_attention, upright
from steerformer.audit.rotations import input_type, rotate_input, rotation_about
from steerformer.io.atomic import write_atomic
from steerformer.nn import Attention
from steerformer.plots.curves import accuracy_curves, learning_curves
from steerformer.plots.equivariance import errors_by_layer
from steerformer.plots.image_grids import attention_overlay, image_grid
from steerformer.plots.style import as_image, as_svg
from steerformer.reproduce.demo import ANGLES, DIGITS_TO_ROTATE, NAMES, Measured, demo_experiment

_SHOWN_ANGLES = (0, 30, 60, 90, 135, 180, 225)
_SHOWN_DIGIT = 4


def write_report(found: Sequence[Measured], path: Path, *, quick: bool) -> Path:
    """Write text, tables and figures into one page without external files."""
    from steerformer.version import __version__

    transformer = next(row.model for row in found if any(isinstance(m, Attention) for m in row.model.modules()))
    splits = data.load(demo_experiment(next(iter(NAMES)), quick=quick).data)
    samples = found[0].samples
    attention, grid, error = _attention(transformer)
    page = Template((files("steerformer.reproduce") / "demo.html").read_text(encoding="utf-8")).substitute(
        headline=_headline(found),
        warning="<p><b>A quick run:</b> one epoch of few digits, only to show that everything works.</p>"
        if quick
        else "",
        tiles=_tiles(found),
        digits=_digits(splits.test),
        table=_table(found),
        angles=as_svg(accuracy_curves({row.name: row.accuracy for row in found}, ANGLES), name="angles"),
        curves=as_svg(learning_curves({row.name: _validation(row) for row in found}), name="curves"),
        layers=as_svg(errors_by_layer({row.name: [e.total for e in row.layers] for row in found}), name="layers"),
        attention=attention,
        grid=grid,
        attention_error=f"{error:.0e}",
        version=__version__,
        hardware=html.escape(f"{platform.machine()} with {torch.get_num_threads()} threads"),
        minutes=f"{sum(row.metrics['seconds'] for row in found) / 60:.1f}",
        rotated=f"{min(DIGITS_TO_ROTATE, samples['test']):,}",
        spread=_spread(found),
        **{part: f"{count:,}" for part, count in samples.items()},
    )
    write_atomic(path, page)
    return path


def _headline(found: Sequence[Measured]) -> str:
    read = ", ".join(f"{html.escape(row.name)} <b>{row.test_accuracy:.1%}</b>" for row in found)
    changes = ", ".join(f"{_change(row.grid_rotations)} ({html.escape(row.name)})" for row in found)
    return f"Accuracy on rotated digits: {read}. A rotation by 90 degrees changes the logits by {changes}."


def _change(share: float) -> str:
    return f"{share:.0e}" if share < 1e-3 else f"{share:.0%}"


def _spread(found: Sequence[Measured]) -> str:
    """Worst and best accuracy over all angles, for each network."""
    spans = (f"{html.escape(row.name)} {min(row.accuracy):.1%} to {max(row.accuracy):.1%}" for row in found)
    return "; ".join(spans)


def _tiles(found: Sequence[Measured]) -> str:
    tiles = (f"<div><b>{row.test_accuracy:.1%}</b>{html.escape(row.name)}</div>" for row in found)
    return "".join(tiles)


def _table(found: Sequence[Measured]) -> str:
    head = (
        "network",
        "accuracy",
        "parameters",
        "ms per batch",
        "change of logits: 90 degrees",
        "any angle, scenes",
        "any angle, digits",
        "same prediction",
    )
    rows = [
        (
            html.escape(row.name),
            f"{row.test_accuracy:.1%} ± {row.standard_error:.1%}",
            f"{row.parameters:,}",
            f"{1000 * row.seconds_per_batch:.0f}",
            _change(row.grid_rotations),
            f"{row.any_angle:.0%}",
            f"{row.rotated_digits.mean:.0%}",
            f"{row.rotated_digits.agreement:.0%}",
        )
        for row in found
    ]
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    columns = "".join(f"<th scope='col'>{cell}</th>" for cell in head)
    return f"<table><tr>{columns}</tr>{lines}</table>"


def _validation(row: Measured) -> list[float]:
    return [epoch["validation_accuracy"] for epoch in row.metrics["history"]]


def _digits(dataset: data.SeededDataset) -> str:
    shown = [dataset[i] for i in range(min(20, len(dataset)))]
    figure = image_grid([x[0].numpy() for x, _ in shown], [str(label) for _, label in shown], columns=10)
    return as_image(figure, alt="twenty digits at random angles", dpi=160)


def _attention(model: nn.Module) -> tuple[str, str, float]:
    """Figure, size of the grid, and relative equivariance error of the maps at 90 degrees."""
    digit = _upright_digit()
    group = input_type(model).group
    images = torch.cat([rotate_input(model, digit, rotation_about(group, angle, None)) for angle in _SHOWN_ANGLES])
    maps = received_attention(model, images)[-1]
    expected = input_type(model).rotate(maps[:1, None], rotation_about(group, 90, None))[0, 0]
    error = ((maps[_SHOWN_ANGLES.index(90)] - expected).norm() / expected.norm()).item()
    figure = attention_overlay(list(images[:, 0].numpy()), list(maps.numpy()), [f"{angle}°" for angle in _SHOWN_ANGLES])
    alt = "a digit at several angles with the attention map of the transformer, which rotates with it"
    return as_image(figure, alt=alt, dpi=160), " x ".join(map(str, maps.shape[1:])), error


def _upright_digit() -> Tensor:
    """An upright test digit."""
    config = demo_experiment(next(iter(NAMES)), quick=False).data
    upright_test = data.load(upright(config)).test
    assert isinstance(upright_test, data.ClassificationDataset)
    x, _ = upright_test[int((upright_test.labels == _SHOWN_DIGIT).nonzero()[0])]
    return x[None]
