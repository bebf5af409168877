"""Progress of training: a bar on a terminal, one line per epoch elsewhere."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from steerformer.training import Reporter

_INITIAL_FIELDS: dict[str, Any] = {
    "epoch": 0,
    "epochs": 0,
    "step": 0,
    "steps": 0,
    "loss": 0.0,
    "name": "",
    "score": 0.0,
}


class ConsoleReporter(Reporter):
    """A progress bar over the whole training run on a terminal, and one line per epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs = self._steps = 0
        self._stage = self._score = ""
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(bar_width=None),
            TextColumn("step {task.fields[step]}/{task.fields[steps]}  loss {task.fields[loss]:.3f}"),
            TextColumn("{task.fields[name]} {task.fields[score]:.1%}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
            speed_estimate_period=300,
        )
        self._task = self._bar.add_task("", total=None, **_INITIAL_FIELDS)

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def preprocess(self, what: str, done: int, total: int) -> None:
        if what != self._stage:
            self._stage = what
            self.say(f"{what} ...")

    def start(self, *, epochs: int, steps: int, done: int, score: str) -> None:
        self._epochs, self._steps, self._score = epochs, steps, score
        fields = _INITIAL_FIELDS | {"epochs": epochs, "steps": steps, "name": score}
        # not an update: the bar would count the steps of an earlier start as very fast ones
        self._bar.reset(self._task, total=epochs * steps, completed=done, **fields)

    def step(self, *, epoch: int, step: int, loss: float, score: float) -> None:
        done = (epoch - 1) * self._steps + step
        self._bar.update(self._task, completed=done, epoch=epoch, step=step, loss=loss, score=score)

    def epoch(self, row: dict[str, Any], *, best: bool) -> None:
        validation = ""
        if row["validation_loss"] is not None:
            validation = f"  validation: {self._metrics(row, 'validation')}"
            validation += " *" if best else ""
        train = self._metrics(row, "train")
        minutes = f"{row['seconds'] / 60:.1f} min"
        self.say(f"epoch {row['epoch']:>{len(str(self._epochs))}}/{self._epochs}  {train}{validation}  {minutes}")

    def _metrics(self, row: dict[str, Any], split: str) -> str:
        return f"loss {row[f'{split}_loss']:.4f}, {self._score} {row[f'{split}_{self._score}']:.2%}"

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class BarReporter(ConsoleReporter):
    """The progress bar alone, for several trainings one after the other."""

    def epoch(self, row: dict[str, Any], *, best: bool) -> None:
        """Nothing: the bar says it."""

    def say(self, text: str) -> None:
        """Nothing."""
