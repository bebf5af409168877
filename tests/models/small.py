"""Small models of every kind, for both groups."""

import jaxtyping

from steerformer import models
from steerformer.testing import assert_equivariant

KINDS = {
    "transformer": {"depth": 1},
    "convolution": {"depth": 0},
    "transformer, norm after each convolution": {"depth": 2, "norm_after": "convolution"},
    "layer norm, antialiased pooling": {"norm": "layer", "antialiased": True},
    "multiplicities by degree": {"widths": [[[3, 2], [2, 1, 1]], [[4, 2]]], "num_heads": 2, "features": [4, 2]},
    "gated": {"nonlinearity": "gated"},
    "fourier": {"nonlinearity": "fourier", "norm_after": "convolution", "mlp_nonlinearity": "fourier"},
    "sampled kernels": {"kernel_family": "sampled", "max_impurity": 0.1},
    "local attention": {"radius": 1.5, "falloff": 0.5},
}


def classifier(group, **options):
    """A steerable classifier of two blocks on a grid of 8."""
    widths = [[2, 3], [4]]
    small = {"kind": "classifier", "group": group.name, "size": 8, "degrees": 3, "widths": widths, "num_heads": 2}
    return models.build({**small, "classes": 5, "features": 6, "hidden": 8, "kernel_size": 3, **options})


def plain(group, **options):
    """The control: a plain CNN of two blocks on a grid of 8."""
    small = {"kind": "cnn", "group": group.name, "size": 8, "classes": 5, "widths": [[4], [6, 6]], "hidden": 8}
    return models.build({**small, **options})


STEMS = {
    "stem": {"stem_stride": 2, "head": "scalar"},
    "stem, fourier": {
        "stem_stride": 2,
        "widths": [[[3, 2]], [4]],
        "antialiased": True,
        "nonlinearity": "fourier",
        "norm_after": "convolution",
        "head": "scalar",
        "head_channels": 4,
        "head_kernel_size": 1,
    },
    "stem, two convolutions": {"stem_stride": 2, "widths": [[2, 3], [4]], "head": "scalar", "norm": "layer"},
}
UNETS = {
    "transformer": {"depth": 1},
    "MLP": {"depth": 0},
    "paper, 2D": {"widths": [[2, 3], [4, 4], []], "depth": 2, "hidden": 3},
    "paper, 3D": {"widths": [[[2, 1], [4, 2, 1]], [[4, 2, 2]], []], "depth": 0, "head": "absolute"},
    "MLP, fourier": {"depth": 0, "mlp_nonlinearity": "fourier"},
    "one level": {"widths": [[3, 4]]},
    "norm after each convolution": {"norm_after": "convolution", "head": "scalar"},
    "fourier": {
        "nonlinearity": "fourier",
        "mlp_nonlinearity": "fourier",
        "norm_after": "convolution",
        "head": "scalar",
        "head_kernel_size": 1,
    },
    "gated, layer norm": {"nonlinearity": "gated", "norm": "layer"},
    "large pooling factors": {"pool": [3, 4]},
    "local attention": {"radius": 1.5, "falloff": 1.0, "widths": [[2], [4]]},
    "antialiased pooling": {"pool": [2, 3], "antialiased": True, "blur": 0.7},
    "activation checkpointing": {"activation_checkpointing": True},
    **STEMS,
}


def unet(group, **options):
    """A steerable U-Net of three levels, with attention on the coarsest."""
    small = {"kind": "unet", "group": group.name, "degrees": 3, "widths": [[2], [3], [4]], "num_heads": 2}
    return models.build({**small, "classes": 3, "kernel_size": 3, **options})


def monai_unet(group, **options):
    """The control: MONAI's UNet of two levels."""
    small = {"kind": "monai", "group": group.name, "classes": 3, "channels": [4, 8], "residual_units": 1}
    return models.build({**small, **options})


def settle(model, size, batches=3, batch=2):
    """Run a few batches in training mode, so that running statistics match the weights; then eval mode."""
    model.train()
    for _ in range(batches):
        model(model.in_type.randn(batch, size, dtype=next(model.parameters()).dtype))
    return model.eval()


def assert_equivariant_on_grid(model, **options):
    """:func:`assert_equivariant` at all rotations of the grid, to rounding.

    Without jaxtyping's runtime checks: they take most of the time, and the same model passes them in :func:`settle`.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        assert_equivariant(model, tolerance=1e-9, **options)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
