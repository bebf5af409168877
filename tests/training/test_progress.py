"""Progress of training on the console."""

import io
import re

import pytest
from rich.console import Console

from steerformer.cli.training_progress import ConsoleReporter

ROW = {"epoch": 2, "train_loss": 0.5, "train_accuracy": 0.75, "validation_loss": 0.25, "validation_accuracy": 0.875}


def shown(*, terminal, row, best=True, score="accuracy"):
    text = io.StringIO()
    reporter = ConsoleReporter(Console(file=text, force_terminal=terminal, width=80, color_system=None))
    with reporter:
        reporter.preprocess("rotating digits", 0, 2)
        reporter.preprocess("rotating digits", 1, 2)
        reporter.start(epochs=10, steps=100, done=100, score=score)
        reporter.step(epoch=2, step=100, loss=0.5, score=0.75)
        reporter.epoch({**row, "learning_rate": 0.1, "seconds": 90.0}, best=best)
        reporter._bar.refresh()
    return text.getvalue()


def test_file_gets_one_line_per_epoch():
    assert shown(terminal=False, row=ROW) == (
        "rotating digits ...\n"
        "epoch  2/10  loss 0.5000, accuracy 75.00%  validation: loss 0.2500, accuracy 87.50% *  1.5 min\n"
    )


def test_segmentation_shows_dice():
    row = {key.replace("accuracy", "dice"): value for key, value in ROW.items()}
    assert "loss 0.5000, dice 75.00%  validation: loss 0.2500, dice 87.50% *" in shown(
        terminal=False, row=row, score="dice"
    )


def test_line_without_validation_is_shorter():
    row = {**ROW, "validation_loss": None, "validation_accuracy": None}
    assert "epoch  2/10  loss 0.5000, accuracy 75.00%  1.5 min\n" in shown(terminal=False, row=row)


@pytest.mark.parametrize("field", ["epoch 2/10", "step 100/100", "loss 0.500", "accuracy 75.0%", "left"])
def test_terminal_gets_a_bar_of_one_line(field):
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(terminal=True, row=ROW))
    bars = [line for line in re.split(r"[\r\n]", text) if "step 100/100" in line]
    assert bars and field in bars[-1] and len(bars[-1]) <= 80
