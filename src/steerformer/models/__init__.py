"""Networks for classification, built from configurations."""

from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.config import ClassifierConfig, CNNConfig, ModelConfig
from steerformer.models.files import load, save
from steerformer.models.registry import Model, build, preset, presets
from steerformer.models.summary import Summary, summary

__all__ = [
    "CNN",
    "CNNConfig",
    "Classifier",
    "ClassifierConfig",
    "Model",
    "ModelConfig",
    "Summary",
    "build",
    "load",
    "preset",
    "presets",
    "save",
    "summary",
]
