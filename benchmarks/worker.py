"""Training steps of one network in a process of its own, one for each line that the process reads.

The process imports the package from a given source tree, so that versions can be compared: what this file imports must
exist in all of them.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

import steerformer
from measure import peak_memory
from steerformer.api import resolve_config
from steerformer.infer.memory import measure_peak, resident
from steerformer.models import build
from steerformer.runs.compatibility import is_segmentation
from steerformer.training.allocator import keep_freed_memory
from steerformer.training.checkpointing import seed_everything
from steerformer.training.distributed import make_fabric
from steerformer.training.learner import Learner
from steerformer.training.optimizer import learning_rate
from steerformer.training.tasks import make_task

STEPS_PER_EPOCH = 100
"""For the schedule of the learning rate."""


class Worker:
    """A process that trains; use it in a ``with`` statement.

    Args:
        source: folder that holds the package.
        experiment: name of a preset, or a mapping as in its YAML file.
        batch: batch size.
        space: voxels along each axis.
        threads: CPU threads of the process.
        overrides: changes of the experiment, such as ``training.precision=64``.
    """

    def __init__(
        self,
        source: Path,
        experiment: str | dict[str, Any],
        *,
        batch: int,
        space: tuple[int, ...],
        threads: int,
        overrides: tuple[str, ...] = (),
    ) -> None:
        self.source = source.resolve()
        self.task = {"experiment": experiment, "overrides": overrides, "batch": batch, "space": space}
        self.threads = threads

    def __enter__(self) -> "Worker":
        environment = os.environ | {"PYTHONPATH": str(self.source), "OMP_NUM_THREADS": str(self.threads)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        imported = Path(self._ask(json.dumps(self.task | {"threads": self.threads}))["package"])
        if not imported.is_relative_to(self.source):
            self._end()
            raise RuntimeError(f"the process imported {imported} instead of the package in {self.source}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.kill()
        self._end()

    def step(self) -> dict[str, float]:
        """See :meth:`Trainer.step`."""
        return self._ask("step")

    def allocated_peak(self) -> dict[str, float]:
        """See :meth:`Trainer.allocated_peak`."""
        return self._ask("allocated_peak")

    def process_peak(self) -> dict[str, float]:
        """See :meth:`Trainer.process_peak`."""
        return self._ask("process_peak")

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # the process ended, and has no answer
            print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self._end()
            raise RuntimeError(f"the process that trains {self.task['experiment']} ended; its error is above.")
        return json.loads(answer)

    def _end(self) -> None:
        self.process.communicate()  # the end of its input ends the process


class Trainer:
    """Training steps as ``steerformer train`` takes them, each on its own batch of noise, the same in every version."""

    def __init__(
        self, experiment: str | dict[str, Any], *, overrides: list[str], batch: int, space: list[int], threads: int
    ) -> None:
        torch.set_num_threads(threads)
        keep_freed_memory()
        config = resolve_config(experiment, overrides)
        if config.training.precision == "64":
            torch.set_default_dtype(torch.float64)  # else Fabric rounds the logits to float32
        self.model, self.training = config.model, config.training
        self.batch, self.space, self.steps = batch, space, 0
        fabric = make_fabric(config.training)
        fabric.launch()
        seed_everything(0)
        task = make_task(config, tuple(map(str, range(config.model.classes))))
        self.learner = Learner(fabric, build(config.model), config.training, task)
        self.learner.module.train()
        seed_everything(0)  # dropout does not depend on how many numbers the initialization draws

    def step(self) -> dict[str, float]:
        """One step: seconds, and the loss before the update."""
        return self._step(self._batch())

    def allocated_peak(self) -> dict[str, float]:
        """One step, and the peak of the bytes that torch allocates in it."""
        batch = self._batch()
        return {"bytes": peak_memory(lambda: self._step(batch))}

    def process_peak(self) -> dict[str, float]:
        """One step, and memory of the process: bytes ``taken`` beyond those before the step, and its ``peak``."""
        batch, found = self._batch(), {}
        before = resident()
        taken = measure_peak(lambda: found.update(self._step(batch)))
        if taken is None:
            raise SystemExit("the peak memory of a step can be measured on Linux only.")
        return found | {"taken": taken, "peak": before + taken}

    def _step(self, batch: tuple[Tensor, Tensor]) -> dict[str, float]:
        rate = learning_rate(self.training, self.steps, STEPS_PER_EPOCH)
        start = time.perf_counter()
        loss, _ = self.learner.step([batch], rate)
        seconds = time.perf_counter() - start
        self.steps += 1
        return {"seconds": seconds, "loss": loss}

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Noise, and random labels: one for each sample or one for each voxel."""
        generator = torch.Generator().manual_seed(self.steps)
        x = torch.randn(self.batch, self.model.in_channels, *self.space, generator=generator)
        labeled = (self.batch, *self.space) if is_segmentation(self.model) else (self.batch,)
        return x, torch.randint(self.model.classes, labeled, generator=generator)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not an answer
    trainer = Trainer(**json.loads(sys.stdin.readline()))
    print(json.dumps({"package": steerformer.__file__}), file=answers, flush=True)
    commands = {call.__name__: call for call in (trainer.step, trainer.allocated_peak, trainer.process_peak)}
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), file=answers, flush=True)


if __name__ == "__main__":
    main()
