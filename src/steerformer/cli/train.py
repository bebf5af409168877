"""``steerformer train``."""

from pathlib import Path
from typing import Annotated

import typer
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
) -> None:
    """Train a classifier and test it.

    'steerformer train --list' shows the experiments that come with the program; take one by its name:

    'steerformer train rotmnist-transformer-k4-cpu data.root=mnist training.epochs=5'

    The folder runs/NAME then holds the model (best.safetensors), its figures (metrics.csv, metrics.json, tensorboard/),
    the configuration (config.yaml) and the checkpoint (last.ckpt). Copy config.yaml and change it to make an experiment
    of your own: 'steerformer train mine.yaml'.

    Ctrl-C saves and stops; 'steerformer train runs/NAME --resume' goes on as if nothing had happened.

    On many GPUs or machines: 'torchrun --nproc-per-node 4 -m steerformer train ...'.
    """
    if list_presets:
        console.print(_presets())
        return
    if config is None:
        fail("which experiment? Give a preset's name or a YAML file; 'steerformer train --list' shows all presets.")
    _train(config, changes or [], out=out or _folder(config, name, resume=resume), resume=resume)


def _train(config: str, changes: list[str], *, out: Path, resume: bool) -> None:
    from steerformer.train import ConsoleReporter, Interrupted, Reporter, load_experiment, run
    from steerformer.train.devices import is_first_process

    first = is_first_process()
    try:
        experiment = load_experiment(config, changes)
        if first:
            console.print(f"training {config}: {out}", highlight=False, markup=False, soft_wrap=True)
        run(experiment, out, resume=resume, reporter=ConsoleReporter(console) if first else Reporter())
    except Interrupted as stopped:
        if first:
            console.print(f"{stopped}\nGo on with: steerformer train {out} --resume", highlight=False, markup=False)
        raise typer.Exit(130) from None
    except OSError as error:
        message = f"cannot read or write {error.filename or out}: {error.strerror or error}."
        fail(message) if first else _exit()
    except ValueError as error:
        fail(str(error)) if first else _exit()
    if first:
        _say_what_next(out)


def _exit() -> None:
    raise typer.Exit(2)


def _folder(config: str, name: str | None, *, resume: bool) -> Path:
    """Where the run goes: the folder itself if a run is named, else runs/NAME."""
    path = Path(config)
    if name is None and resume and path.is_dir():
        return path
    return Path("runs") / (name or path.name.removesuffix(".yaml").removesuffix(".yml"))


def _say_what_next(out: Path) -> None:
    import json

    figures = json.loads((out / "metrics.json").read_text())
    if "test_accuracy" in figures:
        console.print(
            f"test accuracy {figures['test_accuracy']:.2%}, best epoch {figures['best_epoch']}", highlight=False
        )
    lines = [
        f"run folder {out}",
        f"  steerformer evaluate {out} --rotations 8   accuracy, averaged over turned copies",
        f"  steerformer check {out}                    is it equivariant?",
        f"  steerformer predict {out} FILES...         classes of new files",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _presets() -> Table:
    from steerformer import models

    table = Table("preset", "model", "data", "epochs", title="steerformer train PRESET")
    for name in models.presets():
        values = models.preset(name)
        model, data, training = (values.get(key, {}) for key in ("model", "data", "training"))
        kind = f"{model.get('kind', 'classifier')} {model.get('group', '')}"
        table.add_row(name, kind, str(data.get("name", "")), str(training.get("epochs", "")))
    return table
