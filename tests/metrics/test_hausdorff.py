"""HD95 against scipy's distance transforms."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from steerformer.metrics.hausdorff import hd95


def ball(shape, center, radius):
    """A ball on a grid."""
    grid = np.indices(shape)
    middle = np.reshape(center, (-1, *[1] * len(shape)))
    return torch.from_numpy(((grid - middle) ** 2).sum(0) <= radius**2)


def percentile_of_distances(predicted, truth, spacing):
    """The definition: surfaces by erosion, distances from each to the other, the larger of both 95th percentiles."""
    edges = [mask.numpy() & ~ndimage.binary_erosion(mask.numpy()) for mask in (predicted, truth)]
    fields = [ndimage.distance_transform_edt(~edge, sampling=spacing) for edge in edges]
    return max(np.percentile(fields[1][edges[0]], 95), np.percentile(fields[0][edges[1]], 95))


PAIRS = {
    "images": ((20, 24), (9, 10), 6, (11, 13), 5, (1.0, 1.0)),
    "anisotropic images": ((20, 24), (9, 10), 6, (12, 13), 4, (0.5, 2.0)),
    "at the border": ((12, 12), (0, 3), 4, (11, 11), 3, (1.0, 1.0)),
    "volumes": ((10, 12, 11), (5, 5, 5), 4, (6, 4, 5), 3, (1.0, 1.0, 1.0)),
    "thick slices": ((10, 12, 9), (5, 5, 4), 4, (4, 7, 5), 3, (0.8, 0.8, 3.0)),
    "one voxel": ((8, 8, 8), (2, 2, 2), 0, (6, 5, 4), 0, (1.0, 2.0, 3.0)),
    "one slice": ((8, 8, 1), (3, 3, 0), 2, (4, 5, 0), 2, (1.0, 1.0, 5.0)),
}


@pytest.mark.parametrize(
    ("shape", "center", "radius", "true_center", "true_radius", "spacing"), PAIRS.values(), ids=PAIRS
)
def test_hd95_matches_scipy(shape, center, radius, true_center, true_radius, spacing):
    predicted, truth = ball(shape, center, radius), ball(shape, true_center, true_radius)
    expected = percentile_of_distances(predicted, truth, spacing)
    assert hd95(predicted, truth, spacing) == pytest.approx(expected, rel=1e-5) and expected > 0
    assert hd95(truth, predicted, spacing) == pytest.approx(expected, rel=1e-5)
    assert hd95(truth, truth, spacing) == 0
