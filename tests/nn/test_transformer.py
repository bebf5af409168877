"""Attention, block and encoder: equivariance, both directions of the paper's theorem 1, initialization."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from checks import without_type_checks
from nn.layers import worst_error_on
from steerformer import SO2, SO3, FieldType
from steerformer.fields import voxel_coordinates
from steerformer.nn import PositionalEncoding
from steerformer.testing import assert_equivariant, blobs, equivariance_error

IMPLEMENTATIONS = ["dense", "blockwise"]


def fields(group):
    return FieldType(group, (4, 2, 0, 2))


MODULES = {
    "attention": lambda group, **options: sf.nn.Attention(fields(group), num_heads=2, **options),
    "block": lambda group, **options: sf.nn.TransformerBlock(fields(group), num_heads=2, **options),
    "encoder": lambda group, **options: sf.nn.Encoder(fields(group), num_heads=2, depth=2, **options),
}


@pytest.mark.parametrize("name", MODULES)
def test_transformer_is_exact_under_grid_rotations(group, name):
    """In float64, and to rounding error in float32, for both implementations, with and without positions."""
    for implementation, positional in product(IMPLEMENTATIONS, (True, False)):
        layer = MODULES[name](group, implementation=implementation, positional=positional).eval()
        assert worst_error_on(layer, layer.in_type.randn(1, 5 if group is SO2 else 4)) < 1e-5
        layer.double()
        for space in ((5, 5), (4, 4), (3, 5)) if group is SO2 else ((3, 3, 3), (4, 4, 4), (2, 4, 3)):
            x = layer.in_type.randn(1, space, dtype=torch.float64)
            assert worst_error_on(layer, x) < 1e-10, (implementation, positional, space)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masked_encoder_is_equivariant_with_rotated_mask(group, implementation, float64):
    layer = MODULES["encoder"](group, implementation=implementation)
    x = layer.in_type.randn(2, 4 if group is SO2 else 3)
    mask = torch.rand(2, *x.shape[2:]) > 0.4
    scalars, y = FieldType.image(group, 1), layer(x, mask)
    with without_type_checks():
        for R in group.grid_rotations()[1:]:
            rotated_mask = scalars.rotate(mask[:, None].double(), R)[:, 0] > 0.5
            rotated = layer(layer.in_type.rotate(x, R), rotated_mask)
            assert_close(rotated, layer.in_type.rotate(y, R), rtol=0, atol=1e-10)
    assert not torch.allclose(rotated, layer(layer.in_type.rotate(x, R), mask))  # negative control


def test_units_of_spacing_do_not_matter(group, float64):
    x = fields(group).randn(1, 4)
    found = []
    for unit in (1.0, 1e-3):
        torch.manual_seed(0)
        found.append(MODULES["attention"](group, spacing=(unit,) * group.dim)(x))
    torch.manual_seed(0)
    assert_close(found[0], MODULES["attention"](group)(x))
    assert_close(found[0], found[1])


def test_anisotropic_voxels_are_exact_under_their_rotations(group, float64):
    """Rotations by 180 degrees, and in 3D by 90 degrees about the long axis, keep such a grid."""
    spacing = (1.0, 2.5) if group is SO2 else (2.5, 1.0, 1.0)
    layer = MODULES["block"](group, spacing=spacing)
    x = layer.in_type.randn(1, 4 if group is SO2 else 3)
    keeping = [R for R in group.grid_rotations() if torch.equal(R.abs() @ torch.tensor(spacing), torch.tensor(spacing))]
    assert len(keeping) == (2 if group is SO2 else 8)
    assert max(equivariance_error(layer, R, x=x).total for R in keeping) < 1e-10
    others = [R for R in group.grid_rotations() if not any(torch.equal(R, kept) for kept in keeping)]
    assert min(equivariance_error(layer, R, x=x).total for R in others) > 1e-3  # negative control


@pytest.mark.slow
def test_readme_network_is_equivariant(group, unchecked):
    image = FieldType.image(group, 1)
    net = nn.Sequential(
        sf.nn.Conv(image, fields(group), kernel_size=3), sf.nn.Encoder(fields(group), num_heads=2, depth=2)
    )
    assert_equivariant(net, size=9 if group is SO2 else 5, batch=1)


class UnsteerableEncoding(PositionalEncoding):
    """Encoding that ignores the degree, so it violates the transformation law."""

    def basis(self, points):
        rows = super().basis(points)
        return torch.sin(points @ torch.arange(1.0, rows.shape[-1] * points.shape[-1] + 1).view(-1, rows.shape[-1]))


def with_encoding(group, make):
    layer = MODULES["attention"](group)
    layer.key_position, layer.value_position = make(fields(group)), make(fields(group))
    return layer


def test_steerable_encoding_keeps_equivariance(group, float64):
    x = fields(group).randn(1, 5 if group is SO2 else 4)
    for profile in (lambda r, degree: (-r).exp() * (degree + 1), lambda r, degree: torch.cos(r + degree)):
        layer = with_encoding(group, lambda t, profile=profile: PositionalEncoding(t, radial=profile))
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5)
        assert worst_error_on(layer.eval(), x) < 1e-10


def test_unsteerable_encoding_breaks_equivariance(group, float64):
    layer = with_encoding(group, UnsteerableEncoding).eval()
    x = fields(group).randn(1, 5 if group is SO2 else 4)
    assert worst_error_on(layer, x) > 1e-2
    for weight in (layer.key_position.weight, layer.value_position.weight):
        nn.init.zeros_(weight)
    assert worst_error_on(layer, x) < 1e-10  # only the encoding broke it


def test_encoding_is_steerable_at_any_angle(group, float64):
    encoding = PositionalEncoding(FieldType(group, (2, 1, 3, 1)))
    points, R = torch.randn(20, group.dim), group.random_rotation()
    assert_close(encoding(points @ R.mT), encoding(points) @ encoding.out_type.matrix(R).mT)
    at_zero = encoding(torch.zeros(group.dim))
    assert (at_zero == 0).all()


def test_encoding_at_distance_0_is_zero_except_scalars(group):
    encoding = PositionalEncoding(FieldType(group, (1, 1)), radial=lambda r, degree: torch.ones_like(r))
    rows = encoding.basis(torch.zeros(group.dim))
    orders = 1 + group.irrep_dim(1)
    assert rows[0] == 1
    assert (rows[1:orders] == 0).all()


def test_encoding_of_real_field_is_the_real_part_in_3d_and_scalars_in_2d(group, float64):
    copies = (2, 1, 1) if group is SO3 else (2,)
    real, whole = (PositionalEncoding(FieldType(group, copies, real=real)) for real in (True, False))
    with torch.no_grad():
        whole.weight.copy_(torch.cat([real.weight, torch.zeros_like(real.weight)]))
    points = 3 * torch.randn(20, group.dim)
    found, (expected, imaginary) = real(points), whole(points).chunk(2, dim=1)
    assert_close(found, expected)
    assert not imaginary.any()
    R = group.random_rotation()
    assert_close(real(points @ R.mT), found @ real.out_type.matrix(R).mT)


ANGLES = {
    SO2: [SO2.rotation(math.radians(17))],
    SO3: [SO3.rotation(math.radians(17), (1.0, 2.0, 3.0)), SO3.rotation(1.0, (3.0, -1.0, 2.0))],
}


@pytest.mark.parametrize(
    ("group", "degrees"),
    [(SO2, 3), pytest.param(SO2, 8, marks=pytest.mark.slow), pytest.param(SO3, 3, marks=pytest.mark.slow)],
    ids=str,
)
def test_smooth_scenes_have_small_error_at_any_angle(group, degrees, float64):
    """Attention alone and a whole encoder, with and without positions; eight degrees take minutes in 3D."""
    field_type = FieldType(group, (4,) * degrees)
    for make, positional in product((sf.nn.Attention, sf.nn.Encoder), (True, False)):
        assert disc_error(make(field_type, num_heads=2, positional=positional)) < 1e-2, (make, positional)


def test_paper_profile_has_larger_error():
    """Reason for the soft default: close to the center the grid cannot distinguish degree 4 from 0."""
    field_type = FieldType(SO2, (4,) * 8)
    errors = {}
    for radial in ("paper", "soft"):
        torch.manual_seed(0)
        errors[radial] = disc_error(sf.nn.Attention(field_type, num_heads=2, radial=radial).double())
    assert errors["paper"] > 10 * errors["soft"]


def disc_error(layer):
    group, size, sigma = layer.in_type.group, *((25, 2.0) if layer.in_type.group is SO2 else (11, 1.5))
    mask = torch.linalg.vector_norm(voxel_coordinates((size,) * group.dim), dim=-1) <= size / 2
    scene = blobs(layer.in_type, batch=2, sigma=sigma, extent=size / 6)

    def within_disc(x):
        with torch.no_grad():
            return layer(x, mask.expand(len(x), *mask.shape))

    types = {"in_type": layer.in_type, "out_type": layer.in_type}
    return max(equivariance_error(within_disc, R, scene=scene, size=size, **types).total for R in ANGLES[group])


def test_initial_attention_is_spread_over_many_voxels(group):
    for copies, scale in product(((8,) * 4, (16, 8, 4)), ("paper", "total")):
        block = sf.nn.TransformerBlock(FieldType(group, copies), num_heads=4, scale=scale)
        x = block.in_type.randn(4, (8, 8) if group is SO2 else (4, 4, 4))
        weights = block.attention(block.attention_norm(x), return_weights=True)[1]
        entropy = -(weights * weights.log()).sum(dim=-1)
        assert entropy.exp().mean() > 64 / 3, (copies, scale)
        assert entropy.exp().mean() < 63.5, (copies, scale)  # but not uniform


@pytest.mark.slow
@pytest.mark.parametrize("build", ["encoder", "sequence"])
def test_eight_blocks_keep_the_norm_of_features(group, build):
    field_type = FieldType(group, (8, 8, 8))
    blocks = (sf.nn.TransformerBlock(field_type, num_heads=2) for _ in range(8))
    net = sf.nn.Encoder(field_type, num_heads=2, depth=8) if build == "encoder" else nn.Sequential(*blocks)
    x = field_type.randn(2, (8, 8) if group is SO2 else (4, 4, 4))
    growth = (net(x).norm() / x.norm()).item()
    assert 0.5 < growth < 2
    assert growth != pytest.approx(1, abs=1e-2)  # but the blocks are not the identity


def test_mlp_matches_the_paper(group, float64):
    mlp = sf.nn.MLP(fields(group))
    assert mlp.hidden == FieldType(group, (8, 4, 0, 4))
    assert_equivariant(mlp, size=4, batch=1)
    x = mlp.in_type.randn(2, 3)
    assert not torch.allclose(mlp(2 * x), 2 * mlp(x))  # nonlinear at initialization


def test_mlp_takes_other_nonlinearities(group, float64):
    block = sf.nn.TransformerBlock(fields(group), num_heads=2, nonlinearity=sf.nn.FourierReLU)
    assert isinstance(block.mlp.nonlinearity, sf.nn.FourierReLU) and block.mlp.nonlinearity.in_type == block.mlp.hidden
    assert_equivariant(block, size=4, batch=1)


def test_mask_and_dropout_are_applied(group):
    encoder = sf.nn.Encoder(fields(group), num_heads=2, depth=2, dropout=0.5)
    x = fields(group).randn(2, 4)
    mask = torch.rand(2, *x.shape[2:]) > 0.5
    mask[:, :2] = True
    assert not torch.equal(encoder(x, mask), encoder(x, mask))
    encoder.eval()
    assert torch.equal(encoder(x, mask), encoder(x, mask))
    assert not torch.equal(encoder(x, mask), encoder(x))


@pytest.mark.parametrize("space", [(64, 64), (16, 16, 16)], ids=["64x64", "16^3"])
@pytest.mark.slow
def test_one_block_trains_on_4096_voxels(space):
    field_type = FieldType(SO2 if len(space) == 2 else SO3, (4, 4))
    encoder = sf.nn.Encoder(field_type, num_heads=2)
    x = field_type.randn(1, space)
    target = field_type.randn(1, space)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-3)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(encoder(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


@pytest.mark.slow
def test_one_block_runs_forward_and_backward_on_13824_voxels():
    field_type = FieldType(SO3, (1, 1))
    encoder = sf.nn.Encoder(field_type, num_heads=1)
    x = field_type.randn(1, 24).requires_grad_()
    encoder(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_invalid_depth_raises(group, unchecked):
    for depth in (0, True, 2.5):
        with pytest.raises(ValueError, match=f"depth is an integer >= 1, got {depth}"):
            sf.nn.Encoder(fields(group), num_heads=2, depth=depth)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "implementation", "dynamic"),
    [(SO2, "dense", False), (SO2, "blockwise", True), (SO3, "dense", True), (SO3, "blockwise", False)],
    ids=str,
)
def test_export_gives_the_same_output(group, implementation, dynamic, unchecked):
    """With a fixed and with a dynamic batch size."""
    field_type = FieldType(group, (2, 2))
    encoder = sf.nn.Encoder(field_type, num_heads=2, implementation=implementation).eval()
    x = field_type.randn(2, (4, 5, 3)[: group.dim])
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    program = torch.export.export(encoder, (x,), dynamic_shapes=shapes).module()
    x = field_type.randn(3 if dynamic else 2, (4, 5, 3)[: group.dim])
    assert_close(program(x), encoder(x), rtol=1e-4, atol=1e-5)
    R = group.grid_rotations()[1]  # the table built while tracing must not be cached
    assert equivariance_error(encoder, R, x=x).total < 1e-5
