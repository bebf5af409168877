"""``steerformer train``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from steerformer.cli.console import console, fail, one_line_errors, say

if TYPE_CHECKING:
    from steerformer import api


def train(
    config: Annotated[
        str | None,
        typer.Argument(metavar="CONFIG", help="A preset's name, a YAML file, or the folder of a run to resume."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides, such as training.epochs=3.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; runs/NAME by default.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; that of the config by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")] = False,
    list_presets: Annotated[bool, typer.Option("--list", help="Show all presets and stop.")] = False,
    list_keys: Annotated[bool, typer.Option("--keys", help="Show all keys, with defaults, and stop.")] = False,
) -> None:
    """Train a classifier or a segmentation model and test it.

    Experiments that come with the program:
    steerformer train --list

    Train one by its name, with changes:
    steerformer train NAME data.root=FOLDER training.epochs=5

    All keys, with their defaults and documentation:
    steerformer train --keys

    The folder runs/NAME then holds the model (best.safetensors), its
    metrics (metrics.csv, metrics.json, tensorboard), its configuration
    (config.yaml) and the checkpoint (last.ckpt). For your own
    experiment, copy and change config.yaml:
    steerformer train mine.yaml

    Ctrl-C saves and stops. This continues as if uninterrupted:
    steerformer train runs/NAME --resume

    On four GPUs, and likewise on many machines:
    torchrun --nproc-per-node 4 -m steerformer train NAME
    """
    if list_presets:
        console.print(_presets_table())
        return
    if list_keys:
        console.print(_keys_table())
        return
    if config is None:
        fail("no experiment; name a preset or a YAML file. 'steerformer train --list' shows all presets.")
    _train(config, overrides or [], out, name, resume=resume)


def _train(config: str, overrides: list[str], out: Path | None, name: str | None, *, resume: bool) -> None:
    from steerformer import api
    from steerformer.cli.training_progress import ConsoleReporter
    from steerformer.training import Interrupted
    from steerformer.training.allocator import keep_freed_memory
    from steerformer.training.environment import is_first_process

    keep_freed_memory()
    console.quiet = not is_first_process()  # one process prints for all
    folder = api.run_folder(config, out, name=name, resume=resume)
    try:
        with one_line_errors(folder), _silent_in_other_processes():
            experiment = api.resolve_config(config, overrides)
            say(f"training {config}: {folder}")
            run = api.train(experiment, out=folder, resume=resume, reporter=ConsoleReporter(console))
    except Interrupted as stopped:
        say(f"{stopped}\nContinue with: steerformer train {folder} --resume")
        raise typer.Exit(130) from None
    _say_what_next(run)


@contextmanager
def _silent_in_other_processes() -> Iterator[None]:
    """Report an error once: processes other than the first end without a message."""
    try:
        yield
    except (OSError, ValueError):
        if console.quiet:
            raise typer.Exit(2) from None
        raise


def _say_what_next(run: "api.Run") -> None:
    metrics = json.loads((run.folder / "metrics.json").read_text())
    for score in ("accuracy", "dice"):
        if f"test_{score}" in metrics:
            say(f"test {score} {metrics[f'test_{score}']:.2%}, with the weights of epoch {metrics['best_epoch']}")
    say(f"run folder {run.folder}; continue with")
    for command, meaning in _next_commands(run.folder, segmentation=run.is_segmentation):
        say(f"  steerformer {command:{len(str(run.folder)) + 33}} {meaning}")


def _next_commands(folder: Path, *, segmentation: bool) -> list[tuple[str, str]]:
    if segmentation:
        return [
            (f"evaluate {folder} data.test_rotation=any", "Dice and HD95 on rotated cases"),
            (f"check {folder}", "is it equivariant?"),
            (f"predict {folder} FILES... --out FOLDER", "label maps of new files"),
        ]
    return [
        (f"evaluate {folder} --rotations 8", "accuracy, averaged over rotated copies"),
        (f"check {folder}", "is it equivariant?"),
        (f"predict {folder} FILES...", "classes of new files"),
    ]


def _presets_table() -> Table:
    from steerformer import models

    table = Table("preset", "model", "data", "epochs", title="steerformer train PRESET")
    for name in models.presets():
        values = models.preset(name)
        model, data, training = (values.get(key, {}) for key in ("model", "data", "training"))
        kind = f"{model.get('kind', 'classifier')} {model.get('group', '')}"
        table.add_row(name, kind, str(data.get("name", "")), str(training.get("epochs", "")))
    return table


def _keys_table() -> Table:
    from steerformer.runs.config_keys import describe_keys

    table = Table("key", "default", "meaning", title="steerformer train PRESET KEY=VALUE")
    for key in describe_keys():
        if not key.default:
            table.add_section()
        table.add_row(*map(escape, key), style="" if key.default else "bold")
    return table
