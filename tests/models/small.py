"""Small models of every kind, for both groups."""

from steerformer import models

KINDS = {
    "transformer": {"depth": 1},
    "convolution": {"depth": 0},
    "transformer, norms after each convolution": {"depth": 2, "norms": "convolution"},
    "layer norm, Gaussian pooling": {"norm": "layer", "antialiased": True},
    "copies by degree": {"widths": [[[3, 2], [2, 1, 1]], [[4, 2]]], "num_heads": 2, "features": [4, 2]},
    "gates": {"nonlinearity": "gated"},
    "functions of direction": {"nonlinearity": "fourier", "norms": "convolution"},
    "sampled rings": {"profiles": "sampled", "tolerance": 0.1},
}


def classifier(group, **options):
    """A steerable classifier of two blocks on a grid of 8."""
    widths = [[2, 3], [4]]
    small = {"kind": "classifier", "group": group.name, "size": 8, "degrees": 3, "widths": widths, "num_heads": 2}
    return models.build({**small, "classes": 5, "features": 6, "hidden": 8, "kernel_size": 3, **options})


def plain(group, **options):
    """The control, of two blocks on a grid of 8."""
    small = {"kind": "cnn", "group": group.name, "size": 8, "classes": 5, "widths": [[4], [6, 6]], "hidden": 8}
    return models.build({**small, **options})


UNETS = {
    "transformer": {"depth": 1},
    "MLP": {"depth": 0},
    "the paper's, in the plane": {"widths": [[2, 3], [4, 4], []], "depth": 2, "hidden": 3},
    "the paper's, in space": {"widths": [[[2, 1], [4, 2, 1]], [[4, 2, 2]], []], "depth": 0, "head": "absolute"},
    "one level": {"widths": [[3, 4]]},
    "norms after each convolution": {"norms": "convolution", "head": "scalar"},
    "functions of direction": {"nonlinearity": "fourier", "norms": "convolution", "head": "scalar", "head_size": 1},
    "gates, layer norm": {"nonlinearity": "gated", "norm": "layer"},
    "wide pools": {"pool": [3, 4]},
    "Gaussian pools": {"pool": [2, 3], "antialiased": True, "blur": 0.7},
    "recomputed": {"checkpoint": True},
}


def unet(group, **options):
    """A steerable U-net of three levels, with attention on the coarsest."""
    small = {"kind": "unet", "group": group.name, "degrees": 3, "widths": [[2], [3], [4]], "num_heads": 2}
    return models.build({**small, "classes": 3, "kernel_size": 3, **options})


def monai_unet(group, **options):
    """The control, of two levels."""
    small = {"kind": "monai", "group": group.name, "classes": 3, "channels": [4, 8], "residual_units": 1}
    return models.build({**small, **options})
