"""torch.compile makes one graph of all layers, and that graph does the same.

Compiled in a process of its own, as users do: the type checks of the tests are no part of the graph.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import copy, sys
import torch
from torch.testing import assert_close
import steerformer as sf
sys.path.insert(0, sys.argv[1])
from nn.layers import image, in_space, small_net

group, backend, mode = getattr(sf, sys.argv[2]), sys.argv[3], sys.argv[4]
torch.manual_seed(0)
if backend == "inductor":  # its C++ takes minutes for all layers
    fields = sf.FieldType(group, (1, 1))
    layers = [sf.nn.Conv(image(group), fields, kernel_size=3), sf.nn.NormReLU(fields, bias=-0.1)]
    size = 6
else:
    size, layers = 8, [layer for layer in small_net(group) if not isinstance(layer, sf.nn.FieldDropout)]
net = torch.nn.Sequential(*layers).train(mode == "train")
twin = copy.deepcopy(net)
x = image(group).randn(2, in_space(group, size)).requires_grad_()
y = x.detach().clone().requires_grad_()
found, expected = torch.compile(net, fullgraph=True, backend=backend)(x), twin(y)
assert_close(found, expected, rtol=1e-4, atol=1e-5)
found.square().mean().backward()
expected.square().mean().backward()
assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-5)
for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
    assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
assert_close(net.state_dict(), twin.state_dict(), rtol=1e-4, atol=1e-5)
"""


ATTENTION = """
import copy, sys
import torch
from torch.testing import assert_close
import steerformer as sf
group, implementation = getattr(sf, sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
fields = sf.FieldType(group, (2, 2))
net = sf.nn.Encoder(fields, num_heads=2, implementation=implementation)
twin = copy.deepcopy(net)
compiled = torch.compile(net, fullgraph=True, backend="eager")
for size in (3, 4, 5):  # the second makes torch take sizes as unknown
    x = fields.randn(2, size).requires_grad_()
    y = x.detach().clone().requires_grad_()
    found, expected = compiled(x), twin(y)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)
for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
    assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)
"""


def compiled(*arguments, script=SCRIPT):
    tests = str(Path(__file__).parents[1])
    run = subprocess.run([sys.executable, "-c", script, tests, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize(("name", "backend"), [("SO2", "aot_eager"), ("SO3", "eager")])
def test_all_layers_are_one_graph(name, backend):
    """With aot_eager torch also writes the graph of the backward pass itself."""
    compiled(name, backend, "train")


@pytest.mark.parametrize(("name", "implementation"), [("SO2", "blockwise"), ("SO3", "dense")])
def test_attention_is_one_graph_for_grids_of_all_sizes(name, implementation):
    compiled(name, implementation, script=ATTENTION)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")
def test_compiled_to_machine_code_it_does_the_same():
    compiled("SO2", "inductor", "eval")
