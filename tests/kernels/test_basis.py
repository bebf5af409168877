"""KernelBasis: steerability, caching, build time, exactness in any dtype, module behavior."""

import copy
import itertools
import pickle
import time

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.groups import so3
from steerformer.kernels import KernelBasis, KernelPath, Rings, RingsAtPoints, VoxelKernels, basis, spectrum, voxels

FAMILIES = ("sampled", "fitted", "purest")


def clear_caches():
    caches = [basis._couple_once, voxels._functions, voxels._forms, spectrum.gauss_legendre]
    caches += [so3._wigner_3j, so3._raising]
    for cache in caches:
        cache.cache_clear()


def some_basis(group, in_type="2x0+1x1+1x3", out_type="1x0+2x1+1x2", **options):
    source = VoxelKernels(group, (4,) * group.dim, **options)
    return KernelBasis(FieldType(group, in_type), FieldType(group, out_type), source)


def random_weights(module, dtype=None):
    return torch.randn(module.weight_parts, module.num_weights, dtype=dtype)


def test_kernel_is_the_sum_over_paths(group, float64):
    """Oracle: sum of weight times harmonic function times coupling, entry by entry, in complex numbers."""
    module = some_basis(group)
    weights = random_weights(module)
    numbers = iter(torch.complex(*weights).tolist())
    in_type, out_type = module.in_type, module.out_type
    rows = []
    for out in out_type.degrees:
        row = []
        for inp in in_type.degrees:
            paths = [path for path in module.paths if (path.degree_out, path.degree_in) == (out, inp)]
            shape = (group.irrep_dim(out), out_type.multiplicity(out), group.irrep_dim(inp), in_type.multiplicity(inp))
            block = torch.zeros(*shape, *module.source.size, dtype=torch.complex128)
            for a, b, path in itertools.product(range(shape[1]), range(shape[3]), paths):
                function = module.source.functions(path.harmonic).values[path.profile].to(block)
                C = group.coupling(out, path.harmonic, inp).to(block)
                block[:, a, :, b] += next(numbers) * torch.einsum("ohi,h...->oi...", C, function)
            row.append(block.flatten(2, 3).flatten(0, 1))
        rows.append(torch.cat(row, dim=1))
    K = torch.cat(rows)
    expected = torch.cat([torch.cat([K.real, -K.imag], dim=1), torch.cat([K.imag, K.real], dim=1)])
    assert_close(module(weights), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_voxel_kernels_are_steerable_under_grid_rotations(group, family, float64):
    image, features = FieldType.image(group, 1), FieldType(group, (1, 2, 1))
    for in_type, out_type in itertools.product((image, features), repeat=2):
        module = KernelBasis(in_type, out_type, VoxelKernels(group, (4,) * group.dim, family=family))
        kernel = module(random_weights(module))
        index = np.indices(kernel.shape[2:]).reshape(group.dim, -1) - 1.5
        for R in group.grid_rotations():
            moved = kernel[(..., *(R.numpy() @ index + 1.5).round().astype(int))]
            rho_out, rho_in = (torch.from_numpy(oracles.channel_matrix(t, R.numpy())) for t in (out_type, in_type))
            expected = torch.einsum("oa,abz,ib->oiz", rho_out, kernel.flatten(2), rho_in)
            assert_close(moved, expected, rtol=0, atol=1e-10)


def test_basis_kernels_have_unit_norm(group, float64):
    """Couplings are isometries, so they keep the norm of the voxel functions."""
    module = some_basis(group, "1x1", "1x2")
    for i in range(module.num_weights):
        weights = torch.zeros(2, module.num_weights)
        weights[0, i] = 1
        assert module.assemble(weights).norm().item() == pytest.approx(1, abs=1e-10)


def test_second_build_uses_the_cache(group, monkeypatch):
    clear_caches()
    first = some_basis(group)
    solved = []
    monkeypatch.setattr(voxels.GridForms, "solve", lambda self, b: solved.append(b))
    second = some_basis(group)
    other_copies = some_basis(group, "9x0+8x1+7x3", "6x0+5x1+4x2")
    assert not solved
    assert first.paths == second.paths == other_copies.paths
    for buffer in dict(first.named_buffers()):
        assert torch.equal(first.get_buffer(buffer), second.get_buffer(buffer))


BUILDS = [(SO2, (24,) * 8, (48,) * 8, 60_000), (SO3, (64, 32, 16), (64, 32, 16), 400_000)]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("group", "copies_in", "copies_out", "additions"), BUILDS, ids=str)
def test_basis_of_paper_size_builds_quickly(group, copies_in, copies_out, additions, family, unchecked):
    """CPU time, best of three, without importing e3nn and scipy, in units of an addition of small tensors."""
    some_basis(group)
    source = VoxelKernels(group, (5,) * group.dim, family=family)

    def build():
        clear_caches()
        KernelBasis(FieldType(group, copies_in), FieldType(group, copies_out), source)

    def add():
        x = torch.zeros(8)
        for _ in range(1000):
            x = x + 1

    assert min(_seconds(build) for _ in range(3)) < additions / 1000 * min(_seconds(add) for _ in range(5))


