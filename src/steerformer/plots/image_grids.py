"""Rows of images, and attention maps overlaid on them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure


def image_grid(images: Sequence[np.ndarray], titles: Sequence[str], *, columns: int) -> Figure:
    """Gray images in a grid, each with a title."""
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(0.85 * columns, 1.02 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    for axes, image, title in zip(grid, images, titles, strict=False):
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.set_title(title, fontsize=8, color="#888888")
    return figure


def attention_overlay(images: Sequence[np.ndarray], maps: Sequence[np.ndarray], titles: Sequence[str]) -> Figure:
    """Images, and below each the same image with its attention map overlaid."""
    figure = Figure(figsize=(1.25 * len(images), 2.75), layout="constrained")
    grid = figure.subplots(2, len(images), squeeze=False)
    limits = min(m.min() for m in maps), max(m.max() for m in maps)
    for column, (image, weights, title) in enumerate(zip(images, maps, titles, strict=True)):
        height, width = image.shape
        for axes in grid[:, column]:
            axes.imshow(image, cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0))
            axes.axis("off")
        over = grid[1, column]
        whole = (0, width, height, 0)
        over.imshow(weights, cmap="inferno", vmin=limits[0], vmax=limits[1], extent=whole, interpolation="bicubic")
        over.contour(image, levels=[0.5], colors="white", linewidths=0.9, extent=(0, width, 0, height))
        over.set(xlim=(0, width), ylim=(height, 0))
        grid[0, column].set_title(title, fontsize=9, color="#888888")
    return figure
