"""Logs: JSON without NaN, and TensorBoard files."""

import json
import re

import pytest

from steerformer.training.checkpointing import TrainingState
from steerformer.training.logs import Logs, ScalarWriter, columns


def test_nan_is_null_in_json(tmp_path):
    logs = Logs(tmp_path, first_step=0)
    row = dict.fromkeys(columns("accuracy"), float("nan")) | {"epoch": 1}
    logs.metrics(TrainingState(epoch=1, history=[row]), {"test_loss": float("inf")})
    logs.close()
    found = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert found["test_loss"] is None and found["history"][0]["train_loss"] is None


def test_tensorboard_file_does_not_name_the_machine(tmp_path, capfd, caplog):
    writer = ScalarWriter(tmp_path / "tensorboard")
    writer.write(1, {"loss": float("nan")})
    writer.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\.\d+", file.name)
    assert capfd.readouterr() == ("", "") and not caplog.records
