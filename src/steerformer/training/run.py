"""One training run: data, model and loop, from a configuration to a run folder."""

from pathlib import Path
from typing import Any

import torch

from steerformer import data, models
from steerformer.models.summary import count
from steerformer.runs.compatibility import require_compatible, spacing_warning
from steerformer.runs.config import ExperimentConfig
from steerformer.runs.run_folder import CHECKPOINT, METRICS
from steerformer.training.checkpointing import CheckpointError, seed_everything
from steerformer.training.distributed import first_then_others, make_fabric, on_first
from steerformer.training.logs import Logs
from steerformer.training.loop import TrainingLoop
from steerformer.training.reporter import Reporter
from steerformer.training.resume import read_resumable, start_folder
from steerformer.training.tasks import make_task


def run_training(
    experiment: ExperimentConfig, folder: Path, *, resume: bool = False, reporter: Reporter | None = None
) -> Path:
    """See :func:`steerformer.training.train_run`."""
    folder = Path(folder)
    fabric = make_fabric(experiment.training)
    fabric.launch()
    if experiment.training.threads:
        torch.set_num_threads(experiment.training.threads)
    checkpoint = on_first(fabric, lambda: read_resumable(folder, experiment, resume=resume))
    reporter = reporter if reporter and fabric.is_global_zero else Reporter()
    splits = first_then_others(fabric, lambda: data.load(experiment.data, reporter.preprocess))
    splits.train.passes = experiment.training.passes
    seed_everything(experiment.seed)
    model = models.build(experiment.model)
    require_compatible(model, splits, experiment)
    if warning := spacing_warning(splits, experiment):
        reporter.say(warning)
    loop = TrainingLoop(fabric, experiment, splits, model, folder, make_task(experiment, splits.classes))
    if checkpoint:
        _restore(loop, checkpoint)
    on_first(fabric, lambda: start_folder(folder, experiment))
    loop.reporter = reporter
    try:
        on_first(fabric, lambda: _open_logs(loop))
        _train_and_test(loop)
    finally:
        if loop.logs:
            loop.logs.close()
    return folder


def _restore(loop: TrainingLoop, checkpoint: dict[str, Any]) -> None:
    try:
        loop.restore(checkpoint)
    except (RuntimeError, ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{loop.folder / CHECKPOINT} belongs to another model; delete it to restart the run."
        ) from None


def _open_logs(loop: TrainingLoop) -> None:
    """The first process writes logs from the start, so that an unfinished folder has the names of the classes."""
    loop.logs = Logs(loop.folder, first_step=loop.total_step, score=loop.task.score)
    if not (loop.folder / METRICS).exists():
        loop.write_metrics({})


def _train_and_test(loop: TrainingLoop) -> None:
    with loop.reporter:
        with loop.signals:
            loop.train()
        final = loop.test()
    parameters, complex_parameters = count(loop.learner.model)
    sizes = {"parameters": parameters, "complex_parameters": complex_parameters}
    loop.state.finished = True
    on_first(loop.fabric, lambda: loop.write_metrics({**final, **sizes}))
