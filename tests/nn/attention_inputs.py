"""Small inputs of attention layers and of their core."""

import math

import torch

import steerformer as sf
from steerformer import SO2, FieldType


def fields(group, copies=(4, 2, 2)):
    return FieldType(group, copies)


def grid(group):
    return (3, 4) if group is SO2 else (2, 3, 2)


def some_mask(batch, space):
    mask = torch.rand(batch, *space) > 0.4
    mask[0] = True
    return mask


def core_inputs(group):
    layer = sf.nn.Attention(fields(group, (2, 2)), num_heads=2)
    tokens = math.prod(grid(group))
    shape = (2, 2, layer.in_type.channels // 2)
    q, k, v = (torch.randn(*shape, tokens, requires_grad=True) for _ in range(3))
    rows = layer.key_position.matrix().shape[1]
    maps = [torch.randn(*shape[1:], rows, requires_grad=True) for _ in range(2)]
    return (q, k, v, *maps), layer.key_position.table(grid(group))
