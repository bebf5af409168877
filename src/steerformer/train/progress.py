"""What a run shows while it runs: a bar on a terminal, a line an epoch elsewhere."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_NOTHING_YET: dict[str, Any] = {"epoch": 0, "epochs": 0, "step": 0, "steps": 0, "loss": 0.0, "name": "", "score": 0.0}


class Reporter:
    """Hears how a run goes, and says nothing."""

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def prepare(self, what: str, done: int, total: int) -> None:
        """Data are being prepared: what is done, and how much of it."""

    def start(self, *, epochs: int, steps: int, done: int, score: str) -> None:
        """``steps`` an epoch, ``done`` of all are behind us; ``score`` is called accuracy or dice."""

    def step(self, *, epoch: int, step: int, loss: float, score: float) -> None:
        """One step is done; running means of the epoch at hand."""

    def epoch(self, row: dict[str, Any], *, best: bool) -> None:
        """An epoch is done, with these figures."""

    def say(self, text: str) -> None:
        """Anything else worth a line."""


class ConsoleReporter(Reporter):
    """A progress bar over the whole run on a terminal, and one line for each epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs = self._steps = 0
        self._prepared = self._score = ""
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
        self._task = self._bar.add_task("", total=None, **_NOTHING_YET)

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def prepare(self, what: str, done: int, total: int) -> None:
        if what != self._prepared:
            self._prepared = what
            self.say(f"{what} ...")

    def start(self, *, epochs: int, steps: int, done: int, score: str) -> None:
        self._epochs, self._steps, self._score = epochs, steps, score
        fields = _NOTHING_YET | {"epochs": epochs, "steps": steps, "name": score}
        # not an update, from which the bar would take the steps of an earlier start for very quick ones
        self._bar.reset(self._task, total=epochs * steps, completed=done, **fields)

    def step(self, *, epoch: int, step: int, loss: float, score: float) -> None:
        done = (epoch - 1) * self._steps + step
        self._bar.update(self._task, completed=done, epoch=epoch, step=step, loss=loss, score=score)

    def epoch(self, row: dict[str, Any], *, best: bool) -> None:
        validation = ""
        if row["validation_loss"] is not None:
            validation = f"  validation: {self._figures(row, 'validation')}"
            validation += " *" if best else ""
        train = self._figures(row, "train")
        minutes = f"{row['seconds'] / 60:.1f} min"
        self.say(f"epoch {row['epoch']:>{len(str(self._epochs))}}/{self._epochs}  {train}{validation}  {minutes}")

    def _figures(self, row: dict[str, Any], split: str) -> str:
        return f"loss {row[f'{split}_loss']:.4f}, {self._score} {row[f'{split}_{self._score}']:.2%}"

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
