"""Everything that can go wrong: one line, exit code 2, and no half-written file."""

import errno
import json
import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from steerformer import load, save
from steerformer.cli import app
from steerformer.train import Reporter, open_run, run
from steerformer.train import progress as progress_module
from steerformer.train.checkpoint import load_checkpoint
from steerformer.train.loop import Loop, TrainingError
from train.tiny import DATA, experiment, values

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(values(epochs=1)))
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run that ended well."""
    return run(experiment(epochs=1), tmp_path_factory.mktemp("runs") / "done")


@pytest.fixture
def copy(done, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in done.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def train(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def complaint(*arguments):
    """What the command says when it fails as it should."""
    result = train(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("steerformer: ")
    return result.stderr


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]


def test_a_good_run_says_where_it_is_and_what_to_type_next(file, tmp_path):
    result = train(file, "--out", tmp_path / "run", "training.epochs=2")
    assert result.exit_code == 0, result.output
    assert "epoch 2/2" in result.output and "test accuracy" in result.output
    for word in ("evaluate", "check", "predict"):
        assert f"steerformer {word} {tmp_path / 'run'}" in result.output


def test_the_list_has_every_preset():
    result = train("--list")
    assert result.exit_code == 0 and "rotmnist-transformer-k4" in result.output


def test_the_keys_are_listed():
    result = train("--keys")
    assert result.exit_code == 0 and "training.batch_size" in result.output


def test_a_folder_of_data_is_no_experiment(tmp_path):
    assert f"{tmp_path} is a folder, but holds no run" in complaint(tmp_path)
    assert "is a folder, but holds no run" in complaint("")


def test_without_a_config_it_says_what_to_give():
    assert "--list" in complaint()


def test_mistakes_in_configs_are_named(file, tmp_path):
    assert "did you mean" in complaint("rotmnist-transfomer-k4-cpu")
    assert "learning_rate" in complaint(file, "training.learnin_rate=3")
    assert "no such file" in complaint(tmp_path / "missing.yaml").lower()
    (tmp_path / "bad.yaml").write_text("model: [")
    assert "bad.yaml, line" in complaint(tmp_path / "bad.yaml")
    assert "there is no folder" in complaint(file, "data.root=nowhere", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_never_written_over(copy, file):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert "holds a run already" in complaint(file, "--out", copy)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_there_has_to_be_something_to_resume(file, tmp_path):
    assert "there is no run in" in complaint(file, "--out", tmp_path / "run", "--resume")


def test_a_checkpoint_cut_in_half_is_named(copy):
    content = (copy / "last.ckpt").read_bytes()
    (copy / "last.ckpt").write_bytes(content[: len(content) // 2])
    assert "last.ckpt is damaged" in complaint(copy, "--resume")


def test_a_file_that_is_no_checkpoint_is_named(copy):
    torch.save({"weights": torch.ones(1)}, copy / "last.ckpt")
    assert "no checkpoint of this version" in complaint(copy, "--resume")


def test_a_checkpoint_that_would_run_code_is_refused(copy):
    torch.save({"format": 2, "evil": Path("x")}, copy / "last.ckpt")
    assert "damaged or no checkpoint" in complaint(copy, "--resume")


def test_a_checkpoint_of_another_architecture_is_named(copy):
    assert "model.hidden was 8, now 9" in complaint(copy, "model.hidden=9", "--resume")
    content = load_checkpoint(copy / "last.ckpt")
    content["learner"]["model"].popitem()
    torch.save(content, copy / "last.ckpt")
    assert "does not fit this model" in complaint(copy, "--resume")


def test_what_decides_the_result_may_not_change_on_the_way(copy):
    assert "training.learning_rate was 0.02, now 0.5" in complaint(copy, "training.learning_rate=0.5", "--resume")
    assert "seed was 3, now 4" in complaint(copy, "seed=4", "--resume")


def test_a_place_below_a_file_cannot_be_written(file):
    assert "Not a directory" in complaint(file, "--out", file / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(file, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "Permission denied" in complaint(file, "--out", tmp_path / "locked" / "run")


@contextmanager
def files_of_at_most(size):
    """The system refuses to write more into a file, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_checkpoint_that_does_not_fit_the_disk_leaves_the_old_one(copy):
    before = (copy / "last.ckpt").read_bytes()
    with files_of_at_most(20_000):
        assert "last.ckpt: File too large" in complaint(copy, "training.epochs=2", "--resume")
    assert (copy / "last.ckpt").read_bytes() == before
    assert leftovers(copy) == []
    assert open_run(copy).model


def test_a_model_that_does_not_fit_the_disk_is_not_there(file, done, tmp_path):
    assert (done / "best.safetensors").stat().st_size > 3_000
    with files_of_at_most(3_000):
        message = complaint(file, "--out", tmp_path / "run")
    assert "best.safetensors: " in message and "File too large" in message
    assert not (tmp_path / "run" / "best.safetensors").exists()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "best.safetensors", "metrics.csv", "last.ckpt"])
