"""Networks for classification and segmentation, built from configurations."""

from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.config import ClassifierConfig, CNNConfig, ModelConfig, MonaiUNetConfig, UNetConfig
from steerformer.models.files import load, save
from steerformer.models.monai import MonaiUNet
from steerformer.models.registry import Model, build, preset, presets
from steerformer.models.summary import Summary, summary
from steerformer.models.unet import UNet

__all__ = [
    "CNN",
    "CNNConfig",
    "Classifier",
    "ClassifierConfig",
    "Model",
    "ModelConfig",
    "MonaiUNet",
    "MonaiUNetConfig",
    "Summary",
    "UNet",
    "UNetConfig",
    "build",
    "load",
    "preset",
    "presets",
    "save",
    "summary",
]
