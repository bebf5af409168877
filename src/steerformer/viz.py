"""Figures of layers and fields: kernels, attention, features, and equivariance errors.

``import steerformer`` does not import this module, and so not matplotlib: ``sf.viz`` imports it when it is used. Each
function returns a matplotlib ``Figure``; ``figure.savefig("field.png")`` writes it.
"""

from steerformer.plots.angle_errors import equivariance_figure as equivariance
from steerformer.plots.attention_panels import attention_figure as attention
from steerformer.plots.field_panels import field_figure as field
from steerformer.plots.layer_kernels import kernels_figure as kernels

__all__ = ["attention", "equivariance", "field", "kernels"]
