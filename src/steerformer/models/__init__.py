"""Networks for classification and segmentation, built from configurations."""

from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.config import ClassifierConfig, CNNConfig, ModelConfig, UNetConfig
from steerformer.models.degree_parameters import parameters_per_degree
from steerformer.models.eval_mode import eval_mode
from steerformer.models.monai_config import MonaiUNetConfig
from steerformer.models.monai_unet import MonaiUNet
from steerformer.models.registry import Model, build, preset, preset_hint, presets
from steerformer.models.serialization import load, save
from steerformer.models.summary import ModelSummary, summary
from steerformer.models.unet import UNet

__all__ = [
    "CNN",
    "CNNConfig",
    "Classifier",
    "ClassifierConfig",
    "Model",
    "ModelConfig",
    "ModelSummary",
    "MonaiUNet",
    "MonaiUNetConfig",
    "UNet",
    "UNetConfig",
    "build",
    "eval_mode",
    "load",
    "parameters_per_degree",
    "preset",
    "preset_hint",
    "presets",
    "save",
    "summary",
]
