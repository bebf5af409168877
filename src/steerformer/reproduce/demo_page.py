"""Writes the report of the demonstration: one HTML file that holds its pictures."""

import html
import platform
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import torch
from torch import Tensor, nn

from steerformer import data, plots
from steerformer.audit import received_attention, upright
from steerformer.audit.rotations import about, input_type, turn
from steerformer.files import write_whole
from steerformer.nn import Attention
from steerformer.reproduce.demo import ANGLES, DIGITS_TO_TURN, NAMES, Measured, demo_experiment

_SHOWN_ANGLES = (0, 30, 60, 90, 135, 180, 225)
_SHOWN_DIGIT = 4


def write_report(found: Sequence[Measured], path: Path, *, quick: bool) -> Path:
    """One page of text, a table and pictures; nothing outside it is needed to read it."""
    from steerformer import __version__

    transformer = next(row.model for row in found if any(isinstance(m, Attention) for m in row.model.modules()))
    splits = data.load(demo_experiment(next(iter(NAMES)), quick=quick).data)
    samples = found[0].samples
    attention, grid, error = _attention(transformer)
    page = Template((files("steerformer.reproduce") / "demo.html").read_text(encoding="utf-8")).substitute(
        headline=_headline(found),
        warning="<p><b>A quick run:</b> one epoch of few digits. It shows that all works, and no more.</p>"
        if quick
        else "",
        tiles=_tiles(found),
        digits=_digits(splits.test),
        table=_table(found),
        angles=plots.as_svg(plots.accuracy_by_angle({row.name: row.accuracy for row in found}, ANGLES), name="angles"),
        curves=plots.as_svg(plots.learning_curves({row.name: _validation(row) for row in found}), name="curves"),
        layers=plots.as_svg(
            plots.errors_by_layer({row.name: [e.total for e in row.layers] for row in found}), name="layers"
        ),
        attention=attention,
        grid=grid,
        attention_error=f"{error:.0e}",
        version=__version__,
        hardware=html.escape(f"{platform.machine()} with {torch.get_num_threads()} threads"),
        minutes=f"{sum(row.metrics['seconds'] for row in found) / 60:.1f}",
        turned=f"{min(DIGITS_TO_TURN, samples['test']):,}",
        spread=_spread(found),
        **{part: f"{count:,}" for part, count in samples.items()},
    )
    write_whole(path, page)
    return path


def _headline(found: Sequence[Measured]) -> str:
    read = ", ".join(f"{html.escape(row.name)} <b>{row.test_accuracy:.1%}</b>" for row in found)
    changes = ", ".join(_change(row.quarter_turns) for row in found)
    return f"Digits at any angle that are read rightly: {read}. A quarter turn changes the logits by {changes}."


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
        "ms a batch",
        "logits change: quarter turns",
        "any angle, scenes",
        "any angle, digits",
        "same answer",
    )
    rows = [
        (
            html.escape(row.name),
            f"{row.test_accuracy:.1%} ± {row.standard_error:.1%}",
            f"{row.parameters:,}",
            f"{1000 * row.seconds_per_batch:.0f}",
            _change(row.quarter_turns),
            f"{row.any_angle:.0%}",
            f"{row.turned_digits.mean:.0%}",
            f"{row.turned_digits.agreement:.0%}",
        )
        for row in found
    ]
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    columns = "".join(f"<th scope='col'>{cell}</th>" for cell in head)
    return f"<table><tr>{columns}</tr>{lines}</table>"


def _validation(row: Measured) -> list[float]:
    return [epoch["validation_accuracy"] for epoch in row.metrics["history"]]


def _digits(dataset: data.Numbered) -> str:
    shown = [dataset[i] for i in range(min(20, len(dataset)))]
    figure = plots.pictures([x[0].numpy() for x, _ in shown], [str(label) for _, label in shown], columns=10)
    return plots.as_image(figure, alt="twenty digits at random angles", dpi=160)


def _attention(model: nn.Module) -> tuple[str, str, float]:
    """Picture, size of the grid, and how far the maps of quarter turns are from the quarter turns of the map."""
    digit = _upright_digit()
    group = input_type(model).group
    images = torch.cat([turn(model, digit, about(group, angle, None)) for angle in _SHOWN_ANGLES])
    maps = received_attention(model, images)[-1]
    quarter = about(group, 90, None)
    expected = input_type(model).rotate(maps[:1, None], quarter)[0, 0]
    error = ((maps[_SHOWN_ANGLES.index(90)] - expected).norm() / expected.norm()).item()
    figure = plots.attention(list(images[:, 0].numpy()), list(maps.numpy()), [f"{angle}°" for angle in _SHOWN_ANGLES])
    alt = "a digit at several angles, and the attention of the transformer, which turns with it"
    return plots.as_image(figure, alt=alt, dpi=160), " x ".join(map(str, maps.shape[1:])), error


def _upright_digit() -> Tensor:
    """A test digit as it was written."""
    config = demo_experiment(next(iter(NAMES)), quick=False).data
    standing = data.load(upright(config)).test
    assert isinstance(standing, data.Samples)
    x, _ = standing[int((standing.labels == _SHOWN_DIGIT).nonzero()[0])]
    return x[None]
