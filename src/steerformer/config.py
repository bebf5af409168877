"""Validated configurations: frozen values from YAML files and ``key=value`` words, and errors of one line."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails


class Config(BaseModel):
    """A frozen value whose fields are checked and whose unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that says which key, what it wants and what came."""


Parsed = TypeVar("Parsed")
_SHOWN = 3  # problems that are told; the rest are counted


def validate(kind: type[Parsed] | Any, values: Mapping[str, Any], *, where: str) -> Parsed:
    """``values`` as a configuration of ``kind`` (a :class:`Config` or a union of them), or a :class:`ConfigError`."""
    try:
        parsed: Parsed = TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems = list(dict.fromkeys(_sentence(problem, kind) for problem in error.errors(include_url=False)))
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ConfigError(f"{where}: {'; '.join(problems[:_SHOWN])}{more}.") from None
    return parsed


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping out of a YAML file; a :class:`ConfigError` that names the line where it is none."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line} is no YAML: {getattr(error, 'problem', None) or error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} should hold 'key: value' lines, got {type(values).__name__}.")
    return values


def write_yaml(config: Config) -> str:
    """The configuration as YAML text that :func:`read_yaml` and :func:`validate` read back."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)
    return text


def override(values: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """``values`` with ``training.epochs=3`` and the like applied; right sides are YAML.

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


def _sentence(problem: ErrorDetails, kind: Any) -> str:
    path, siblings = _place(kind, problem["loc"])
    place = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"there is no key {place!r} ({_advice(path[-1], siblings, kind)})"
    if problem["type"] == "missing":
        return f"{place!r} is missing"
    if problem["type"].startswith("union_tag"):
        context = problem.get("ctx", {})
        key = ".".join([*path, str(context.get("discriminator", "")).strip("'")])
        expected = f"one of {context['expected_tags']}, got {context['tag']!r}" if "tag" in context else "missing"
        return f"{key!r} is {expected}"
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{place!r}: {message[:1].lower()}{message[1:]}{got}" if place else f"{message}{got}"


def _place(kind: Any, location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The keys that lead to a problem, and the keys that stand beside the last of them.

    Of a union pydantic also names which of its kinds was tried; that is no key.
    """
    path: list[str] = []
    siblings: list[str] = []
    for i, part in enumerate(location):
        members = list(_members(kind))
        chosen = [member for member in members if part in _tags(member)] if len(members) > 1 else []
        if chosen:
            kind = chosen[0]
            continue
        fields = members[0].model_fields if members else {}
        if isinstance(part, int) or part in fields or (fields and i == len(location) - 1):
            path.append(str(part))
            siblings = list(fields)
            kind = fields[part].annotation if isinstance(part, str) and part in fields else None
    return path, siblings


def _advice(key: str, siblings: list[str], kind: Any) -> str:
    """What the user may have meant: a key of that name elsewhere, a similar one here, or one of all that are here."""
    elsewhere = [path for path in _paths(kind) if path.split(".")[-1] == key and "." in path]
    near = difflib.get_close_matches(key, siblings, n=1, cutoff=0.7)
    if near and near[0] != key:
        return f"did you mean {near[0]!r}?"
    return f"did you mean {elsewhere[0]!r}?" if elsewhere else f"known are {', '.join(siblings)}"


def _members(kind: Any) -> Iterator[type[BaseModel]]:
    """The configurations that a field may hold: one, or those of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    else:
        for inner in getattr(kind, "__args__", ()):
            yield from _members(inner)


def _tags(member: type[BaseModel]) -> list[str]:
    """Names by which a union tells its kinds apart: the only value that a field of theirs allows."""
    return [str(field.default) for name, field in member.model_fields.items() if name in ("kind", "name")]


def _paths(kind: Any, prefix: str = "") -> Iterator[str]:
    """All keys of a configuration and of those inside it, with dots."""
    for member in _members(kind):
        for name, field in member.model_fields.items():
            yield f"{prefix}{name}"
            yield from _paths(field.annotation, f"{prefix}{name}.")
