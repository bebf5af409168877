"""``steerformer train``."""

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from steerformer.cli.console import console, fail


def train(
    config: Annotated[
        str | None, typer.Argument(help="A preset's name, a YAML file, or the folder of a run to resume.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, such as training.epochs=3.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; runs/NAME if not given.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; that of the config if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped or killed.")] = False,
    list_presets: Annotated[bool, typer.Option("--list", help="Show all presets and stop.")] = False,
    list_keys: Annotated[bool, typer.Option("--keys", help="Show all keys, with defaults, and stop.")] = False,
) -> None:
    """Train a classifier or a segmentation and test it.

    Experiments that come with the program are shown by:
    steerformer train --list

    Take one by its name, and change what you like:
    steerformer train NAME data.root=FOLDER training.epochs=5

    All keys, with their defaults and what they mean:
    steerformer train --keys

    The folder runs/NAME then holds the model (best.safetensors), its
    figures (metrics.csv, metrics.json, tensorboard), its configuration
    (config.yaml) and the checkpoint (last.ckpt). For an experiment of
    your own, copy and change config.yaml:
    steerformer train mine.yaml

    Ctrl-C saves and stops. This goes on as if nothing had happened:
    steerformer train runs/NAME --resume

    On four GPUs, and likewise on many machines:
    torchrun --nproc-per-node 4 -m steerformer train NAME
    """
    if list_presets:
        console.print(_presets())
        return
    if list_keys:
        console.print(_keys())
        return
    if config is None:
        fail("which experiment? Give a preset's name or a YAML file; 'steerformer train --list' shows all presets.")
    _train(config, changes or [], out=out or _folder(config, name, resume=resume), resume=resume)


def _train(config: str, changes: list[str], *, out: Path, resume: bool) -> None:
    from steerformer.train import ConsoleReporter, Interrupted, load_experiment, run
    from steerformer.train.environment import is_first_process
    from steerformer.train.memory import keep_freed_memory

    keep_freed_memory()
    if not is_first_process():
        console.quiet = True  # one process speaks for all
    try:
        experiment = load_experiment(config, changes)
        _say(f"training {config}: {out}")
        run(experiment, out, resume=resume, reporter=ConsoleReporter(console))
    except Interrupted as stopped:
        _say(f"{stopped}\nGo on with: steerformer train {out} --resume")
        raise typer.Exit(130) from None
    except (OSError, ValueError) as error:
        _fail(error, out)
    _say_what_next(out)


def _fail(error: OSError | ValueError, out: Path) -> NoReturn:
    if console.quiet:
        raise typer.Exit(2)
    if isinstance(error, OSError):
        fail(f"cannot read or write {error.filename or out}: {error.strerror or error}.")
    fail(str(error))


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _folder(config: str, name: str | None, *, resume: bool) -> Path:
    """Where the run goes: the folder itself if a run is named, else runs/NAME."""
    path = Path(config)
    if name is None and resume and path.is_dir():
        return path
    return Path("runs") / (name or path.resolve().name.removesuffix(".yaml").removesuffix(".yml"))


def _say_what_next(out: Path) -> None:
    figures = json.loads((out / "metrics.json").read_text())
    for score in ("accuracy", "dice"):
        if f"test_{score}" in figures:
            _say(f"test {score} {figures[f'test_{score}']:.2%}, with the weights of epoch {figures['best_epoch']}")
    _say(f"run folder {out}; go on with")
    for command, meaning in _next(out, segments="train_dice" in figures["history"][-1]):
        _say(f"  steerformer {command:{len(str(out)) + 33}} {meaning}")


def _next(out: Path, *, segments: bool) -> list[tuple[str, str]]:
    if segments:
        return [
            (f"evaluate {out} data.test_rotation=any", "Dice and HD95 on turned cases"),
            (f"check {out}", "is it equivariant?"),
            (f"predict {out} FILES... --out FOLDER", "label maps of new files"),
        ]
    return [
        (f"evaluate {out} --rotations 8", "accuracy, averaged over turned copies"),
        (f"check {out}", "is it equivariant?"),
        (f"predict {out} FILES...", "classes of new files"),
    ]


def _presets() -> Table:
    from steerformer import models

    table = Table("preset", "model", "data", "epochs", title="steerformer train PRESET")
    for name in models.presets():
        values = models.preset(name)
        model, data, training = (values.get(key, {}) for key in ("model", "data", "training"))
        kind = f"{model.get('kind', 'classifier')} {model.get('group', '')}"
        table.add_row(name, kind, str(data.get("name", "")), str(training.get("epochs", "")))
    return table


def _keys() -> Table:
    from steerformer.train.keys import describe_keys

    table = Table("key", "default", "meaning", title="steerformer train PRESET KEY=VALUE")
    for key in describe_keys():
        if not key.default:
            table.add_section()
        table.add_row(*map(escape, key), style="" if key.default else "bold")
    return table
