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
