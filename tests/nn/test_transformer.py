"""Attention, block and encoder turn with the picture; the paper's theorem, both ways; a calm start."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
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


def worst_error(layer, x):
    rotations = layer.in_type.group.grid_rotations()
    with torch.no_grad():
        return max(equivariance_error(layer, R, x=x).total for R in rotations)


@pytest.mark.parametrize("positional", [True, False])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", MODULES)
def test_exact_under_the_grids_rotations(group, name, implementation, positional, float64):
    layer = MODULES[name](group, implementation=implementation, positional=positional)
    for space in ((5, 5, 5), (4, 4, 4), (3, 5, 4)):
        assert worst_error(layer, layer.in_type.randn(2, space[: group.dim])) < 1e-10


@pytest.mark.parametrize("name", MODULES)
def test_nearly_exact_in_single_precision(group, name):
    layer = MODULES[name](group)
    assert worst_error(layer, layer.in_type.randn(2, 5)) < 1e-5


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masks_turn_along(group, implementation, float64):
    layer = MODULES["encoder"](group, implementation=implementation)
    x = layer.in_type.randn(2, 4)
    mask = torch.rand(2, *x.shape[2:]) > 0.4
    scalars = FieldType.image(group, 1)
    for R in group.grid_rotations()[1:]:
        turned_mask = scalars.rotate(mask[:, None].double(), R)[:, 0] > 0.5
        turned = layer(layer.in_type.rotate(x, R), turned_mask)
        assert_close(turned, layer.in_type.rotate(layer(x, mask), R), rtol=0, atol=1e-10)
    assert not torch.allclose(turned, layer(layer.in_type.rotate(x, R), mask))  # negative control


def test_units_of_spacing_do_not_matter(group, float64):
    x = fields(group).randn(1, 4)
    found = []
    for unit in (1.0, 1e-3):
        torch.manual_seed(0)
        found.append(MODULES["attention"](group, spacing=(unit,) * group.dim)(x))
    torch.manual_seed(0)
    assert_close(found[0], MODULES["attention"](group)(x))
    assert_close(found[0], found[1])


def test_anisotropic_voxels(group, float64):
    """Half turns, and in space quarter turns about the long axis, keep such a grid."""
    spacing = (1.0, 2.5) if group is SO2 else (2.5, 1.0, 1.0)
    layer = MODULES["block"](group, spacing=spacing)
    x = layer.in_type.randn(2, 4)
    keeping = [R for R in group.grid_rotations() if torch.equal(R.abs() @ torch.tensor(spacing), torch.tensor(spacing))]
    assert len(keeping) == (2 if group is SO2 else 8)
    assert max(equivariance_error(layer, R, x=x).total for R in keeping) < 1e-10
    others = [R for R in group.grid_rotations() if not any(torch.equal(R, kept) for kept in keeping)]
    assert min(equivariance_error(layer, R, x=x).total for R in others) > 1e-3  # negative control


def test_the_papers_example_from_the_readme_way(group):
    image = FieldType.image(group, 1)
    net = nn.Sequential(
        sf.nn.Conv(image, fields(group), kernel_size=3), sf.nn.Encoder(fields(group), num_heads=2, depth=2)
    )
    assert_equivariant(net)


class Untrue(PositionalEncoding):
    """Offsets as they are, whatever a degree asks for: this does not turn."""

    def basis(self, points):
        rows = super().basis(points)
        return torch.sin(points @ torch.arange(1.0, rows.shape[-1] * points.shape[-1] + 1).view(-1, rows.shape[-1]))


def with_encoding(group, make):
    layer = MODULES["attention"](group)
    layer.key_position, layer.value_position = make(fields(group)), make(fields(group))
    return layer


def test_theorem_a_true_encoding_keeps_equivariance(group, float64):
    x = fields(group).randn(2, 5)
    for profile in (lambda r, degree: (-r).exp() * (degree + 1), lambda r, degree: torch.cos(r + degree)):
        layer = with_encoding(group, lambda t, profile=profile: PositionalEncoding(t, radial=profile))
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5)
        assert worst_error(layer, x) < 1e-10


def test_theorem_an_untrue_one_breaks_it(group, float64):
    layer = with_encoding(group, Untrue)
    x = fields(group).randn(2, 5)
    assert worst_error(layer, x) > 1e-2
    for weight in (layer.key_position.weight, layer.value_position.weight):
        nn.init.zeros_(weight)
    assert worst_error(layer, x) < 1e-10  # it was the encoding


def test_the_encoding_obeys_its_law_at_any_angle(group, float64):
    encoding = PositionalEncoding(FieldType(group, (2, 1, 3, 1)))
    points, R = torch.randn(20, group.dim), group.random_rotation()
    assert_close(encoding(points @ R.mT), encoding(points) @ encoding.out_type.matrix(R).mT)
    at_zero = encoding(torch.zeros(group.dim))
    assert (at_zero == 0).all()


def test_at_distance_0_only_scalars_have_a_value(group):
    encoding = PositionalEncoding(FieldType(group, (1, 1)), radial=lambda r, degree: torch.ones_like(r))
    rows = encoding.basis(torch.zeros(group.dim))
    orders = 1 + group.irrep_dim(1)
    assert rows[0] == 1
    assert (rows[1:orders] == 0).all()


def test_images_have_no_directions(group):
    with pytest.raises(ValueError, match="positions are encoded in complex fields, got"):
        PositionalEncoding(FieldType.image(group, 2))


ANGLES = {
    SO2: [SO2.rotation(math.radians(17))],
    SO3: [SO3.rotation(math.radians(17), (1.0, 2.0, 3.0)), SO3.rotation(1.0, (3.0, -1.0, 2.0))],
}


@pytest.mark.parametrize("positional", [True, False], ids=["positions", "none"])
@pytest.mark.parametrize("name", ["attention", "encoder"])
@pytest.mark.parametrize("copies", [(4, 4, 4), (4,) * 8])
def test_smooth_scenes_at_any_angle(group, copies, name, positional, float64):
    if group is SO3 and len(copies) > 3:
        pytest.skip("eight degrees in space take minutes")
    field_type = FieldType(group, copies)
    options = {"num_heads": 2, "positional": positional}
    layer = sf.nn.Attention(field_type, **options) if name == "attention" else sf.nn.Encoder(field_type, **options)
    assert disc_error(layer) < 1e-2


def test_the_papers_profile_errs_more():
    """Why the default has a soft core: next to the center the grid cannot tell degree 4 from 0."""
    field_type = FieldType(SO2, (4,) * 8)
    errors = {}
    for radial in ("paper", "soft"):
        torch.manual_seed(0)
        errors[radial] = disc_error(sf.nn.Attention(field_type, num_heads=2, radial=radial).double())
    assert errors["paper"] > 10 * errors["soft"]


def disc_error(layer):
    group, size, sigma = layer.in_type.group, *((25, 2.0) if layer.in_type.group is SO2 else (11, 1.5))
    mask = torch.linalg.vector_norm(voxel_coordinates((size,) * group.dim), dim=-1) <= size / 2
    scene = blobs(layer.in_type, batch=4, sigma=sigma, extent=size / 6)

    def within_disc(x):
        with torch.no_grad():
            return layer(x, mask.expand(len(x), *mask.shape))

    types = {"in_type": layer.in_type, "out_type": layer.in_type}
    return max(equivariance_error(within_disc, R, scene=scene, size=size, **types).total for R in ANGLES[group])


@pytest.mark.parametrize("scale", ["paper", "total"])
@pytest.mark.parametrize("copies", [(8,) * 4, (16, 8, 4)])
def test_a_fresh_block_looks_around(group, copies, scale):
    block = sf.nn.TransformerBlock(FieldType(group, copies), num_heads=4, scale=scale)
    x = block.in_type.randn(4, (8, 8) if group is SO2 else (4, 4, 4))
    weights = block.attention(block.attention_norm(x), return_weights=True)[1]
    entropy = -(weights * weights.log()).sum(dim=-1)
    assert entropy.exp().mean() > 64 / 3
    assert entropy.exp().mean() < 63.5  # but not at everything alike


@pytest.mark.parametrize("build", ["encoder", "sequence"])
def test_eight_blocks_keep_the_size_of_features(group, build):
    field_type = FieldType(group, (8, 8, 8))
    blocks = (sf.nn.TransformerBlock(field_type, num_heads=2) for _ in range(8))
    net = sf.nn.Encoder(field_type, num_heads=2, depth=8) if build == "encoder" else nn.Sequential(*blocks)
    x = field_type.randn(2, (8, 8) if group is SO2 else (4, 4, 4))
    growth = (net(x).norm() / x.norm()).item()
    assert 0.5 < growth < 2
    assert growth != pytest.approx(1, abs=1e-2)  # and they do something


def test_the_mlp_is_the_papers(group, float64):
    mlp = sf.nn.MLP(fields(group))
    assert mlp.hidden == FieldType(group, (8, 4, 0, 4))
    assert_equivariant(mlp)
    x = mlp.in_type.randn(2, 3)
    assert not torch.allclose(mlp(2 * x), 2 * mlp(x))  # a fresh one is not linear


def test_masks_and_dropout_pass_through(group):
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
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(encoder(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


@pytest.mark.slow
def test_one_block_goes_forward_and_backward_on_13824_voxels():
    field_type = FieldType(SO3, (1, 1))
    encoder = sf.nn.Encoder(field_type, num_heads=1)
    x = field_type.randn(1, 24).requires_grad_()
    encoder(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


@pytest.mark.parametrize("depth", [0, True, 2.5])
def test_words_for_a_wrong_depth(group, depth, unchecked):
    with pytest.raises(ValueError, match="depth is an integer >= 1, got"):
        sf.nn.Encoder(fields(group), num_heads=2, depth=depth)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(group, implementation, dynamic):
    encoder = sf.nn.Encoder(fields(group), num_heads=2, implementation=implementation).eval()
    x = fields(group).randn(2, (4, 5, 3)[: group.dim])
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    program = torch.export.export(encoder, (x,), dynamic_shapes=shapes).module()
    x = fields(group).randn(3 if dynamic else 2, (4, 5, 3)[: group.dim])
    assert_close(program(x), encoder(x), rtol=1e-4, atol=1e-5)
    R = group.grid_rotations()[1]  # a table made while tracing must not stay behind
    assert equivariance_error(encoder, R, x=x).total < 1e-5
