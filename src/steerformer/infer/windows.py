"""Labels and logits of images and volumes of any size: whole where they fit into memory, else window by window."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from steerformer.infer.appetite import Appetite
from steerformer.infer.memory import as_text, resident

_SIGMA = 0.125  # of the weights, in sides of the window
_LEAST_WEIGHT = 1e-3
_SPARE = 48 * 2**20  # bytes for all that is small: Python's objects, caches of libraries
Span = tuple[int, int]


def predict_labels(
    model: nn.Module,
    x: Float[Tensor, "channels *space"],
    *,
    memory: int | None = None,
    overlap: float = 0.25,
    progress: Callable[[float], object] = lambda share: None,
    appetite: Appetite | None = None,
    later: int = 0,
) -> Integer[Tensor, "*space"]:
    """The class of every voxel, uint8 (int16 for more than 256 classes), on the CPU.

    Args:
        model: takes windows ``(1, channels, *space)`` of any size and gives logits on the same grid.
        x: one image or volume, as the model was trained to see it.
        memory: bytes that the process may have at its peak, all it has already included; ``None`` for no limit. What
            does not fit whole is predicted in windows, and their logits are averaged with Gaussian weights.
        overlap: share of a window that the next one along an axis sees again.
        progress: told the share that was done, after each window.
        appetite: what is known about the model's need of memory, to be shared by many calls.
        later: bytes that the caller will take beside the result, after the last window.
    """
    dtype = torch.uint8 if _classes(model) <= 256 else torch.int16
    labels = torch.empty(x.shape[1:], dtype=dtype)
    for planes, logits in _in_parts(model, x, memory, overlap, progress, appetite, kept=labels.nbytes, later=later):
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
    appetite: Appetite | None = None,
    later: int = 0,
) -> Float[Tensor, "classes *space"]:
    """Logits of every voxel, on the CPU; see :func:`predict_labels`."""
    found = torch.empty(_classes(model), *x.shape[1:], dtype=torch.float32)
    for planes, logits in _in_parts(model, x, memory, overlap, progress, appetite, kept=found.nbytes, later=later):
        found[:, planes] = logits
    return found


def choose_window(
    appetite: Appetite, size: Sequence[int], classes: int, memory: int | None, *, kept: int = 0, later: int = 0
) -> tuple[int, ...]:
    """The largest window of a volume that fits into ``memory``, and beside it ``kept`` bytes of results.

    Sides are alike but for what the model's stride leaves of each axis, unless the volume ends before. ``later`` are
    bytes that are taken when no window is left.
    """
    if memory is None:
        return tuple(size)
    room = memory - resident() - kept - _SPARE
    stride = appetite.stride

    def windows() -> Iterator[tuple[int, ...]]:
        for side in range(stride * math.ceil(max(size) / stride), 0, -stride):
            yield tuple(_side(n, side, stride) for n in size)

    def need(window: tuple[int, ...]) -> int:
        return appetite.of(math.prod(window)) + _slab(size, window, classes)

    def largest() -> tuple[int, ...]:
        return next((window for window in windows() if need(window) <= room), list(windows())[-1])

    appetite.learn(size, lambda: math.prod(largest()), room)
    window = largest()
    taken = max(need(window), later)
    if taken > room:
        least = memory - room + taken
        raise ValueError(
            f"{as_text(memory)} of memory are too little: a volume of {' x '.join(map(str, size))} takes "
            f"{as_text(least)} in all, however small the windows; allow more, such as {as_text(1.25 * least)}."
        )
    return window


def spans(n: int, window: int, stride: int, overlap: float) -> list[Span]:
    """Where windows along an axis of ``n`` voxels begin and end, equally spaced but for steps of the stride.

    They begin at multiples of the stride; ``n - window`` is one, too.

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
    """A window's side along an axis of ``n`` voxels: ``side`` and what the stride leaves of the axis.

    A network pads a grid that its poolings do not divide. Windows that leave the same, and begin at multiples of the
    stride, are padded alike, so that the same voxels are pooled together as in the whole.
    """
    return min(side + n % stride, n)


def _in_parts(
    model: nn.Module,
    x: Tensor,
    memory: int | None,
    overlap: float,
    progress: Callable[[float], object],
    appetite: Appetite | None,
    *,
    kept: int,
    later: int,
) -> Iterator[tuple[slice, Tensor]]:
    """Planes of the first axis and their logits, in eval mode and without gradients."""
    if not 0 <= overlap < 1:
        raise ValueError(f"overlap is a share of a window from 0 to below 1, got {overlap}.")
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            appetite = appetite or Appetite(model)
            window = choose_window(appetite, x.shape[1:], _classes(model), memory, kept=kept, later=later)
            rows = [spans(n, side, appetite.stride, overlap) for n, side in zip(x.shape[1:], window, strict=True)]
            yield from _stitched(model, x, rows, progress)
    finally:
        model.train(training)


def _stitched(
    model: nn.Module, x: Tensor, rows: Sequence[Sequence[Span]], progress: Callable[[float], object]
) -> Iterator[tuple[slice, Tensor]]:
    """Logits ``(classes, planes, ...)`` of planes of the first axis, as soon as no further window sees them.

    So no more than the planes of one window are ever kept, however large the volume and however many its classes.
    """
    like, first, others = next(model.parameters(), torch.zeros(())), rows[0], list(product(*rows[1:]))
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
    """Weights of a window's voxels: those at its border lack surroundings, and count less."""
    weights = torch.ones(())
    for n in window:
        places = torch.arange(n) - (n - 1) / 2
        weights = weights[..., None] * (-(places**2) / (2 * (_SIGMA * n) ** 2)).exp()
    return weights.clamp_min(_LEAST_WEIGHT)


def _slab(size: Sequence[int], window: Sequence[int], classes: int) -> int:
    """Bytes of the sums that are kept while windows are run: logits and weights, in single precision, and a copy."""
    return 0 if tuple(window) == tuple(size) else 4 * (classes + 2) * window[0] * math.prod(size[1:])


def _classes(model: nn.Module) -> int:
    return int(model.out_type.channels)  # type: ignore[union-attr, arg-type]
