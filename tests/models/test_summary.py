"""Model summaries: layers, shapes and parameter counts."""

import copy

import pytest
import torch

from models.small import classifier, plain, unet
from nn.layers import image, small_net
from steerformer import SO2, FieldType, models
from steerformer.models.summary import count
from steerformer.nn import BatchNorm, Conv, Linear, NormReLU


def test_parameter_counts_of_single_layers():
    """A complex Linear 2x0+1x1 -> 3x0+1x1: 6 + 1 complex weights; NormReLU: 4 real biases; BatchNorm: 4 factors, 3
    complex means."""
    small, large = FieldType(SO2, (2, 1)), FieldType(SO2, (3, 1))
    assert count(Linear(small, large)) == (14, 7)
    assert count(NormReLU(large)) == (4, 4)
    assert count(BatchNorm(large)) == (10, 7)
    assert count(torch.nn.Linear(2, 2)) == (6, 6)
    conv = Conv(small, large, kernel_size=3)
    assert count(conv) == (conv.weight.numel(), conv.weight.shape[1])
    assert count(torch.nn.Sequential(Linear(small, large), NormReLU(large))) == (18, 11)


def test_counts_add_up_and_shapes_are_those_of_forward(group):
    for make in (classifier, plain):
        model = make(group)
        found = models.summary(model)
        assert sum(row.parameters for row in found.rows) == found.parameters == count(model)[0]
        assert sum(row.complex_parameters for row in found.rows) == found.complex_parameters
        assert found.rows[-1].shape == (5,)
        assert found.rows[0].shape[1:] == (8,) * group.dim


def test_unets_are_summarized_on_any_grid(group):
    model = unet(group, depth=1, activation_checkpointing=True)
    for size, space in ((None, (16, 16, 16)), (5, (5, 5, 5)), ((3, 7, 4), (3, 7, 4))):
        found = models.summary(model, size[: group.dim] if isinstance(size, tuple) else size)
        assert sum(row.parameters for row in found.rows) == found.parameters == count(model)[0]
        assert found.rows[0].shape[1:] == found.rows[-1].shape[1:] == space[: group.dim]
        assert found.rows[-1].shape[0] == 3
    names = [row.name for row in found.rows]
    assert {"down.1.pool", "middle.blocks.0.attention", "up.1.resample", "head"} <= set(names)
    assert model.training


def test_layers_of_stem_and_head_are_listed(group):
    model = unet(group, stem_stride=2, head="scalar", head_channels=5)
    found = models.summary(model, (6, 9, 5)[: group.dim])
    assert sum(row.parameters for row in found.rows) == found.parameters == count(model)[0]
    rows = {row.name: row for row in found.rows}
    assert rows["down.0.block.0.conv"].shape[1:] == (3, 5, 3)[: group.dim]
    assert rows["full_resolution.coarse"].shape == (8, 3, 5, 3)[: group.dim + 1]
    assert rows["full_resolution.skip"].shape == (5, 6, 9, 5)[: group.dim + 1]
    assert rows["head"].shape == (3, 6, 9, 5)[: group.dim + 1]
    assert models.summary(model).rows[-1].shape[1:] == (32,) * group.dim


def test_invalid_sizes_are_rejected(group, unchecked):
    with pytest.raises(ValueError, match=r"size is an integer >= 1, or one for each of \d axes, got 0"):
        models.summary(unet(group), 0)


def test_sequential_is_summarized(group):
    """Its rows, types and counts are those of its layers; it has no configuration, so it needs a size."""
    net = small_net(group)
    found = models.summary(net, 8)
    assert [row.layer for row in found.rows] == [type(layer).__name__ for layer in net]
    assert [row.shape for row in found.rows] == [tuple(y.shape[1:]) for y in outputs(net, image(group).randn(1, 8))]
    assert (found.parameters, found.complex_parameters) == count(net)
    with pytest.raises(ValueError, match=r"summary of a Sequential needs a size, the voxels along each side"):
        models.summary(net)


def outputs(net, x):
    net = copy.deepcopy(net).eval()
    return [x := layer(x) for layer in net]


def test_sequential_without_field_types_needs_one(group):
    net, field_type = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Tanh()), FieldType.image(group, 2)
    with pytest.raises(ValueError, match=r"Sequential has no in_type; pass in_type=FieldType\(\.\.\.\)"):
        models.summary(net, 4)
    (row,) = models.summary(net, 4, in_type=field_type).rows
    assert (row.layer, row.shape) == ("Tanh", (2, *[4] * group.dim))


def test_single_layer_is_one_row(group):
    layer = Conv(FieldType.image(group, 1), FieldType(group, (2, 1)), kernel_size=3)
    (row,) = models.summary(layer, 5).rows
    assert (row.layer, row.shape, row.parameters) == (
        "Conv",
        (layer.out_type.channels, *[5] * group.dim),
        count(layer)[0],
    )


def test_double_precision(group):
    assert models.summary(classifier(group).double()).rows[-1].shape == (5,)


def test_text_has_types_and_totals(group):
    model = classifier(group)
    text = str(models.summary(model))
    assert "1xreal -> 2x0+2x1+2x2" in text
    assert f"{count(model)[0]:,}" in text.splitlines()[-1]
    assert "encoder.blocks.0.attention " in text


def test_model_is_not_modified(group):
    model = classifier(group)
    statistics = model.norm.running_rms.clone()
    models.summary(model)
    assert model.training and torch.equal(model.norm.running_rms, statistics)
    assert not any(module._forward_hooks for module in model.modules())
