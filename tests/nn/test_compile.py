"""torch.compile captures all layers in one graph with the same output and gradients.

Compiled in a separate process, so that the runtime type checks of the tests are not part of the graph.
"""

import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

COMPARISON = """
import copy
import torch
from torch.testing import assert_close
import steerformer as sf
torch.manual_seed(0)

def assert_same(net, sizes, backend):
    torch._dynamo.reset()
    in_type, twin = getattr(net, "in_type", None) or net[0].in_type, copy.deepcopy(net)
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    for size in sizes:
        x = in_type.randn(2, size).requires_grad_()
        y = x.detach().clone().requires_grad_()
        found, expected = compiled(x), twin(y)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        found.square().mean().backward()
        expected.square().mean().backward()
        assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
    assert_close(net.state_dict(), twin.state_dict(), rtol=1e-4, atol=1e-5)
"""
LAYERS = """
for group, backend in ((sf.SO2, "aot_eager"), (sf.SO3, "eager")):
    image, fields = sf.FieldType.image(group, 2), sf.FieldType(group, (1, 1))
    net = torch.nn.Sequential(
        sf.nn.Conv(image, fields, kernel_size=3),
        sf.nn.BatchNorm(fields),
        sf.nn.NormReLU(fields, bias=-0.1),
        sf.nn.AvgPool(fields, kernel_size=2),
        sf.nn.Gated(fields),
        sf.nn.LayerNorm(fields),
        sf.nn.FourierReLU(fields),
        sf.nn.Resample(fields, scale=2.0),
        sf.nn.AvgPool(fields, kernel_size=2, antialiased=True),
        sf.nn.TensorProduct(fields, fields),
        sf.nn.Linear(fields, fields),
        sf.nn.Conv(fields, fields, kernel_size=2, padding=0, max_impurity=1.0),
        sf.nn.Invariants(fields),
        torch.nn.Flatten(),
        torch.nn.Linear(2, 3),
    )
    assert_same(net.train(), [4], backend)
"""
ATTENTION = """
sizes = (3, 4, 5)  # the second size makes torch treat sizes as dynamic
encoder = sf.nn.Encoder(sf.FieldType(sf.SO2, (1, 1)), num_heads=1, implementation="blockwise")
assert_same(encoder, sizes, "eager")
attention = sf.nn.Attention(sf.FieldType(sf.SO3, (2, 2)), num_heads=2, implementation="dense")
assert_same(attention, sizes, "eager")
"""
INDUCTOR = """
image, fields = sf.FieldType.image(sf.SO2, 2), sf.FieldType(sf.SO2, (1, 1))
net = torch.nn.Sequential(sf.nn.Conv(image, fields, kernel_size=3), sf.nn.NormReLU(fields, bias=-0.1))
assert_same(net.eval(), [6], "inductor")
"""


def run(script):
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # more would start processes of their own
    command = [sys.executable, "-c", COMPARISON + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_all_layers_compile_to_one_graph():
    """In 2D aot_eager also traces the backward pass."""
    run(LAYERS)


def test_attention_compiles_to_one_graph_for_all_grid_sizes():
    run(ATTENTION)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")
def test_inductor_gives_the_same_output():
    """Two layers: the C++ of all layers takes minutes."""
    run(INDUCTOR)
