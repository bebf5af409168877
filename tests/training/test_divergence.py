"""Training that diverges ends with one line, and never overwrites a file with it."""

import json

import pytest
import torch

from steerformer.training import Reporter, train_run
from steerformer.training.loop import TrainingError, TrainingLoop
from training.tiny import experiment, files_in

pytestmark = pytest.mark.usefixtures("unchecked")


class ChangeWeights(Reporter):
    """Calls ``change`` with the learner after step ``at``, as if an update had overflowed."""

    def __init__(self, monkeypatch, at, change):
        self.at, self.change, self.steps, self.loops = at, change, 0, []
        train = TrainingLoop.train
        monkeypatch.setattr(TrainingLoop, "train", lambda loop: (self.loops.append(loop), train(loop))[1])

    def step(self, **_):
        self.steps += 1
        if self.steps == self.at:
            self.change(self.loops[0].learner)


def set_nan(model):
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = float("nan")


@pytest.mark.parametrize("part", ["model", "result"], ids=["weights", "EMA"])
@pytest.mark.parametrize(("step", "place"), [(6, "step 3 of epoch 2"), (5, "step 2 of epoch 2")])
def test_nan_weights_are_never_saved(tmp_path, monkeypatch, part, step, place):
    """After the last step of an epoch, and within an epoch, where every step writes a checkpoint."""
    before = {}

    def change(learner):
        set_nan(getattr(learner, part))
        before.update(files_in(tmp_path / "run"))

    with pytest.raises(TrainingError, match=f"weights are no longer finite after {place}; start a new run") as caught:
        train_run(
            experiment(epochs=2, checkpoint_every=60.0 if step == 6 else 1e-9),
            tmp_path / "run",
            reporter=ChangeWeights(monkeypatch, step, change),
        )
    assert "\n" not in str(caught.value)
    assert {"best.safetensors", "last.ckpt"} < before.keys()
    assert files_in(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("validation", "message"), [(30, "the validation loss is nan after epoch 1"), (0, "logits are no longer finite")]
)
def test_weights_with_infinite_logits_are_never_saved(tmp_path, monkeypatch, validation, message):
    def change(learner):
        for parameter in learner.model.parameters():
            parameter.data.fill_(3e38)

    last_step = 3 if validation else 4
    with pytest.raises(TrainingError, match=message):
        train_run(
            experiment(data={"validation": validation}, epochs=1, ema=None),
            tmp_path / "run",
            reporter=ChangeWeights(monkeypatch, last_step, change),
        )
    assert not (tmp_path / "run" / "best.safetensors").exists() and not (tmp_path / "run" / "last.ckpt").exists()
    assert not json.loads((tmp_path / "run" / "metrics.json").read_text())["finished"]