def test_a_full_disk_at_any_file(file, tmp_path, monkeypatch, name):
    def fill(path):
        if name in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = os.fsync
    seen = {}

    def fsync(descriptor):
        fill(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        seen[descriptor] = True
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    message = complaint(file, "--out", tmp_path / "run")
    assert "No space left on device" in message and str(tmp_path / "run") in message
    assert not (tmp_path / "run" / name).exists()
    assert leftovers(tmp_path) == []
    if name in ("config.yaml", "environment.json"):
        assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_ends_the_run(file, tmp_path):
    words = ["training.learning_rate=1e3", "training.warmup=0", "training.clip=null", "training.batch_size=5"]
    message = complaint(file, *words, "training.weight_decay=1e3", "--out", tmp_path / "run")
    assert "the loss is" in message and "of epoch" in message
    assert "smaller training.learning_rate" in message and "another --name or --out" in message


def spoil(module, number):
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] = number


class Spoiling(Reporter):
    """Makes one weight bad after a step, as an update that overflows does."""

    def __init__(self, monkeypatch, at, number, *, average=False):
        self.at, self.number, self.average, self.steps, self.loops = at, number, average, 0, []
        real = Loop.train
        monkeypatch.setattr(Loop, "train", lambda loop: (self.loops.append(loop), real(loop))[1])

    def step(self, **_):
        self.steps += 1
        if self.steps == self.at:
            learner = self.loops[0].learner
            spoil(learner.result if self.average else learner.model, self.number)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("step", "place"), [(6, "step 3 of epoch 2"), (5, "step 2 of epoch 2")])
def test_weights_that_are_no_numbers_are_never_kept(tmp_path, monkeypatch, average, step, place):
    """After the last step of an epoch, and within one, where a checkpoint is due after every step."""
    every = 60.0 if step == 6 else 1e-9
    before = {}

    class Watching(Spoiling):
        def step(self, **figures):
            super().step(**figures)
            if self.steps == self.at:
                before.update({path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()})

    with pytest.raises(TrainingError, match=f"weights are no longer finite after {place}; start anew") as caught:
        run(
            experiment(epochs=2, checkpoint_every=every),
            tmp_path / "run",
            reporter=Watching(monkeypatch, step, float("nan"), average=average),
        )
    assert "\n" not in str(caught.value)
    assert {"best.safetensors", "last.ckpt"} < before.keys()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("validation", "what"), [(30, "the validation loss is nan after epoch 1"), (0, "logits are no longer finite")]
)
def test_weights_too_large_to_give_logits_are_never_kept(tmp_path, monkeypatch, validation, what):
    class Large(Spoiling):
        def step(self, **figures):
            super().step(**figures)
            if self.steps == self.at:
                for parameter in self.loops[0].learner.model.parameters():
                    parameter.data.fill_(3e38)

    with pytest.raises(TrainingError, match=what):
        run(
            experiment(data={"validation": validation}, epochs=1, ema=None),
            tmp_path / "run",
            reporter=Large(monkeypatch, 3 if validation else 4, 1.0),  # the last step
        )
    assert not (tmp_path / "run" / "best.safetensors").exists() and not (tmp_path / "run" / "last.ckpt").exists()
    assert not json.loads((tmp_path / "run" / "metrics.json").read_text())["finished"]


def test_a_test_loss_that_is_no_number_ends_the_run(copy):
    model = load(copy / "best.safetensors")
    spoil(model, float("nan"))
    save(model, copy / "best.safetensors")
    assert "the test loss is nan" in complaint(copy, "--resume")
    assert "NaN" not in (copy / "metrics.json").read_text()


def test_ctrl_c_says_how_to_go_on(file, tmp_path, monkeypatch):
    class Impatient(Reporter):
        def __init__(self, console):
            pass

        def step(self, *, step, **_):
            if step == 1:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("steerformer.train.ConsoleReporter", Impatient)
    result = train(file, "training.epochs=5", "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert f"steerformer train {tmp_path / 'run'} --resume" in result.output.replace("\n", " ")
    monkeypatch.setattr("steerformer.train.ConsoleReporter", progress_module.ConsoleReporter)
    assert train(tmp_path / "run", "--resume").exit_code == 0


def test_a_folder_that_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(ValueError, match=r"is no run of 'steerformer train'"):
        open_run(tmp_path)


def test_a_run_without_a_model_cannot_be_opened(copy):
    (copy / "best.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no best.safetensors yet"):
        open_run(copy)


def test_the_data_may_move(copy, tmp_path):
    moved = tmp_path / "moved.npz"
    moved.write_bytes(Path(DATA["root"]).read_bytes())
    result = train(copy, f"data.root={moved}", "--resume")
    assert result.exit_code == 0, result.output
