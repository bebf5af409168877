"""Train a model and fill a run folder, or go on with one."""

from pathlib import Path
from typing import Any

import torch

from steerformer import data, models
from steerformer.train.checkpoint import CheckpointError, seed_everything
from steerformer.train.config import ExperimentConfig
from steerformer.train.devices import first_then_others, make_fabric, on_first
from steerformer.train.folder import CHECKPOINT, METRICS, read_resumable, start_folder
from steerformer.train.logs import Logs
from steerformer.train.loop import Loop
from steerformer.train.progress import Reporter
from steerformer.train.tasks import make_task, require_fit, voxel_note


def run(experiment: ExperimentConfig, folder: Path, *, resume: bool = False, reporter: Reporter | None = None) -> Path:
    """See :func:`steerformer.train.run`."""
    folder = Path(folder)
    fabric = make_fabric(experiment.training)
    fabric.launch()
    if experiment.training.threads:
        torch.set_num_threads(experiment.training.threads)
    checkpoint = on_first(fabric, lambda: read_resumable(folder, experiment, resume=resume))
    reporter = reporter if reporter and fabric.is_global_zero else Reporter()
    hear = reporter.prepare
    splits = first_then_others(fabric, lambda: data.load(experiment.data, hear))
    seed_everything(experiment.seed)
    model = models.build(experiment.model)
    require_fit(model, splits, experiment)
    if note := voxel_note(splits, experiment):
        reporter.say(note)
    loop = Loop(fabric, experiment, splits, model, folder, make_task(experiment, splits.classes))
    if checkpoint:
        _restore(loop, checkpoint)
    on_first(fabric, lambda: start_folder(folder, experiment))
    loop.reporter = reporter
    try:
        on_first(fabric, lambda: _open_logs(loop))
        _train_and_test(loop, models.summary(model))
    finally:
        if loop.logs:
            loop.logs.close()
    return folder


def _restore(loop: Loop, checkpoint: dict[str, Any]) -> None:
    try:
        loop.restore(checkpoint)
    except (RuntimeError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{loop.folder / CHECKPOINT} does not fit this model: it is of another one.") from None


def _open_logs(loop: Loop) -> None:
    """The first process writes them, from the start on: who opens a folder finds the names of the classes."""
    loop.logs = Logs(loop.folder, first_step=loop.total_step, score=loop.task.score)
    if not (loop.folder / METRICS).exists():
        loop.write_metrics({})


def _train_and_test(loop: Loop, summary: models.Summary) -> None:
    with loop.reporter:
        with loop.signals:
            loop.train()
        final = loop.test()
    counts = {"parameters": summary.parameters, "complex_parameters": summary.complex_parameters}
    loop.state.finished = True
    on_first(loop.fabric, lambda: loop.write_metrics({**final, **counts}))
