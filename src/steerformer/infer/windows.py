"""Sliding-window inference within a memory limit: labels and logits of images and volumes of any size."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from steerformer.infer.memory import format_bytes, resident
from steerformer.infer.window_memory import WindowMemory
from steerformer.models.eval_mode import eval_mode, reference_parameter

_SIGMA = 0.125  # of the weights, in sides of the window
_LEAST_WEIGHT = 1e-3
_SPARE = 48 * 2**20  # bytes for small objects and caches of libraries
Span = tuple[int, int]


def predict_labels(
    model: nn.Module,
    x: Float[Tensor, "channels *space"],
    *,
    memory: int | None = None,
    overlap: float = 0.25,
    progress: Callable[[float], object] = lambda share: None,
    window_memory: WindowMemory | None = None,
    later: int = 0,
) -> Integer[Tensor, "*space"]:
    """Predict the class of every voxel, as uint8 (int16 for more than 256 classes), on the CPU.

    Args:
        model: maps windows ``(1, channels, *space)`` of any size to logits on the same grid.
        x: one preprocessed image or volume.
        memory: limit for the peak memory of the process in bytes; ``None`` for no limit. An input that does not fit as
            a whole is predicted in windows, whose logits are averaged with Gaussian weights.
        overlap: fraction of a window that the next one along an axis overlaps.
        progress: called with the fraction done, after each window.
        window_memory: measurements of the model's peak memory, shared by many calls.
        later: bytes that the caller will need besides the result, after the last window.
    """
    dtype = torch.uint8 if _classes(model) <= 256 else torch.int16
    labels = torch.empty(x.shape[1:], dtype=dtype)
    for planes, logits in _in_parts(
        model, x, memory, overlap, progress, window_memory, kept=labels.nbytes, later=later
    ):
        for plane, values in zip(range(planes.start, planes.stop), logits.unbind(1), strict=True):
            labels[plane] = values.argmax(0)  # of one plane: argmax takes eight bytes for each voxel
    return labels


def predict_logits(
    model: nn.Module,
    x: Float[Tensor, "channels *space"],
    *,
    memory: int | None = None,
    overlap: float = 0.25,
    progress: Callable[[float], object] = lambda share: None,
    window_memory: WindowMemory | None = None,
    later: int = 0,
) -> Float[Tensor, "classes *space"]:
    """Predict the logits of every voxel, on the CPU; see :func:`predict_labels`."""
    found = torch.empty(_classes(model), *x.shape[1:], dtype=torch.float32)
    for planes, logits in _in_parts(model, x, memory, overlap, progress, window_memory, kept=found.nbytes, later=later):
        found[:, planes] = logits
    return found


def choose_window(
    window_memory: WindowMemory, size: Sequence[int], classes: int, memory: int | None, *, kept: int = 0, later: int = 0
) -> tuple[int, ...]:
    """The largest window of a volume that fits into ``memory`` beside ``kept`` bytes of results.

    Sides are equal except for the remainder of each axis by the model's stride, and limited by the volume. ``later``
    are bytes needed after the last window.
    """
    if memory is None:
        return tuple(size)
    room = memory - resident() - kept - _SPARE
    stride = window_memory.stride

    def windows() -> Iterator[tuple[int, ...]]:
        for side in range(stride * math.ceil(max(size) / stride), 0, -stride):
            yield tuple(_side(n, side, stride) for n in size)

    def need(window: tuple[int, ...]) -> int:
        return window_memory.predict(math.prod(window)) + _slab(size, window, classes)

    def largest() -> tuple[int, ...]:
        return next((window for window in windows() if need(window) <= room), list(windows())[-1])

    window_memory.calibrate(size, lambda: math.prod(largest()), room)
    window = largest()
    taken = max(need(window), later)
    if taken > room:
        least = memory - room + taken
        raise ValueError(
            f"{format_bytes(memory)} of memory are not enough: a volume of {' x '.join(map(str, size))} takes "
            f"{format_bytes(least)} even with the smallest windows; allow more, such as {format_bytes(1.25 * least)}."
        )
    return window


def spans(n: int, window: int, stride: int, overlap: float) -> list[Span]:
    """Start and end of the windows along an axis of ``n`` voxels, equally spaced up to the stride.

    They start at multiples of the stride; ``n - window`` is one, too.

    >>> spans(10, 4, 2, 0.5)
    [(0, 4), (2, 6), (4, 8), (6, 10)]
    >>> spans(9, 5, 2, 0.0)
    [(0, 5), (4, 9)]
    """
    if window >= n:
        return [(0, n)]
    step = max(stride, int(window * (1 - overlap)) // stride * stride)
    count = math.ceil((n - window) / step) + 1
    starts = [i * (n - window) // (count - 1) // stride * stride for i in range(count)]
    return [(start, start + window) for start in starts]


def _side(n: int, side: int, stride: int) -> int:
    """A window's side along an axis of ``n`` voxels: ``side`` plus the remainder of the axis by the stride.

    A network pads a grid that its poolings do not divide. Windows with the same remainder that start at multiples of
    the stride are padded alike, so that the same voxels are pooled together as in the whole volume.
    """
    return min(side + n % stride, n)


def _in_parts(
    model: nn.Module,
    x: Tensor,
    memory: int | None,
    overlap: float,
    progress: Callable[[float], object],
    window_memory: WindowMemory | None,
    *,
    kept: int,
    later: int,
) -> Iterator[tuple[slice, Tensor]]:
    """Planes of the first axis and their logits, in eval mode and without gradients."""
    if not 0 <= overlap < 1:
        raise ValueError(f"overlap is a fraction of a window from 0 to below 1, got {overlap}.")
    with eval_mode(model):
        window_memory = window_memory or WindowMemory(model)
        window = choose_window(window_memory, x.shape[1:], _classes(model), memory, kept=kept, later=later)
        rows = [spans(n, side, window_memory.stride, overlap) for n, side in zip(x.shape[1:], window, strict=True)]
        yield from _stitched(model, x, rows, progress)


def _stitched(
    model: nn.Module, x: Tensor, rows: Sequence[Sequence[Span]], progress: Callable[[float], object]
) -> Iterator[tuple[slice, Tensor]]:
    """Logits ``(classes, planes, ...)`` of planes of the first axis, as soon as no further window overlaps them.

    At most the planes of one window are held in memory, however large the volume and its number of classes.
    """
    like, first, others = reference_parameter(model), rows[0], list(product(*rows[1:]))
    share = 1 / (len(first) * len(others))
    if share == 1:
        logits = model(x[None].to(like))[0].float().cpu()
        progress(share)
        yield slice(0, x.shape[1]), logits
        return
    depth = first[0][1]
    total, weight = torch.zeros(_classes(model), depth, *x.shape[2:]), torch.zeros(depth, *x.shape[2:])
    for i, (start, stop) in enumerate(first):
        for spans_of_others in others:
            there = tuple(slice(*span) for span in spans_of_others)
            logits = model(x[(slice(None), slice(start, stop), *there)][None].to(like))[0].float().cpu()
            weights = _weights(logits.shape[1:])
            total[(slice(None), slice(0, stop - start), *there)] += logits.mul_(weights)
            weight[(slice(0, stop - start), *there)] += weights
            progress(share)
        done = (first[i + 1][0] if i + 1 < len(first) else stop) - start
        yield slice(start, start + done), total[:, :done].div_(weight[:done])
        for sums in (*total, weight):
            sums[: depth - done] = sums[done:].clone()
            sums[depth - done :] = 0


def _weights(window: Sequence[int]) -> Tensor:
    """Gaussian weights of a window's voxels: those at its border lack context, and count less."""
    weights = torch.ones(())
    for n in window:
        places = torch.arange(n) - (n - 1) / 2
        weights = weights[..., None] * (-(places**2) / (2 * (_SIGMA * n) ** 2)).exp()
    return weights.clamp_min(_LEAST_WEIGHT)


def _slab(size: Sequence[int], window: Sequence[int], classes: int) -> int:
    """Bytes of the running sums: logits and weights in single precision, and a copy."""
    return 0 if tuple(window) == tuple(size) else 4 * (classes + 2) * window[0] * math.prod(size[1:])


def _classes(model: nn.Module) -> int:
    return int(model.out_type.channels)  # type: ignore[union-attr, arg-type]
