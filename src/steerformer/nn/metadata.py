"""Tensors with metadata, such as MONAI's MetaTensor, as inputs of layers."""

from torch import Tensor


def without_metadata(x: Tensor) -> Tensor:
    """A plain tensor instead of one with metadata, such as MONAI's MetaTensor, whose methods differ from torch's."""
    is_plain = type(x) is Tensor or type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__  # or a fake tensor
    return x if is_plain else x.as_subclass(Tensor)


def with_metadata(y: Tensor, x: Tensor) -> Tensor:
    """``y`` with the metadata of ``x``, if it has any: every function of torch keeps those of its arguments."""
    return y if without_metadata(x) is x else y.to(x.to(y.dtype))
