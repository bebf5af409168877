"""Docstrings of layers: arguments, shapes, an example, and a docstring of ``forward``."""

import inspect
import re

import pytest
from torch import nn

import steerformer as sf


def section(doc, title):
    """The indented text below ``title:``, or an empty string."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", doc + "\n", re.MULTILINE)
    return found[1] if found else ""


def documented(doc):
    """Names in the ``Args`` section; one line may document several."""
    lines = re.findall(r"^    ([\w, ]+): ", section(doc, "Args"), re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def missing_parts(layer):
    """What the docstrings of a layer lack."""
    doc, forward = inspect.cleandoc(layer.__doc__ or ""), inspect.cleandoc(layer.forward.__doc__ or "")
    parameters = set(inspect.signature(layer).parameters)
    options = list(inspect.signature(layer.forward).parameters)[2:]  # without self and the input
    shape = section(doc, "Shape")
    missing = [f"Args: {name}" for name in sorted(parameters - documented(doc))]
    missing += [f"Shape: {name}" for name in ("Input", "Output") if f"- {name}: " not in shape]
    missing += [] if ">>> " in doc else ["example"]
    missing += [] if forward else ["forward"]
    return missing + [f"forward Args: {name}" for name in options if name not in documented(forward)]


@pytest.mark.parametrize("name", sf.nn.__all__)
def test_layer_docstrings_are_complete(name):
    assert missing_parts(getattr(sf.nn, name)) == []


class Undocumented(nn.Module):
    """A layer."""

    def __init__(self, field_type, *, bias=0.0):
        super().__init__()

    def forward(self, x, mask=None):
        return x


class Partial(nn.Module):
    """A layer.

    Args:
        field_type: type of input and output.

    Shape:
        - Input: $(N, C)$.

    >>> 1 + 1
    2
    """

    def __init__(self, field_type, *, bias=0.0):
        super().__init__()

    def forward(self, x):
        """Return the input."""
        return x


class WithoutArguments(nn.Module):
    """A layer.

    Shape:
        - Input: $(N, C)$.
        - Output: $(N, C)$.

    >>> 1 + 1
    2
    """

    def __init__(self):
        super().__init__()

    def forward(self, x):
        """Return the input."""
        return x


def test_missing_parts_are_reported():
    """Negative control."""
    everything = ["Args: bias", "Args: field_type", "Shape: Input", "Shape: Output", "example", "forward"]
    assert missing_parts(Undocumented) == [*everything, "forward Args: mask"]
    assert missing_parts(Partial) == ["Args: bias", "Shape: Output"]
    assert missing_parts(WithoutArguments) == []
