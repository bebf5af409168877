"""Equivariance audits of trained models: logits, layers, accuracy and Dice under rotations, attention maps."""

from steerformer.audit.attention_maps import attention_maps, received_attention
from steerformer.audit.budget import DegreeBudget, LayerBudget, error_budget
from steerformer.audit.check import (
    ClassifierCheck,
    SegmentationCheck,
    check_classifier,
    check_segmentation,
    scene_budget,
)
from steerformer.audit.layers import LayerError, layer_errors
from steerformer.audit.logits import LogitChange, logit_change
from steerformer.audit.rotations import random_rotations, sweep_axes
from steerformer.audit.samples import some_cases, some_samples, upright
from steerformer.audit.sweeps import DiceSweep, SweepScores, accuracy_by_angle, dice_sweep

__all__ = [
    "ClassifierCheck",
    "DegreeBudget",
    "DiceSweep",
    "LayerBudget",
    "LayerError",
    "LogitChange",
    "SegmentationCheck",
    "SweepScores",
    "accuracy_by_angle",
    "attention_maps",
    "check_classifier",
    "check_segmentation",
    "dice_sweep",
    "error_budget",
    "layer_errors",
    "logit_change",
    "random_rotations",
    "received_attention",
    "scene_budget",
    "some_cases",
    "some_samples",
    "sweep_axes",
    "upright",
]
