"""Layers with a steerable kernel: its weights, and the kernel they give, kept in eval mode until the weights change."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode

from steerformer.fields import FieldType
from steerformer.kernels import KernelBasis, VoxelKernels
from steerformer.nn.conv_initialization import weight_deviations
from steerformer.nn.ops import is_traced


class KernelLayer(nn.Module):
    """Base class of convolutions: ``weight`` holds the weights of ``basis``, for each of ``groups`` one after another.

    The cache is not part of copies, pickles and the state dict; changes of mode, dtype and device empty it.
    """

    basis: KernelBasis
    weight: nn.Parameter

    def _create_weights(self, in_type: FieldType, out_type: FieldType, kernels: VoxelKernels, groups: int = 1) -> None:
        self.basis, self.groups = KernelBasis(in_type, out_type, kernels), int(groups)
        if self.basis.num_weights == 0:
            raise ValueError(
                f"no kernel of size {kernels.size} joins {in_type} to {out_type} with an impurity of at most "
                f"{kernels.max_impurity}; use a larger kernel, a larger max_impurity, or degrees closer together."
            )
        self.weight = nn.Parameter(torch.empty(self.basis.weight_parts, groups * self.basis.num_weights))
        self._cache: dict[str, _KernelCache] = {}

    def _draw_weights(self, curves: Sequence[Tensor] | None = None) -> None:
        deviations = weight_deviations(self.basis, curves).to(self.weight)
        with torch.no_grad():
            self.weight.normal_().mul_(deviations.repeat(self.weight.shape[1] // len(deviations)))

    def _assemble(self, form: str) -> Any:
        """The kernel in one of the forms that the layer takes."""
        raise NotImplementedError

    def _kernel(self, form: str) -> Any:
        """The kernel in this form, from the cache if it is valid."""
        wants_gradient = torch.is_grad_enabled() and self.weight.requires_grad
        if self.training or wants_gradient or is_stand_in(self.weight):
            return self._assemble(form)
        cached = self._cache.get(form)
        if cached is None or not cached.belongs_to(self.weight):
            # not an inference tensor: a later call may differentiate by the input
            with torch.inference_mode(False), torch.no_grad():
                cached = _KernelCache(self.weight, self._assemble(form))
            current = {name: other for name, other in self._cache.items() if other.belongs_to(self.weight)}
            self._cache = {**current, form: cached}  # a new one: replicas share the old one
        return cached.kernel

    def train(self, mode: bool = True) -> "KernelLayer":
        self._cache = {}
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "KernelLayer":
        self._cache = {}
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def _describe_silent(self) -> str:
        """Output degrees that stay zero, for ``repr``."""
        reached = {path.degree_out for path in self.basis.paths}
        silent = ", ".join(str(degree) for degree in self.basis.out_type.degrees if degree not in reached)
        return f", silent degrees: {silent}" if silent else ""


class _KernelCache:
    """A kernel, and the weights it was assembled from.

    Weights are compared by value, because some optimizers and ``.data`` change them without a new version; on a CPU
    this is negligible next to a convolution.
    """

    def __init__(self, weight: Tensor, kernel: Any) -> None:
        self.weight, self.kernel = weight.detach().clone(), kernel

    def belongs_to(self, weight: Tensor) -> bool:
        return self.weight.device == weight.device and torch.equal(self.weight, weight)


def is_stand_in(weight: Tensor) -> bool:
    """Whether the weights have no values, or only for this call: torch.compile, torch.func, meta and fake tensors."""
    return is_traced(weight) or weight.is_meta or detect_fake_mode(weight) is not None


def along_axes(spacing: float | Sequence[float] | None, dim: int) -> tuple[float, ...] | None:
    """The voxel spacing along each axis."""
    if spacing is None:
        return None
    return tuple(spacing) if isinstance(spacing, Iterable) else (spacing,) * dim
