"""The training loop: epochs of steps, validation, checkpoints, and a final test."""

import math
import time
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader

from steerformer import models
from steerformer.data import Splits
from steerformer.io.atomic import write_atomic
from steerformer.models import Model
from steerformer.runs.config import ExperimentConfig
from steerformer.runs.run_folder import BEST, CASES, CHECKPOINT
from steerformer.runs.spacing_range import SpacingRange
from steerformer.training.checkpointing import (
    TrainingState,
    random_states,
    restore_random_states,
    save_checkpoint,
    seed_everything,
)
from steerformer.training.distributed import gather, on_first, total
from steerformer.training.learner import Learner
from steerformer.training.logs import Logs
from steerformer.training.optimizer import learning_rate
from steerformer.training.reporter import Reporter
from steerformer.training.sampler import BatchSampler, mixed_seed
from steerformer.training.signals import Interrupted, StopSignals
from steerformer.training.tasks import Task


class TrainingError(ValueError):
    """Training diverged; the message is one line."""


class TrainingLoop:
    """One run in one process; all processes together see each sample once per epoch."""

    def __init__(
        self, fabric: Fabric, experiment: ExperimentConfig, splits: Splits, model: Model, folder: Path, task: Task
    ) -> None:
        config = experiment.training
        self.task = task
        self.fabric, self.experiment, self.config, self.splits, self.folder = fabric, experiment, config, splits, folder
        self.batches = BatchSampler(
            len(splits.train),
            config.batch_size,
            seed=experiment.seed,
            processes=fabric.world_size,
            process=fabric.global_rank,
            accumulate=config.accumulate,
        )
        self.learner = Learner(fabric, model, config, task)
        self.state = TrainingState(score=task.score)
        self.reporter = Reporter()
        self.signals = StopSignals()
        self._saved = time.monotonic()
        self._clock = time.monotonic()
        self.logs: Logs | None = None
        seed_everything(mixed_seed(experiment.seed, fabric.global_rank))  # dropout differs between processes

    @property
    def total_step(self) -> int:
        """Finished steps of the whole run."""
        return self.state.epoch * self.batches.steps + self.state.step

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.learner.load_state_dict(checkpoint["learner"])
        self.state = TrainingState(**checkpoint["state"])
        states = checkpoint["random"]
        if len(states) == self.fabric.world_size:
            restore_random_states(states[self.fabric.global_rank])
        else:
            seed_everything(mixed_seed(self.experiment.seed, self.fabric.global_rank, self.total_step))

    def train(self) -> None:
        """Train until all epochs are done, or early stopping."""
        start = {"epochs": self.config.epochs, "steps": self.batches.steps, "done": self.total_step}
        self.reporter.start(**start, score=self.task.score)
        while self.state.epoch < self.config.epochs and not self._stops_early():
            self._train_epoch()
            self._close_epoch()
        if total(self.fabric, torch.tensor(float(self.signals.received))):
            raise Interrupted("stopped after the last epoch, before the test; the checkpoint is saved.")

    def test(self) -> dict[str, Any]:
        """Metrics of the best weights on the test set."""
        if not len(self.splits.test):
            return {}
        path = self.folder / BEST
        self.reporter.say(f"testing on {len(self.splits.test)} samples ...")
        weights = on_first(self.fabric, lambda: models.load(path).state_dict())
        self.learner.result.load_state_dict(weights)
        found = self.task.evaluate(self.fabric, self.learner.result, self.splits.test, final=True)
        if not math.isfinite(found.loss):
            raise _diverged(f"the test loss is {found.loss}")
        if found.table is not None:
            lines = found.table
            on_first(self.fabric, lambda: write_atomic(self.folder / CASES, lines))
        return {"test_loss": found.loss, f"test_{self.task.score}": found.score, **found.metrics}

    def write_metrics(self, final: dict[str, Any]) -> None:
        """Write all metrics so far, and the final ones."""
        if self.logs:
            self.logs.metrics(self.state, {**final, **self._about_data()})

    def _about_data(self) -> dict[str, Any]:
        """What prediction needs to know of the data."""
        spacing = SpacingRange.of_training(self.splits)
        return {"classes": list(self.splits.classes), **({"spacing": spacing.as_json()} if spacing else {})}

    def _train_epoch(self) -> None:
        state, config = self.state, self.config
        self.splits.train.set_epoch(state.epoch)
        self.batches.start(state.epoch, state.step)
        # its own generator: the loader would otherwise draw from the global random numbers at each start
        loader = DataLoader(
            self.splits.train,
            batch_sampler=self.batches,
            num_workers=config.workers,
            pin_memory=self.fabric.device.type == "cuda",
            generator=torch.Generator(),
        )
        parts = iter(loader)
        self.learner.module.train()
        while state.step < self.batches.steps:
            rate = learning_rate(config, self.total_step, self.batches.steps)
            taken = [tuple(self.fabric.to_device(next(parts))) for _ in range(config.accumulate)]
            loss, stop, save = self._synchronize(*self.learner.step(taken, rate))
            self._log_step(loss, rate)
            if stop or save:
                self._save()
            if stop:
                raise Interrupted(
                    f"stopped after step {state.step} of epoch {state.epoch + 1}; the checkpoint is saved."
                )

    def _synchronize(self, loss: float, counts: list[float]) -> tuple[float, bool, bool]:
        """Record the step over all processes: its mean loss, whether to stop, whether to save."""
        due = self.fabric.is_global_zero and time.monotonic() - self._saved > self.config.checkpoint_every
        numbers = torch.tensor([loss, self.signals.received, due, *counts], dtype=torch.float64)
        losses, stop, save, *counts = total(self.fabric, numbers).tolist()
        mean = losses / self.fabric.world_size
        if not math.isfinite(mean):
            state = self.state
            raise _diverged(f"the loss is {mean} at step {state.step + 1} of epoch {state.epoch + 1}")
        size = self.config.batch_size
        self.state.count(mean * size, counts, size)
        return mean, bool(stop), bool(save)

    def _log_step(self, loss: float, rate: float) -> None:
        state = self.state
        if self.total_step % self.config.log_every == 0:
            on_first(self.fabric, lambda: self._log_point(loss, rate))
        self.reporter.step(
            epoch=state.epoch + 1,
            step=state.step,
            loss=state.loss / state.samples,
            score=self.task.mean(state.counts),
        )

    def _log_point(self, loss: float, rate: float) -> None:
        if self.logs:
            self.logs.step(self.total_step, loss, rate)

    def _close_epoch(self) -> None:
        state, score = self.state, self.task.score
        self._require_finite_weights()
        row: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "train_loss": state.loss / state.samples,
            f"train_{score}": self.task.mean(state.counts),
            "validation_loss": None,
            f"validation_{score}": None,
            "learning_rate": learning_rate(self.config, self.total_step - 1, self.batches.steps),
        }
        if len(self.splits.validation) and self._is_validated(state.epoch + 1):
            found = self.task.evaluate(self.fabric, self.learner.result, self.splits.validation)
            row |= {"validation_loss": found.loss, f"validation_{score}": found.score}
            if not math.isfinite(found.loss):
                raise _diverged(f"the validation loss is {found.loss} after epoch {state.epoch + 1}")
        else:
            self._require_finite_logits()
        self._tick()
        best = state.close_epoch({**row, "seconds": round(state.seconds, 3)})
        on_first(self.fabric, lambda: self._write_epoch(best))
        self._save()
        self.reporter.epoch(state.history[-1], best=best)

    def _is_validated(self, epoch: int) -> bool:
        return epoch % self.config.validate_every == 0 or epoch == self.config.epochs

    def _write_epoch(self, best: bool) -> None:
        if best:
            models.save(cast(Model, self.learner.result), self.folder / BEST)
        if self.logs:
            self.logs.epoch(self.total_step, self.state.history[-1])
        self.write_metrics({})

    def _require_finite_weights(self) -> None:
        """The loss of a step is measured before its update, so the result of the last update is checked as well."""
        state = self.state
        if total(self.fabric, torch.tensor(float(not self.learner.is_finite()))):
            place = (
                f"after step {state.step} of epoch {state.epoch + 1}" if state.step else f"after epoch {state.epoch}"
            )
            raise _diverged(f"weights are no longer finite {place}")

    def _require_finite_logits(self) -> None:
        """Finite weights may still give infinite logits; without validation, a few samples are checked."""
        finite = self.task.has_finite_logits(self.learner.result, self.splits.train)
        if total(self.fabric, torch.tensor(float(not finite))):
            raise _diverged(f"logits are no longer finite after epoch {self.state.epoch + 1}")

    def _save(self) -> None:
        self._require_finite_weights()
        self._tick()
        random = gather(self.fabric, random_states())
        content = {
            "experiment": self.experiment.model_dump(mode="json"),
            "state": self.state.as_dict(),
            "learner": self.learner.state_dict(),
            "random": random,
        }
        on_first(self.fabric, lambda: save_checkpoint(self.folder / CHECKPOINT, content))
        self._saved = time.monotonic()

    def _tick(self) -> None:
        now = time.monotonic()
        self.state.seconds, self._clock = self.state.seconds + now - self._clock, now

    def _stops_early(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.state.epochs_without_progress() >= patience


def _diverged(what: str) -> TrainingError:
    return TrainingError(
        f"{what}; start a new run with a smaller training.learning_rate, training.clip=1 or training.precision=32, "
        "and another --name or --out; this folder is left unchanged."
    )
