"""The 95th-percentile Hausdorff distance (HD95), by MONAI."""

import warnings
from collections.abc import Sequence

from jaxtyping import Bool
from torch import Tensor


def hd95(predicted: Bool[Tensor, "*space"], truth: Bool[Tensor, "*space"], spacing: Sequence[float]) -> float:
    """95th percentile of the distances from one surface to the other, the larger of both directions.

    The surface of a mask is what erosion by one voxel removes. Both masks must have at least one voxel.
    """
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance  # deferred: the import takes seconds

    one, other = (mask.cpu()[None, None].float() for mask in (predicted, truth))
    with warnings.catch_warnings():
        # MONAI 1.6 passes an argument that it deprecated itself
        warnings.filterwarnings("ignore", message=".*always_return_as_numpy", category=FutureWarning)
        return compute_hausdorff_distance(
            one, other, include_background=True, percentile=95, spacing=[float(size) for size in spacing]
        ).item()
