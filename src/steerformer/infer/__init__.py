"""Inference: predictions for arrays and files, of any size, within a memory limit; evaluation of trained models."""

from steerformer.infer.memory import free_memory, parse_bytes
from steerformer.infer.segmentation import Segmentation, segment
from steerformer.infer.window_memory import WindowMemory
from steerformer.infer.windows import predict_labels, predict_logits

__all__ = [
    "Segmentation",
    "WindowMemory",
    "free_memory",
    "parse_bytes",
    "predict_labels",
    "predict_logits",
    "segment",
]
