"""Build models from presets and configurations."""

import difflib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from steerformer.config import ConfigError, validate
from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.config import (
    AnyModelConfig,
    ClassifierConfig,
    CNNConfig,
    ModelConfig,
    UNetConfig,
)
from steerformer.models.monai_config import MonaiUNetConfig
from steerformer.models.monai_unet import MonaiUNet
from steerformer.models.unet import UNet

Model = Classifier | CNN | UNet | MonaiUNet
_KINDS: dict[type[Any], Any] = {
    ClassifierConfig: Classifier,
    CNNConfig: CNN,
    UNetConfig: UNet,
    MonaiUNetConfig: MonaiUNet,
}


def build(model: str | Mapping[str, Any] | AnyModelConfig) -> Model:
    """Build a model from the name of a preset, a configuration, or a mapping as in a YAML file.

    >>> from steerformer import models
    >>> net = models.build({"kind": "classifier", "group": "SO2", "size": 12, "widths": [[2, 2], [4]], "classes": 3})
    >>> net.out_type
    FieldType(SO2, '3xreal')
    """
    if isinstance(model, str):
        model = preset(model)["model"]
    config = validate(ModelConfig, model, where="model") if isinstance(model, Mapping) else model
    kind = _KINDS.get(type(config))
    if kind is None:
        raise TypeError(f"build takes the name of a preset, a configuration or a mapping, got {type(config).__name__}.")
    built: Model = kind(config)
    return built


def presets() -> tuple[str, ...]:
    """Names of all presets: :func:`build` builds their models, ``sf.train`` trains them."""
    return tuple(sorted(_texts()))


def preset(name: str) -> dict[str, Any]:
    """The preset of this name: ``model``, ``data`` and ``training``, as in its YAML file."""
    if name not in _texts():
        raise ConfigError(f"there is no preset {name!r}{preset_hint(name)}; models.presets() lists all.")
    experiment: dict[str, Any] = yaml.safe_load(_texts()[name])
    return experiment


def preset_hint(name: str) -> str:
    """``; did you mean ...?`` with the preset of the most similar name, or an empty string."""
    near = difflib.get_close_matches(name, presets(), n=1, cutoff=0.3)
    return f"; did you mean {near[0]!r}?" if near else ""


@lru_cache
def _texts() -> dict[str, str]:
    folder = files("steerformer") / "configs"
    found = (file for file in folder.iterdir() if file.name.endswith(".yaml"))
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in found}
