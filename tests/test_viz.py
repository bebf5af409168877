"""The module ``sf.viz``: imported when it is used."""

import inspect
import subprocess
import sys

import pytest

import steerformer as sf

LATE = """
import sys
import steerformer as sf
assert "viz" in sf.__all__
assert not {"matplotlib", "steerformer.viz"} & set(sys.modules)
sf.viz.field
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules  # it would choose a backend
from steerformer import viz
assert viz is sf.viz
"""


@pytest.mark.slow
def test_matplotlib_is_imported_when_viz_is_used():
    subprocess.run([sys.executable, "-c", LATE], check=True)


def test_functions_have_an_example_and_document_their_arguments():
    for name in sf.viz.__all__:
        function = getattr(sf.viz, name)
        assert f">>> figure = sf.viz.{name}(" in function.__doc__
        for argument in inspect.signature(function).parameters:
            assert f"{argument}:" in function.__doc__ or f"{argument}," in function.__doc__


def test_unknown_attributes_raise():
    with pytest.raises(AttributeError, match="module 'steerformer' has no attribute 'plot'"):
        sf.plot  # noqa: B018


def test_nothing_to_draw_is_rejected():
    features = sf.FieldType(sf.SO2, (2, 2))
    with pytest.raises(ValueError, match="at least 1 head, got heads=0"):
        sf.viz.attention(sf.nn.Attention(features, num_heads=2), features.randn(1, 5), heads=0)
    with pytest.raises(ValueError, match="at least 1 copy, got copies=0"):
        sf.viz.field(features.randn(1, 5), features, copies=0)


def test_kernels_of_half_precision_are_drawn():
    layer = sf.nn.Conv(sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, (1, 1)), kernel_size=3).bfloat16()
    assert sf.viz.kernels(layer).axes
