"""Models by name and by configuration."""

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
    MonaiUNetConfig,
    UNetConfig,
)
from steerformer.models.monai import MonaiUNet
from steerformer.models.unet import UNet

Model = Classifier | CNN | UNet | MonaiUNet
_KINDS: dict[type[Any], Any] = {
    ClassifierConfig: Classifier,
    CNNConfig: CNN,
    UNetConfig: UNet,
    MonaiUNetConfig: MonaiUNet,
}


def build(model: str | Mapping[str, Any] | AnyModelConfig) -> Model:
    """A new model, from a preset's name, a configuration, or a mapping as it stands in a YAML file.

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
        raise TypeError(f"build takes a preset's name, a configuration or a mapping, got a {type(config).__name__}.")
    built: Model = kind(config)
    return built


def presets() -> tuple[str, ...]:
    """Names of all experiments that come with the library; ``build`` makes their models, ``train`` trains them."""
    return tuple(sorted(_texts()))


def preset(name: str) -> dict[str, Any]:
    """The experiment of this name: its ``model``, ``data`` and ``training``, as in its YAML file."""
    if name not in _texts():
        near = difflib.get_close_matches(name, presets(), n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no preset {name!r}{hint}; models.presets() lists all.")
    experiment: dict[str, Any] = yaml.safe_load(_texts()[name])
    return experiment


@lru_cache
def _texts() -> dict[str, str]:
    folder = files("steerformer") / "configs"
    found = (file for file in folder.iterdir() if file.name.endswith(".yaml"))
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in found}
