"""The verdict: exact on the grid, and stable at other angles, or not."""

import math

import pytest
import torch
from torch import nn

from steerformer import SO2, FieldType
from steerformer.audit import check_classifier
from steerformer.audit.logits import interpolation_change, logit_change
from steerformer.audit.rotations import random_rotations
from steerformer.audit.sweeps import DiceSweep, SweepScores
from steerformer.audit.verdict import Verdict
from steerformer.fields import voxel_coordinates
from steerformer.testing import blobs


@pytest.mark.parametrize(
    ("grid", "lost", "grade", "words"),
    [
        (1e-6, 0.01, "pass", "pass: equivariant, rotations of the grid change the logits by 1.0e-06"),
        (1e-6, None, "pass", "other angles were not tried"),
        (1e-6, 0.1, "weak", "weak: exact on the grid and approximate elsewhere"),
        (1e-6, 0.3, "fail", "unstable elsewhere"),
        (0.5, 0.0, "fail", "fail: NOT equivariant, a rotation of the grid changes the logits by 50.0%"),
        (math.nan, 0.0, "fail", "NOT equivariant"),
        (1e-6, math.nan, "fail", "unstable elsewhere"),
    ],
)
def test_grades(grid, lost, grade, words):
    verdict = Verdict(grid, lost)
    assert verdict.grade == grade and words in verdict.describe()


class Harmonic(nn.Module):
    """Two classes by the sign of the moment of a degree: 4 is exact under rotations by 90 degrees, and no others."""

    def __init__(self, degree, size):
        super().__init__()
        self.in_type, self.out_type = FieldType.image(SO2, 1), FieldType.image(SO2, 2)
        y, x = voxel_coordinates((size, size)).unbind(-1)
        self.register_buffer("pattern", (degree * torch.atan2(y, x)).cos() * (x**2 + y**2))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        moment = self.scale * (x[:, 0] * self.pattern.to(x)).sum(dim=(1, 2))
        return torch.stack([moment, -moment], dim=1)


def checked(degree):
    x = blobs(FieldType.image(SO2, 1), batch=16, sigma=2.0, extent=3.0).sample((21, 21)).float()
    return check_classifier(Harmonic(degree, 21), x, torch.zeros(16, dtype=torch.long), angles=(0,), rotations=6)


def test_model_that_is_exact_on_the_grid_only_does_not_pass():
    steady, unstable = checked(0), checked(4)
    assert steady.verdict.grade == "pass" and steady.lost < 0.05
    assert unstable.is_equivariant and unstable.verdict.grade == "fail" and unstable.lost > 0.2
    assert unstable.as_json()["verdict"] == "fail" and unstable.as_json()["lost"] == unstable.lost


def test_interpolation_alone_costs_little_on_smooth_samples():
    x = blobs(FieldType.image(SO2, 1), batch=16, sigma=2.0, extent=3.0).sample((21, 21)).float()
    model, rotations = Harmonic(4, 21), random_rotations(SO2, 4, seed=0)
    there_and_back = interpolation_change(model, x, rotations)
    assert there_and_back.rotations == 4 and there_and_back.mean < 0.2 < logit_change(model, x, rotations).mean


def test_angles_of_the_grid_do_not_count():
    grid, other, random = (SweepScores(agreement, 0.9, 0.95) for agreement in (1.0, 0.8, 0.7))
    sweep = DiceSweep(0.9, [0.0, 45.0, 90.0, 270.0], {"plane": [grid, other, grid, grid]}, [random])
    assert sweep.away_from_the_grid() == [other, random]
