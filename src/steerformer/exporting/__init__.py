"""Models as files that run without steerformer: ONNX, torch.export programs and TorchScript."""

from steerformer.exporting.description import describe_run, file_size
from steerformer.exporting.exporter import ExportedFile, export
from steerformer.exporting.plain import plain_module

__all__ = ["ExportedFile", "describe_run", "export", "file_size", "plain_module"]
