"""What a trained model does under rotations: its logits, its layers, its accuracy, its attention."""

from steerformer.audit.angles import accuracy_by_angle
from steerformer.audit.attention import received_attention
from steerformer.audit.averaging import averaged_probabilities
from steerformer.audit.check import Check, check_model, scene_errors
from steerformer.audit.evaluation import Evaluation, judge, standard_error
from steerformer.audit.layers import LayerError, layer_errors
from steerformer.audit.logits import LogitChange, logit_change
from steerformer.audit.rotations import equally_spaced, random_rotations, sweep_axes
from steerformer.audit.samples import interpolation, some_cases, some_samples, upright
from steerformer.audit.segmentation import SegmentationCheck, check_segmentation
from steerformer.audit.sweep import Case, Scores, Sweep, sweep

__all__ = [
    "Case",
    "Check",
    "Evaluation",
    "LayerError",
    "LogitChange",
    "Scores",
    "SegmentationCheck",
    "Sweep",
    "accuracy_by_angle",
    "averaged_probabilities",
    "check_model",
    "check_segmentation",
    "equally_spaced",
    "interpolation",
    "judge",
    "layer_errors",
    "logit_change",
    "random_rotations",
    "received_attention",
    "scene_errors",
    "some_cases",
    "some_samples",
    "standard_error",
    "sweep",
    "sweep_axes",
    "upright",
]
