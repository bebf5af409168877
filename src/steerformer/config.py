"""Validated configurations from YAML files and ``key=value`` overrides, with one-line errors."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails


class Config(BaseModel):
    """Base class of configurations: immutable and validated; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class ConfigError(ValueError):
    """An invalid configuration; the message is one line with the key, what it expects and what it got."""


Parsed = TypeVar("Parsed")
_SHOWN = 3  # problems listed in a message; the others are only counted
_NOW_CALLED = "it is now called"
_RENAMED = {
    "normalise": "normalize",
    "scale": "normalize (none or std)",
    "patch": "patch_size",
    "outside": "padding_label",
    "rotate_train": "train_rotation (none or any)",
    "rotate_test": "test_rotation (none or any)",
    "profiles": "kernel_family",
    "norms": "norm_after",
    "head_size": "head_kernel_size",
    "checkpoint": "activation_checkpointing",
    "tolerance": "max_impurity",
}
"""Keys of earlier versions and their current names."""


def validate(kind: type[Parsed] | Any, values: Mapping[str, Any], *, where: str) -> Parsed:
    """``values`` as a configuration of ``kind`` (a :class:`Config` or a union of them), or a :class:`ConfigError`."""
    try:
        parsed: Parsed = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems = list(dict.fromkeys(_explain(problem, kind) for problem in error.errors(include_url=False)))
        renamed = [problem for problem in problems if _NOW_CALLED in problem]  # all are listed: each has to be changed
        others = [problem for problem in problems if _NOW_CALLED not in problem]
        more = f"; and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        raise ConfigError(f"{where}: {'; '.join([*renamed, *others[:_SHOWN]])}{more}.") from None
    return parsed


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file; a :class:`ConfigError` names the line that is not valid YAML."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} should hold 'key: value' lines, got {type(values).__name__}.")
    return values


def write_yaml(config: Config) -> str:
    """The configuration as YAML text that :func:`read_yaml` and :func:`validate` read back."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)
    return text


def override(values: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """Apply overrides such as ``training.epochs=3`` to ``values``; right-hand sides are YAML.

    >>> override({"training": {"epochs": 9}}, ["training.epochs=3", "data.root=/tmp"])
    {'training': {'epochs': 3}, 'data': {'root': '/tmp'}}
    """
    changed = _copy(values)
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not all(path.split(".")):
            raise ConfigError(f"expected key=value, such as training.epochs=3, got {word!r}.")
        *parents, last = path.split(".")
        inner = changed
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{path} does not exist: {parent} is a value and has no keys below it.")
        try:
            inner[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigError(
                f"cannot read the value of {word!r}; write numbers, words, true, false or [lists]."
            ) from None
    return changed


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _explain(problem: ErrorDetails, kind: Any) -> str:
    path, siblings = _locate(kind, problem["loc"])
    key_path = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"there is no key {key_path!r} ({_advice(path[-1], siblings, kind)})"
    if problem["type"] == "missing":
        return f"{key_path!r} is missing"
    if problem["type"].startswith("union_tag"):
        context = problem.get("ctx", {})
        key = ".".join([*path, str(context.get("discriminator", "")).strip("'")])
        expected = f"one of {context['expected_tags']}, got {context['tag']!r}" if "tag" in context else "missing"
        return f"{key!r} is {expected}"
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{key_path!r}: {message[:1].lower()}{message[1:]}{got}" if key_path else f"{message}{got}"


def _locate(kind: Any, location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The keys that lead to a problem, and all keys on the level of the last one.

    Pydantic's location also names the member of a union that it tried, which is not a key.
    """
    path: list[str] = []
    siblings: list[str] = []
    for i, part in enumerate(location):
        candidates = list(_members(kind))
        selected = [member for member in candidates if part in _tags(member)] if len(candidates) > 1 else []
        if selected:
            kind = selected[0]
            continue
        fields = candidates[0].model_fields if candidates else {}
        if isinstance(part, int) or part in fields or (fields and i == len(location) - 1):
            path.append(str(part))
            siblings = list(fields)
            kind = fields[part].annotation if isinstance(part, str) and part in fields else None
    return path, siblings


def _advice(key: str, siblings: list[str], kind: Any) -> str:
    """What the user may have meant: the key's new name, a similar key, the same key elsewhere, or all keys here."""
    if key in _RENAMED and _RENAMED[key].split()[0] in siblings:
        return f"{_NOW_CALLED} {_RENAMED[key]}"
    elsewhere = [path for path in _paths(kind) if path.split(".")[-1] == key and "." in path]
    near = difflib.get_close_matches(key, siblings, n=1, cutoff=0.7)
    if near and near[0] != key:
        return f"did you mean {near[0]!r}?"
    return f"did you mean {elsewhere[0]!r}?" if elsewhere else f"known keys: {', '.join(siblings)}"


def _members(kind: Any) -> Iterator[type[BaseModel]]:
    """The configuration classes that a field accepts: one, or the candidates of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    else:
        for inner in getattr(kind, "__args__", ()):
            yield from _members(inner)


def _tags(member: type[BaseModel]) -> list[str]:
    """Values of the discriminator that select this member of a union."""
    return [str(field.default) for name, field in member.model_fields.items() if name in ("kind", "name")]


def _paths(kind: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration and of nested ones, joined by dots."""
    for member in _members(kind):
        for name, field in member.model_fields.items():
            yield f"{prefix}{name}"
            yield from _paths(field.annotation, f"{prefix}{name}.")
