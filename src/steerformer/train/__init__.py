"""Training, checkpoints and runs."""

from pathlib import Path

from steerformer.train.checkpoint import CheckpointError
from steerformer.train.config import ExperimentConfig, TrainingConfig, load_experiment
from steerformer.train.folder import Run, open_run
from steerformer.train.progress import ConsoleReporter, Reporter
from steerformer.train.stopping import Interrupted

__all__ = [
    "CheckpointError",
    "ConsoleReporter",
    "ExperimentConfig",
    "Interrupted",
    "Reporter",
    "Run",
    "TrainingConfig",
    "load_experiment",
    "open_run",
    "run",
]


def run(experiment: ExperimentConfig, folder: Path, *, resume: bool = False, reporter: Reporter | None = None) -> Path:
    """Train as ``experiment`` says, and test; everything is written into ``folder``, which is returned.

    Args:
        folder: new, or with ``resume`` the folder of a run that was stopped or killed. It goes on from its last
            checkpoint, and on CPUs ends with the same bits as if nothing had happened.
        reporter: hears how it goes, such as :class:`ConsoleReporter`.

    Raises ``ValueError`` (``ConfigError``, ``DataError``, ``CheckpointError``, ``TrainingError``) or ``OSError``, of
    one line, where that cannot be done, and :class:`Interrupted` where Ctrl-C or SIGTERM has stopped it.
    """
    from steerformer.train import runs  # Fabric takes two seconds to import: only those who train pay

    return runs.run(experiment, folder, resume=resume, reporter=reporter)
