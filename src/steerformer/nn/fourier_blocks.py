"""ReLU on functions of direction, over blocks of voxels that fit the CPU caches; backward recomputes the functions.

The values at all directions take several times the memory of the field, and writing and reading them would take longer
than computing them.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import FieldType
from steerformer.nn.ops import SCALE, SHORTEST, length
from steerformer.nn.second_derivatives import differentiable_gradients

_BLOCK = 1 << 21  # values of a block: few enough for the CPU caches; with fewer, threads wait for one another
_BLOCK_ON_GPU = 1 << 26
_CHUNKS = 4  # matrices of a block, so that each CPU thread finds in its cache what it computed before


class ChannelRun(NamedTuple):
    """Adjacent channels ``(order, copy)``, from channel ``first`` on."""

    first: int
    orders: int
    copies: int


class CopySet(NamedTuple):
    """Copies ``first`` to ``last - 1``, which exist in the same degrees: each is one function of direction.

    ``synthesis`` evaluates the functions at directions and ``analysis`` expands them again. Both act on real and
    imaginary part together where harmonics are complex. Without them the ReLU has a closed form.
    """

    first: int
    last: int
    degrees: tuple[int, ...]
    samples: int
    """Number of parts of an image that are samples of their own: 1 where matrices act on all parts together."""
    runs: tuple[ChannelRun, ...]
    """Channels of these degrees, with all their copies, in the parts of a sample."""
    synthesis: Float[Tensor, "value coefficient"] | None = None
    analysis: Float[Tensor, "coefficient value"] | None = None


def find_runs(field_type: FieldType, degrees: Sequence[int], parts: int) -> tuple[ChannelRun, ...]:
    """Channels of some degrees in the first ``parts`` parts; adjacent degrees with equally many copies are one run."""
    found: list[ChannelRun] = []
    for part in range(parts):
        first = part * field_type.channels // field_type.parts
        for degree in field_type.degrees:
            run = ChannelRun(first, field_type.group.irrep_dim(degree), field_type.multiplicities[degree])
            first += run.orders * run.copies
            if degree not in degrees:
                continue
            before = found[-1] if found else None
            if before and before.copies == run.copies and before.first + before.orders * before.copies == run.first:
                run = ChannelRun(before.first, before.orders + run.orders, run.copies)
                found.pop()
            found.append(run)
    return tuple(found)


class BlockwiseReLU(torch.autograd.Function):
    """ReLU on the functions of all sets of copies; saves its input alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, field_type: FieldType, sets: Sequence[CopySet]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.field_type, ctx.sets = field_type, sets
        return _walk(sets, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the result must be differentiable, too
            again = partial(composed_relu, field_type=ctx.field_type, sets=ctx.sets)
            return *differentiable_gradients(again, (x,), grad), None, None
        return _walk(ctx.sets, x, grad), None, None


def composed_relu(
    x: Float[Tensor, "batch channels *space"], field_type: FieldType, sets: Sequence[CopySet]
) -> Float[Tensor, "batch channels *space"]:
    """The same as an expression of torch operations, for torch.compile, torch.func, half precision and autocast."""
    pieces = dict(zip(field_type.degrees, field_type.split(x), strict=True))
    results: dict[int, list[Tensor]] = {degree: [] for degree in field_type.degrees}
    for copies in sets:
        inputs = [pieces[degree][:, :, :, copies.first : copies.last] for degree in copies.degrees]
        for degree, result in zip(copies.degrees, _composed(copies, inputs), strict=True):
            results[degree].append(result)
    return field_type.pack(torch.cat(found, dim=3) for found in results.values())


def _composed(copies: CopySet, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    if copies.synthesis is not None and copies.analysis is not None:
        coefficients = torch.cat(list(inputs), dim=2)  # batch, part, (degree, order), copy, *space
        columns = coefficients.flatten(3).flatten(1, 2).unflatten(1, (-1, copies.synthesis.shape[1]))
        found = copies.analysis @ torch.relu(copies.synthesis @ columns)
        return found.reshape(coefficients.shape).split([piece.shape[2] for piece in inputs], dim=2)
    if len(inputs) == 1:
        return [torch.relu(inputs[0])]
    scalar, vector = (piece.flatten(0, 1).to(torch.promote_types(piece.dtype, torch.float32)) for piece in inputs)
    radius = 3**0.5 * length(vector)[:, None]
    share = (torch.clamp(scalar / radius.clamp_min(SHORTEST), -1, 1) + 1) / 2
    results = radius * share**2 + torch.relu(scalar - radius), vector * (share**2 * (3 - 2 * share))
    return [result.reshape(piece.shape).to(piece.dtype) for result, piece in zip(results, inputs, strict=True)]


def _walk(sets: Sequence[CopySet], x: Tensor, grad: Tensor | None = None) -> Tensor:
    """The ReLU of ``x``, or with ``grad`` its derivative at ``x`` applied to ``grad``."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    fields = [field.contiguous() for field in (x, grad) if field is not None] + [out]
    most = _BLOCK if x.device.type == "cpu" else _BLOCK_ON_GPU
    for copies in sets:
        views = [_views(field, copies) for field in fields]
        if copies.synthesis is not None and copies.analysis is not None:
            _relu_at_directions(copies.synthesis, copies.analysis, views, most)
        elif len(copies.degrees) == 1:
            for of_fields in zip(*views, strict=True):
                _relu(*of_fields)
        else:
            _relu_of_linear(views, most)
    return out


_Views = list[Float[Tensor, "_ sample column"]]


def _views(x: Tensor, copies: CopySet) -> _Views:
    """Views ``(order, sample, column)``, one per run: samples are images or their parts, columns copies at voxels."""
    samples, voxels = copies.samples * len(x), x[0, 0].numel()
    return [
        x.as_strided(
            (run.orders, samples, (copies.last - copies.first) * voxels),
            (run.copies * voxels, x.numel() // samples, 1),
            x.storage_offset() + (run.first + copies.first) * voxels,
        )
        for run in copies.runs
    ]


def _blocks(views: _Views, most: int) -> Iterator[Sequence[Tensor]]:
    """Split views into blocks of about ``most`` columns: several samples, or part of one."""
    columns = views[0].shape[2]
    together = most // columns if most // columns >= _CHUNKS else 1
    width = -(-columns // max(round(columns / most), 1))
    width += -width % _CHUNKS
    for block in zip(*(view.split(together, dim=1) for view in views), strict=True):
        if width < columns:
            yield from zip(*(view.split(width, dim=2) for view in block), strict=True)
        else:
            yield block


def _relu_at_directions(synthesis: Tensor, analysis: Tensor, views: list[_Views], most: int) -> None:
    """Evaluate at directions, apply the ReLU or its derivative, and expand again into the last of ``views``."""
    values: list[Tensor] = []
    for blocks in zip(*(_blocks(each, max(most // len(synthesis), 1)) for each in views), strict=True):
        *inputs, output = ([_matrices(view) for view in block] for block in blocks)
        batch, _, columns = output[0].shape
        if not values or values[0].shape != (batch, len(synthesis), columns):
            values = [synthesis.new_empty(batch, len(synthesis), columns) for _ in inputs]
            buffer = synthesis.new_empty(batch, len(analysis) if len(output) > 1 else 0, columns)
        for block, result in zip(inputs, values, strict=True):
            coefficients = torch.cat(block, dim=1, out=buffer) if len(block) > 1 else block[0]
            torch.bmm(synthesis.expand(batch, -1, -1), coefficients, out=result)
        _relu(*values, values[-1])
        torch.bmm(analysis.expand(batch, -1, -1), values[-1], out=buffer if len(output) > 1 else output[0])
        if len(output) > 1:
            for piece, result in zip(buffer.split([piece.shape[1] for piece in output], dim=1), output, strict=True):
                result.copy_(piece)


def _matrices(view: Float[Tensor, "order sample column"]) -> Float[Tensor, "batch order _"]:
    """One matrix per sample, or several for a part of one."""
    samples, columns = view.shape[1:]
    if samples == 1 and columns % _CHUNKS == 0:
        view = view[:, 0].unflatten(1, (_CHUNKS, -1))
    return view.transpose(0, 1)


def _relu(x: Tensor, *others: Tensor) -> None:
    """Write the ReLU of ``x`` to the last tensor, or its derivative at ``x`` applied to the second of three."""
    if len(others) == 1:
        torch.clamp_min(x, 0, out=others[0])
    else:
        torch.ops.aten.threshold_backward.grad_input(others[0], x, 0, grad_input=others[1])


def _relu_of_linear(views: list[_Views], most: int) -> None:
    r"""ReLU of $a + \sqrt 3\, b \cdot n$ on the sphere, exactly, for coefficients $a$ of degree 0 and $b$ of degree 1.

    The coordinate $t$ of a direction along $b$ is uniform in $[-1, 1]$, so with $r = \sqrt 3 |b|$ the function
    $a + r t$ is positive on the share $s = (1 + a / r) / 2$ of the sphere, clamped to $[0, 1]$. The mean of
    $\mathrm{ReLU}(a + r t)$ is $r s^2 + \mathrm{ReLU}(a - r)$, and the coefficient of degree 1 is $b\, s^2 (3 - 2 s)$.
    """
    for *inputs, output in zip(*(_blocks(each, most // 2) for each in views), strict=True):
        (a, b), (into_a, into_b) = _scalar_and_vector(inputs[0]), _scalar_and_vector(output)
        squares = torch.addcmul(a.new_zeros(()), b[0], b[0], value=3 * SCALE**2)
        for order in b[1:]:
            squares.addcmul_(order, order, value=3 * SCALE**2)
        inverse = squares.clamp_min(3 * (SCALE * SHORTEST) ** 2).rsqrt_()  # 1 / (SCALE r)
        share = torch.mul(a, inverse).mul_(SCALE).clamp_(-1, 1).add_(1).mul_(0.5)
        gate = torch.mul(share, -2).add_(3).mul_(share).mul_(share)
        if len(inputs) == 1:
            radius = squares.mul_(inverse).div_(SCALE)
            torch.mul(b, gate, out=into_b)
            torch.sub(a, radius, out=into_a).clamp_min_(0).addcmul_(radius, share.mul_(share))
            continue
        a_grad, b_grad = _scalar_and_vector(inputs[1])
        inverse.mul_(3 * SCALE)  # 3 / r
        along = torch.mul(b[0], b_grad[0])
        for order, order_grad in zip(b[1:], b_grad[1:], strict=True):
            along.addcmul_(order, order_grad)
        along.mul_(inverse)
        rest = 1 - share
        torch.addcmul(a_grad, along, rest, out=into_a).mul_(share)
        slope = torch.addcmul(a_grad, rest - share, along).mul_(rest).mul_(share).mul_(inverse)
        torch.mul(b_grad, gate, out=into_b).addcmul_(b, slope)


def _scalar_and_vector(block: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Degrees 0 and 1, which are one run where both have equally many copies."""
    return (block[0][0], block[1]) if len(block) == 2 else (block[0][0], block[0][1:])
