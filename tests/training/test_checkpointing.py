"""Checkpoints: random states, the training state, and files that are rejected."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from steerformer.training.checkpointing import (
    FORMAT,
    CheckpointError,
    TrainingState,
    load_checkpoint,
    random_states,
    restore_random_states,
    save_checkpoint,
    seed_everything,
)


def draw():
    return random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item()


def test_random_states_survive_a_checkpoint(tmp_path):
    seed_everything(7)
    np.random.randn()  # leaves a spare normal number behind, which is part of the state
    save_checkpoint(tmp_path / "x.ckpt", {"random": random_states()})
    expected = draw()
    assert draw() != expected
    restore_random_states(load_checkpoint(tmp_path / "x.ckpt")["random"])
    assert draw() == expected


def test_checkpoint_of_another_format_is_rejected(tmp_path):
    torch.save({"format": FORMAT - 1}, tmp_path / "x.ckpt")
    with pytest.raises(CheckpointError, match=r"x\.ckpt is not a checkpoint of this version of steerformer"):
        load_checkpoint(tmp_path / "x.ckpt")


def test_checkpoint_that_would_execute_code_is_rejected(tmp_path):
    torch.save({"format": FORMAT, "evil": Path("x")}, tmp_path / "x.ckpt")
    with pytest.raises(CheckpointError, match=r"x\.ckpt is damaged or not a checkpoint"):
        load_checkpoint(tmp_path / "x.ckpt")


def test_score_of_zero_is_better_than_no_score():
    state = TrainingState(score="dice")
    rows = [
        {"epoch": 1, "validation_dice": None},
        {"epoch": 2, "validation_dice": 0.0, "validation_loss": 9.0},
        {"epoch": 3, "validation_dice": None},
    ]
    assert [state.close_epoch(row) for row in rows] == [True, True, False]
