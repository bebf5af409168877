"""``steerformer train``: what it prints, and one line and exit code 2 for every mistake."""

import os
import signal
from pathlib import Path

import pytest
import torch

from steerformer import load, save
from steerformer.training import Reporter
from steerformer.training.checkpointing import FORMAT, load_checkpoint
from training.command import error_line, train
from training.tiny import DATA, files_in

pytestmark = pytest.mark.usefixtures("unchecked")


def test_finished_run_names_the_next_commands(file, tmp_path):
    result = train(file, "--out", tmp_path / "run", "training.epochs=2")
    assert result.exit_code == 0, result.output
    assert "epoch 2/2" in result.output and "test accuracy" in result.output
    for word in ("evaluate", "check", "predict"):
        assert f"steerformer {word} {tmp_path / 'run'}" in result.output


def test_list_has_every_preset():
    result = train("--list")
    assert result.exit_code == 0 and "rotmnist-transformer-k4" in result.output


def test_keys_are_listed():
    result = train("--keys")
    assert result.exit_code == 0 and "training.batch_size" in result.output


def test_data_folder_is_not_an_experiment(tmp_path):
    assert f"{tmp_path} is a folder without a run" in error_line(tmp_path)
    assert "is a folder without a run" in error_line("")


def test_missing_config_is_explained():
    assert "--list" in error_line()


def test_errors_in_configs_are_named(file, tmp_path):
    assert "did you mean" in error_line("rotmnist-transfomer-k4-cpu")
    assert "learning_rate" in error_line(file, "training.learnin_rate=3")
    assert "no such file" in error_line(tmp_path / "missing.yaml").lower()
    (tmp_path / "bad.yaml").write_text("model: [")
    assert "bad.yaml, line" in error_line(tmp_path / "bad.yaml")
    assert "there is no folder" in error_line(file, "data.root=nowhere", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_existing_run_is_never_overwritten(copy, file):
    before = files_in(copy)
    assert "already holds a run" in error_line(file, "--out", copy)
    assert files_in(copy) == before


def test_resume_needs_a_run(file, tmp_path):
    assert "there is no run in" in error_line(file, "--out", tmp_path / "run", "--resume")


def test_truncated_checkpoint_is_named(copy):
    content = (copy / "last.ckpt").read_bytes()
    (copy / "last.ckpt").write_bytes(content[: len(content) // 2])
    assert "last.ckpt is damaged" in error_line(copy, "--resume")


def test_file_that_is_not_a_checkpoint_is_named(copy):
    torch.save({"weights": torch.ones(1)}, copy / "last.ckpt")
    assert "not a checkpoint of this version" in error_line(copy, "--resume")


def test_checkpoint_that_would_execute_code_is_rejected(copy):
    torch.save({"format": FORMAT, "evil": Path("x")}, copy / "last.ckpt")
    assert "damaged or not a checkpoint" in error_line(copy, "--resume")


def test_checkpoint_of_another_model_is_rejected(copy):
    assert "model.hidden was 8, now 9" in error_line(copy, "model.hidden=9", "--resume")
    content = load_checkpoint(copy / "last.ckpt")
    content["learner"]["model"].popitem()
    torch.save(content, copy / "last.ckpt")
    assert "last.ckpt belongs to another model" in error_line(copy, "--resume")


def test_resume_with_another_configuration_is_rejected(copy):
    assert "training.learning_rate was 0.02, now 0.5" in error_line(copy, "training.learning_rate=0.5", "--resume")
    assert "seed was 3, now 4" in error_line(copy, "seed=4", "--resume")


def test_run_folder_below_a_file_is_rejected(file):
    assert "Not a directory" in error_line(file, "--out", file / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_named(file, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "Permission denied" in error_line(file, "--out", tmp_path / "locked" / "run")


def test_infinite_loss_ends_the_run(file, tmp_path):
    words = ["training.learning_rate=1e3", "training.warmup=0", "training.clip=null", "training.batch_size=5"]
    message = error_line(file, *words, "training.weight_decay=1e3", "--out", tmp_path / "run")
    assert "the loss is" in message and "of epoch" in message
    assert "smaller training.learning_rate" in message and "another --name or --out" in message


def test_nan_test_loss_ends_the_run(copy):
    model = load(copy / "best.safetensors")
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = float("nan")
    save(model, copy / "best.safetensors")
    assert "the test loss is nan" in error_line(copy, "--resume")
    assert "NaN" not in (copy / "metrics.json").read_text()


def test_ctrl_c_names_the_command_to_resume(file, tmp_path, monkeypatch):
    class InterruptAtFirstStep(Reporter):
        def __init__(self, console):
            pass

        def step(self, *, step, **_):
            if step == 1:
                signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("steerformer.cli.training_progress.ConsoleReporter", InterruptAtFirstStep)
        result = train(file, "training.epochs=2", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert f"steerformer train {tmp_path / 'run'} --resume" in result.output.replace("\n", " ")
    assert train(tmp_path / "run", "--resume").exit_code == 0


def test_data_may_move(copy, tmp_path):
    moved = tmp_path / "moved.npz"
    moved.write_bytes(Path(DATA["root"]).read_bytes())
    result = train(copy, f"data.root={moved}", "--resume")
    assert result.exit_code == 0, result.output
