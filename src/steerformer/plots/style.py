"""Style of all figures: palette, axes, and saving as PNG, SVG or HTML."""

import io
import re
from base64 import b64encode
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from steerformer.io.atomic import write_atomic

PALETTE = ("#2f6fb0", "#c2571a", "#2e8b57", "#8e5aa8", "#a58a1f", "#b0413e")
_INK = "#123456"  # placeholder for the text color of the page, which as_svg inserts


def as_svg(figure: Figure, *, name: str) -> str:
    """The figure as an ``<svg>`` element that takes its text color and font from the page around it."""
    text = io.StringIO()
    # text stays text, and ids are unique per figure
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    return svg.replace(_INK, "currentColor")


def as_image(figure: Figure, *, alt: str, dpi: int = 110) -> str:
    """The figure as an ``<img>`` element that holds its own pixels."""
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=dpi, transparent=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{b64encode(pixels.getvalue()).decode()}">'


def save_figure(figure: Figure, path: Path, *, dpi: int = 110) -> None:
    """The figure as a PNG file on white."""
    pixels = io.BytesIO()
    figure.savefig(pixels, dpi=dpi, format="png", facecolor="white")
    write_atomic(path, pixels.getvalue())


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one axes in the common style."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.tick_params(colors=_INK)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
    return figure, axes


def add_legend(axes: Axes) -> None:
    """A legend above the axes."""
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
