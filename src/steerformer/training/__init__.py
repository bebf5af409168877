"""Training: exactly resumable, on one or many devices."""

from pathlib import Path

from steerformer.runs.config import ExperimentConfig
from steerformer.training.checkpointing import CheckpointError
from steerformer.training.reporter import Reporter
from steerformer.training.signals import Interrupted

__all__ = ["CheckpointError", "Interrupted", "Reporter", "train_run"]


def train_run(
    experiment: ExperimentConfig, folder: Path, *, resume: bool = False, reporter: Reporter | None = None
) -> Path:
    """Train and test a model, and write everything into ``folder``, which is returned.

    Args:
        experiment: model, data, training and seed.
        folder: a new folder, or with ``resume`` the folder of an interrupted run. Training continues from its last
            checkpoint; on CPUs the result is bit-identical to that of an uninterrupted run.
        resume: continue an interrupted run.
        reporter: receives the progress.

    Raises ``ValueError`` (``ConfigError``, ``DataError``, ``CheckpointError``, ``TrainingError``) or ``OSError`` with a
    one-line message, and :class:`Interrupted` if Ctrl-C or SIGTERM stopped the run.
    """
    from steerformer.training import run  # deferred: importing Fabric takes two seconds

    return run.run_training(experiment, folder, resume=resume, reporter=reporter)
