"""Equivariance checks of classifiers and segmentation models: equivariant ones pass, plain ones fail."""

import pytest
import torch

from audit.segmenters import SIZES, Bright, ball, shrink_checks, unet
from audit.tiny import Plain, Tiny
from infer.networks import Local
from steerformer import SO3, FieldType, models
from steerformer.audit import check, check_classifier, check_segmentation, sweep_axes
from steerformer.infer import WindowMemory
from steerformer.infer.memory import resident

pytestmark = pytest.mark.slow


@pytest.fixture
def _small_checks(monkeypatch):
    shrink_checks(monkeypatch)


def test_steerable_classifier_passes_and_plain_one_fails(group):
    x, labels = FieldType.image(group, 1).randn(4, 12), torch.tensor([0, 1, 2, 0])
    ticks = []
    options = {"angles": (0, 90), "rotations": 2}
    good = check_classifier(Tiny(group).eval(), x, labels, **options, progress=lambda: ticks.append(1))
    bad = check_classifier(Plain(group).eval(), x, labels, **options)
    assert good.is_equivariant and not bad.is_equivariant
    assert good.as_json()["is_equivariant"] is True
    assert len(ticks) == 2 * len(sweep_axes(group))


@pytest.mark.usefixtures("_small_checks")
def test_steerable_segmentation_passes_and_plain_one_fails(group):
    cases = [ball(group), ball(group, tuple(n + 1 for n in SIZES[group.dim]))]
    plain = Local(group, classes=2).eval()
    found = check_segmentation(unet(group), cases, angles=(0, 40), rotations=1, control=(plain, cases))
    assert found.is_equivariant and found.grid.worst < 1e-4 and found.grid.agreement > 0.999
    assert found.control is not None and len(found.control.random) == 1
    assert {"head", "logits"} <= {error.name for error in found.layers_grid}
    assert max(error.total for error in found.layers_grid) < 1e-4
    assert found.layers_arbitrary and found.cases == ("ball", "ball")
    assert found.as_json()["sweep"]["angles"] == [0.0, 40.0] and found.as_json()["is_equivariant"] is True
    bad = check_segmentation(plain, cases, angles=(0,), rotations=0)
    assert not bad.is_equivariant and bad.control is None and bad.grid.worst > 0.01


def test_case_larger_than_memory_is_checked_at_its_center(group, monkeypatch):
    """One megabyte for each voxel, and a limit of 80."""
    seen, original = [], check.logit_change
    monkeypatch.setattr(check, "logit_change", lambda *a: seen.append(a[1]) or original(*a))
    monkeypatch.setattr(WindowMemory, "predict", lambda self, voxels: voxels * 2**20)
    monkeypatch.setattr(WindowMemory, "calibrate", lambda *arguments: None)
    case = ball(group)
    memory = resident() + (48 + 80) * 2**20
    assert check_segmentation(Bright(group), [case], angles=(0,), rotations=0, memory=memory).is_equivariant
    sides = seen[0].shape[2:]
    assert len(set(sides)) == 1 and 20 < seen[0].numel() <= 80 < case.x.numel()
    starts = [(n - side) // 2 for n, side in zip(case.labels.shape, sides, strict=True)]
    center = tuple(slice(start, start + sides[0]) for start in starts)
    assert torch.equal(seen[0], case.x[(None, slice(None), *center)])


@pytest.mark.usefixtures("_small_checks")
def test_anisotropic_network_is_rotated_by_what_preserves_its_voxels():
    layers = {"degrees": 2, "widths": [[2], [2]], "kernel_size": 3, "depth": 0, "spacing": [1.0, 1.0, 2.0]}
    model = models.build({"kind": "unet", "group": "SO3", **layers}).eval()
    found = check_segmentation(model, [ball(SO3, spacing=(1.0, 1.0, 2.0))], angles=(0,), rotations=1)
    assert found.is_equivariant and found.grid.rotations == 4  # 180 degrees about each axis, 90 about the last
    assert found.layers_arbitrary == []
