"""Segmenting new images and volumes, of any size, within a budget of memory."""

from steerformer.infer.appetite import Appetite
from steerformer.infer.memory import free_memory, parse_bytes
from steerformer.infer.scans import Segmented, segment
from steerformer.infer.windows import predict_labels, predict_logits

__all__ = ["Appetite", "Segmented", "free_memory", "parse_bytes", "predict_labels", "predict_logits", "segment"]