def _seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("family", FAMILIES)
def test_double_is_as_exact_as_built_in_float64(group, family):
    single = some_basis(group, family=family)
    weights = random_weights(single, torch.float64)
    assert single(weights.float()).dtype == torch.float32
    twin = copy.deepcopy(single).double()
    torch.set_default_dtype(torch.float64)
    try:
        exact = some_basis(group, family=family)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_close(twin(weights), exact(weights), rtol=0, atol=1e-12)
    assert_close(single(weights.float()).double(), exact(weights), rtol=0, atol=1e-5)
    assert_close(twin.float()(weights.float()), single(weights.float()), rtol=0, atol=0)


def test_basis_moves_copies_and_pickles(group):
    module = some_basis(group)
    weights = random_weights(module)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.deepcopy(module).to("cpu")):
        assert torch.equal(twin(weights), module(weights))
        assert twin.paths == module.paths
    assert module.to(torch.float64)(weights.double()).dtype == torch.float64
    assert module.to(torch.bfloat16)(weights.bfloat16()).dtype == torch.bfloat16
    assert module.to("meta")(weights.bfloat16().to("meta")).shape[0] == module.out_type.channels


def test_basis_at_points_pickles(group):
    source = RingsAtPoints(Rings(group, (1.0,)), torch.randn(5, group.dim))
    module = KernelBasis(FieldType(group, (1, 1)), FieldType(group, (1, 1)), source)
    twin = pickle.loads(pickle.dumps(module))
    weights = random_weights(module)
    assert torch.equal(twin(weights), module(weights))
    assert_close(twin.double()(weights.double()).float(), module(weights))


def test_basis_has_no_parameters_and_empty_state_dict(group):
    module = some_basis(group)
    assert not module.state_dict()
    assert not list(module.parameters())
    assert list(module.buffers())


def test_gradients_reach_every_weight(group, float64):
    module = some_basis(group)
    weights = random_weights(module).requires_grad_()
    module(weights).square().sum().backward()
    assert (weights.grad.abs() > 1e-6).all()


def test_paths_list_degrees_harmonics_and_profiles(group):
    module = some_basis(group, "1x0+1x1", "1x1")
    assert all(isinstance(path, KernelPath) and 1 - path.purity <= module.source.max_impurity for path in module.paths)
    for pair in ((1, 0), (1, 1)):
        paths = [path for path in module.paths if (path.degree_out, path.degree_in) == pair]
        expected = [
            (J, i) for J in group.harmonic_degrees(*pair) for i in range(len(module.source.functions(J).values))
        ]
        assert [(path.harmonic, path.profile) for path in paths] == expected
    assert str(len(module.paths)) in repr(module)


def test_pair_without_path_is_zero_and_has_no_weights(group):
    """On 3 voxels no kernel of harmonic 6 is pure enough to connect degrees 0 and 6."""
    scalars, mixed = FieldType(group, (1,)), FieldType(group, "1x0+1x6")
    source = VoxelKernels(group, (3,) * group.dim)
    module = KernelBasis(scalars, mixed, source)
    assert {path.degree_out for path in module.paths} == {0}
    assert module.num_weights == len(module.paths) == len(source.functions(0).values)
    kernel = mixed.split(module(random_weights(module)).transpose(0, 1))
    assert kernel[0].abs().max() > 0
    assert not kernel[1].any()


def test_basis_without_any_path_is_empty(group):
    module = KernelBasis(FieldType(group, "2x6"), FieldType(group, "3x0"), VoxelKernels(group, (3,) * group.dim))
    assert (module.num_weights, module.paths) == (0, ())
    kernel = module(torch.zeros(2, 0))
    assert kernel.shape == (module.out_type.channels, module.in_type.channels, *(3,) * group.dim)
    assert not kernel.any()


def test_mixed_groups_raise():
    images, volumes = FieldType(SO2, (1,)), FieldType(SO3, (1,))
    for in_type, out_type, size in ((images, volumes, (3, 3)), (volumes, volumes, (3, 3)), (images, images, (3, 3, 3))):
        with pytest.raises(ValueError, match="a kernel needs one group"):
            KernelBasis(in_type, out_type, VoxelKernels(SO2 if len(size) == 2 else SO3, size))


def test_weights_of_wrong_shape_raise(group):
    module = some_basis(group)
    with pytest.raises(ValueError, match=rf"takes weights of shape \(2, {module.num_weights}\), got \(1, 3\)"):
        module(torch.randn(1, 3))
