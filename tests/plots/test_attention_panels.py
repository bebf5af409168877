"""Figures of attention: the weights of the layer, of the marked query, which rotate with the input."""

import numpy as np
import pytest
import torch

from steerformer import SO2, FieldType, viz
from steerformer.nn import Attention, AvgPool, DecoderBlock, Encoder, NormReLU


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes if axes.get_title()}


def image(axes):
    return np.asarray(axes.images[0].get_array())


def layer_and_input(group, size=5):
    field_type = FieldType(group, (2, 2))
    return Attention(field_type, num_heads=2), field_type.randn(2, size)


def test_weights_of_the_query_are_drawn_relative_to_uniform(group):
    layer, x = layer_and_input(group)
    query = (1, 3, 4)[: group.dim]
    figure = viz.attention(layer, x, query=query, sample=1)
    _, weights = layer(x, return_weights=True)
    voxels = 5**group.dim
    maps = weights[1, :, np.ravel_multi_index(query, (5,) * group.dim)].unflatten(1, (5,) * group.dim).detach() * voxels
    received = weights[1].mean(0).sum(0).unflatten(0, (5,) * group.dim).detach()
    shown = (lambda values: values) if group is SO2 else (lambda values: values[..., query[-1]])
    drawn = panels(figure)
    for head in (0, 1):
        assert np.allclose(image(drawn[f"head {head}"]), shown(maps[head]), atol=1e-5)
        ((column, row),) = drawn[f"head {head}"].lines[0].get_xydata()
        assert (row, column) == query[:2]
    assert np.allclose(image(drawn["received"]), shown(received), atol=1e-5)
    assert np.allclose(image(drawn["input"]), shown(x[1].norm(dim=0)), atol=1e-5)


def test_received_attention_rotates_with_the_input():
    layer, x = layer_and_input(SO2)
    layer.double()
    for R in SO2.grid_rotations():
        found = image(panels(viz.attention(layer, layer.in_type.rotate(x.double(), R)))["received"])
        upright = torch.from_numpy(image(panels(viz.attention(layer, x.double()))["received"]))[None, None]
        assert np.allclose(found, FieldType.image(SO2, 1).rotate(upright.float(), R)[0, 0], atol=1e-5)


def test_models_have_a_row_for_each_attention_layer(group):
    field_type = FieldType(group, (2, 2))
    encoder = Encoder(field_type, num_heads=2, depth=3, dropout=0.5)
    model = torch.nn.Sequential(AvgPool(field_type, kernel_size=2), encoder)
    figure = viz.attention(model, field_type.randn(1, 6), heads=1)
    drawn = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in drawn] == ["input", "head 0", "received"] * 3
    assert [axes.get_ylabel() for axes in drawn[1::3]] == [f"attention layer {number}" for number in range(3)]
    assert image(drawn[0]).shape == (6, 6) and image(drawn[1]).shape == (3, 3)
    assert drawn[0].lines[0].get_xydata().tolist() == [[2, 2]]  # below the center (1, 1) of the coarse grid, 2.5
    assert model.training


def test_uniform_attention_is_drawn_uniform(group):
    """Rounding errors do not fill the color scale."""
    layer, x = layer_and_input(group)
    drawn = panels(viz.attention(layer, torch.zeros_like(x)))
    for title in ("head 0", "received"):
        low, high = drawn[title].images[0].get_clim()
        assert low <= 0.9 and high >= 1.1


def test_missing_attention_and_wrong_queries_raise(group):
    layer, x = layer_and_input(group)
    with pytest.raises(TypeError, match=r"viz\.attention draws Attention layers, but NormReLU contains none"):
        viz.attention(NormReLU(layer.in_type), x)
    for query in ((5,) * group.dim, (-1,) * group.dim, (1,)):
        with pytest.raises(ValueError, match=r"a query is a voxel of the attention's grid \(5, 5.*\), got"):
            viz.attention(layer, x, query=query)


def test_cross_attention_and_local_attention_are_drawn():
    features, other = FieldType(SO2, (2, 2)), FieldType.image(SO2, 1)
    x, context = features.randn(2, 5), other.randn(2, 5)
    layer = DecoderBlock(features, other, num_heads=2, radius=2.0)
    figure = viz.attention(layer, x, context, sample=1)
    seen = layer.attention_norm(x + layer.self_attention(layer.self_attention_norm(x)))
    _, weights = layer.attention(seen, layer.context_norm(context), return_weights=True)
    heads = [axes for axes in figure.axes if axes.get_title() == "head 0"]
    assert len(heads) == 2  # self-attention and cross-attention
    drawn = image(heads[1])
    assert abs(drawn - 25 * weights[1, 0, 12].view(5, 5).detach().numpy()).max() < 1e-5
    assert drawn[0, 0] == 0 < drawn[2, 2]  # beyond the radius
    with pytest.raises(ValueError, match="draws cross-attention on grids of one size"):
        viz.attention(layer, x, other.randn(2, 6))
