"""Save and load a model with its configuration as one safetensors file, which cannot hold code."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from steerformer.io.atomic import write_atomic
from steerformer.models.registry import Model, build

_KEY = "steerformer.model"


def save(model: Model, path: Path | str) -> None:
    """Save weights and configuration to a safetensors file, atomically."""
    if not isinstance(model, Model):
        raise TypeError(f"save takes a model made by models.build, got {type(model).__name__}.")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomic(Path(path), serialize(tensors, metadata={_KEY: model.config.model_dump_json()}))


def load(path: Path | str) -> Model:
    """Load a model that :func:`save` wrote, in eval mode, on the CPU.

    Raises a one-line ``ValueError`` for a truncated file, another kind of file or weights of another architecture.
    """
    config, tensors = _read(Path(path))
    try:
        model = build(json.loads(config))
    except ValueError as error:
        raise ValueError(f"{path} was saved by another version of steerformer: {error}") from None
    first = next(iter(tensors.values()))
    model.to(first.dtype)
    load_weights(model, tensors, where=str(path))
    return model.eval()


def load_weights(model: Model, tensors: dict[str, Tensor], *, where: str) -> None:
    """Load weights into a model; one-line ``ValueError`` if they belong to another architecture."""
    own = model.state_dict()
    wrong = [name for name in own if name in tensors and own[name].shape != tensors[name].shape]
    missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if wrong or missing or unknown:
        details = [
            *(
                f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(own[name].shape)}"
                for name in wrong[:1]
            ),
            *(f"{name} is missing" for name in missing[:1]),
            *(f"{name} is unknown" for name in unknown[:1]),
        ]
        count = len(wrong) + len(missing) + len(unknown)
        raise ValueError(f"{where} holds weights of another architecture, {count} do not match: {'; '.join(details)}.")
    model.load_state_dict(tensors)


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    if not path.is_file():
        raise ValueError(f"there is no file {path}; expected one written by save.")
    try:
        with safe_open(path, framework="pt") as file:
            config = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file; it may be truncated: {error}.") from None
    if config is None or not tensors:
        raise ValueError(f"{path} is a safetensors file, but not one written by steerformer: it has no configuration.")
    return config, tensors
