"""Every key of an experiment with its default and its documentation, for ``steerformer train --keys``."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from steerformer.runs.config import ExperimentConfig


class Key(NamedTuple):
    """One line of the table."""

    name: str
    default: str
    meaning: str


def describe_keys(config: type[BaseModel] = ExperimentConfig, place: str = "") -> Iterator[Key]:
    """Keys as on the command line; the kinds of models and data sets follow one another."""
    for name, field in config.model_fields.items():
        inner = _configs(field.annotation)
        if not inner:
            yield Key(f"{place}{name}", _default(field), _plain(field.description))
        for kind in inner:
            yield Key(f"{place}{name}", "", _about(kind, field.discriminator))
            yield from describe_keys(kind, f"{place}{name}.")


def _configs(annotation: Any) -> list[type[BaseModel]]:
    """The configuration class of a field, or all classes of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in getattr(annotation, "__args__", ()) for kind in _configs(part)]


def _about(kind: type[BaseModel], tag: Any) -> str:
    """The docstring; for a member of a union, after the key that selects it, such as ``kind: cnn``."""
    words = _plain(kind.__doc__)
    return f"{tag}: {kind.model_fields[tag].default}. {words}" if isinstance(tag, str) else words


def _plain(text: str | None) -> str:
    """One line without the double backticks of reStructuredText."""
    return " ".join((text or "").replace("``", "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return json.dumps(field.default).strip('"')  # JSON is YAML
