"""The Python API: train, open, predict, evaluate and check, with the numbers that the commands write."""

import csv
import io
import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import steerformer as sf
from audit.segmenters import shrink_checks
from cli import small_runs
from steerformer.api import run_folder
from steerformer.cli import app
from steerformer.config import ConfigError
from steerformer.io.errors import DataError


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A steerable classifier, trained from a mapping."""
    config = small_runs.classifier_config("steerable", small_runs.write_classes(tmp_path_factory.mktemp("classes")))
    return sf.train(config, out=tmp_path_factory.mktemp("runs") / "bars")


@pytest.fixture(scope="module")
def segmentation(tmp_path_factory):
    """A U-Net for images, which are resampled first."""
    root = small_runs.write_disks(tmp_path_factory.mktemp("disks"))
    config = small_runs.segmentation_config(root, group="SO2", classes=2, size=[16, 18])
    return sf.train(config, ["training.epochs=4"], out=str(tmp_path_factory.mktemp("runs") / "disks"))


@pytest.fixture(autouse=True)
def _small_checks(monkeypatch):
    shrink_checks(monkeypatch)


def command(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(values):
    """Values as a JSON file gives them back: tuples are lists, keys are strings."""
    return json.loads(json.dumps(values))


def images_of(run, count=2):
    """Some of the files that a run was trained on."""
    return sorted(run.config.data.root.rglob("*.png"))[:count]


class TestTrain:
    def test_run_has_model_configuration_and_classes(self, classifier, segmentation):
        assert (classifier.is_segmentation, segmentation.is_segmentation) == (False, True)
        assert classifier.classes == ("bar", "spot") and len(segmentation.classes) == 2
        assert isinstance(classifier.model, sf.models.Classifier) and not classifier.model.training
        assert classifier.config.training.epochs == 2 and segmentation.config.training.epochs == 4
        assert json.loads((classifier.folder / "metrics.json").read_text())["classes"] == ["bar", "spot"]

    def test_open_run_reads_the_same_weights(self, classifier):
        opened = sf.open_run(str(classifier.folder))
        assert isinstance(opened, sf.Run) and opened.config == classifier.config
        expected = classifier.model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in opened.model.state_dict().items())

    def test_configuration_and_run_folder_are_trained_alike(self, classifier, tmp_path):
        """The same seed gives the same weights, from an ``ExperimentConfig`` and from a run folder."""
        again = [
            sf.train(config, ["training.epochs=1"], out=tmp_path / name)
            for name, config in (("config", classifier.config), ("folder", classifier.folder))
        ]
        one, other = (list(run.model.parameters()) for run in again)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        assert [run.config.training.epochs for run in again] == [1, 1]

    def test_mapping_without_out_is_rejected(self, classifier):
        config = small_runs.classifier_config("steerable", classifier.config.data.root)
        with pytest.raises(ValueError, match="a configuration without a name needs a folder for its run: out="):
            sf.train(config)

    def test_unknown_key_is_rejected_in_one_line(self, classifier, tmp_path):
        config = small_runs.classifier_config("steerable", classifier.config.data.root)
        with pytest.raises(ConfigError, match=r"there is no key 'training\.epoch' \(did you mean 'epochs'") as caught:
            sf.train(config | {"training": {"epoch": 1}}, out=tmp_path / "new")
        assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()

    def test_existing_run_is_not_overwritten(self, classifier):
        with pytest.raises(ValueError, match="resume"):
            sf.train(classifier.config, out=classifier.folder)

    def test_folder_without_a_run_is_rejected(self, tmp_path):
        with pytest.raises(ValueError, match="is not a run folder of 'steerformer train'"):
            sf.open_run(tmp_path)

    def test_run_folder_is_named_after_the_configuration(self, tmp_path):
        assert run_folder("demo-cnn").as_posix() == "runs/demo-cnn"
        assert run_folder(tmp_path / "mine.yaml").as_posix() == "runs/mine"
        assert run_folder("mine.yml", name="other").as_posix() == "runs/other"
        assert run_folder("mine.yml", "here").as_posix() == "here"
        assert run_folder(tmp_path, resume=True) == tmp_path
        assert run_folder(tmp_path).as_posix() == f"runs/{tmp_path.name}"


class TestClassifier:
    def test_paths_and_arrays_give_the_probabilities_of_the_command(self, classifier):
        files = images_of(classifier)
        rows = list(csv.DictReader(io.StringIO(command("predict", classifier.folder, *files).stdout)))
        arrays = [np.asarray(Image.open(file))[None] for file in files]
        tensors = [torch.from_numpy(array / np.float32(255)) for array in arrays]
        for inputs in (files, [str(file) for file in files], arrays, tensors):
            found = classifier.predict(inputs)
            assert [prediction.label for prediction in found] == [row["class"] for row in rows]
            for prediction, row in zip(found, rows, strict=True):
                expected = {name: float(row[name]) for name in classifier.classes}
                assert prediction.probabilities == pytest.approx(expected, abs=1e-5)
        assert [prediction.name for prediction in classifier.predict(files)] == list(map(str, files))

    def test_single_input_gives_a_list_of_one(self, classifier):
        file = images_of(classifier)[0]
        array = np.asarray(Image.open(file))[None]
        (expected,) = classifier.predict([file])
        for single in (file, str(file), array, torch.from_numpy(array.copy())):
            (found,) = classifier.predict(single)
            assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-5)

    def test_training_mode_does_not_change_predictions(self, classifier):
        """Batch normalization would otherwise use and update the statistics of the input."""
        file = images_of(classifier)[0]
        (expected,) = classifier.predict(file)
        classifier.model.train()
        try:
            (found,) = classifier.predict(file)
            check = classifier.check(samples=2, angles=[0.0])
            assert classifier.model.training
        finally:
            classifier.model.eval()
        assert found == expected == classifier.predict(file)[0] and check.is_equivariant

    def test_predicted_table_is_that_of_the_command(self, classifier, tmp_path):
        files = [*images_of(classifier), tmp_path / "none.png"]
        found = classifier.predict_files(files, tmp_path / "classes.csv")
        assert found.count == 3 and found.written == (tmp_path / "classes.csv",)
        assert found.table == (tmp_path / "classes.csv").read_text()
        assert found.table == command("predict", classifier.folder, *files[:2]).stdout
        assert found.errors == (f"there is no file {tmp_path / 'none.png'}",)
        with pytest.raises(ValueError, match=r"classes\.csv exists"):
            classifier.predict_files(files, tmp_path / "classes.csv")
        assert classifier.predict_files(files[:1]).written == ()

    @pytest.mark.parametrize("options", [{}, {"rotations": 4, "split": "validation"}])
    def test_metrics_are_those_of_the_command(self, classifier, options):
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        command("evaluate", classifier.folder, *words)
        name = "evaluation-validation-rotations4" if options else "evaluation-test"
        written = json.loads((classifier.folder / f"{name}.json").read_text())
        (classifier.folder / f"{name}.json").unlink()
        found = classifier.evaluate(**options)
        assert found.files == () and not (classifier.folder / f"{name}.json").exists()
        saved = classifier.evaluate(**options, save=True)
        assert saved.files == (classifier.folder / f"{name}.json",)
        assert as_json(found.metrics) == written == json.loads(saved.files[0].read_text()) == as_json(saved.metrics)
        assert 0 <= found.metrics["accuracy"] <= 1 and found.metrics["samples"] == (4 if options else 6)

    def test_check_is_that_of_the_command(self, classifier, tmp_path):
        command("check", classifier.folder, "--samples", 3, "--angles", "0,30", "--out", tmp_path / "command")
        found = classifier.check(samples=3, angles=[0.0, 30.0], out=str(tmp_path / "api"))
        assert found.is_equivariant and found.samples == 3
        written = [json.loads((tmp_path / name / "check.json").read_text()) for name in ("command", "api")]
        assert written[0] == written[1] == as_json(found.as_json())
        assert (tmp_path / "api" / "check.png").read_bytes().startswith(b"\x89PNG")
        assert not (classifier.folder / "check.json").exists()

    def test_control_is_rejected(self, classifier, segmentation):
        with pytest.raises(ValueError, match="a control is for segmentation models, and this run classifies"):
            classifier.check(control=segmentation)

    @pytest.mark.parametrize("shape", [(12, 12), (3, 12, 12), (1, 1, 12, 12)])
    def test_array_of_another_shape_is_rejected(self, classifier, shape):
        with pytest.raises(DataError, match=r"array 0 has shape .* but the model takes \(1, height, width\)"):
            classifier.predict(np.zeros(shape))


class TestSegmentation:
    def test_paths_and_arrays_give_the_labels_of_the_command(self, segmentation, tmp_path):
        files = images_of(segmentation)
        command("predict", segmentation.folder, *files, "--out", tmp_path)
        written = [np.asarray(Image.open(tmp_path / file.name)) // 255 for file in files]
        arrays = [np.asarray(Image.open(file))[None] for file in files]
        for inputs in (files, [str(file) for file in files], arrays, [torch.tensor(array) for array in arrays]):
            found = segmentation.predict(inputs)
            assert [result.labels.tolist() for result in found] == [labels.tolist() for labels in written]
            assert all(result.probabilities is None for result in found)
        assert {0, 1} == set(np.unique(written))
        (single,) = segmentation.predict(arrays[0])
        assert single.labels.tolist() == written[0].tolist()

    def test_probabilities_on_request(self, segmentation):
        (found,) = segmentation.predict(images_of(segmentation)[0], probabilities=True)
        assert found.probabilities.shape == (2, *found.labels.shape)
        assert torch.equal(found.probabilities.argmax(0), found.labels.long())

    def test_options_are_checked(self, segmentation):
        file = images_of(segmentation)[0]
        with pytest.raises(ValueError, match="1M of memory are not enough"):
            segmentation.predict(file, memory=2**20)
        with pytest.raises(DataError, match="spacing takes 2 positive numbers"):
            segmentation.predict(np.zeros((1, 20, 24)), spacing=[1.0])
        with pytest.raises(ValueError, match=r"choose a folder by out \(--out\)"):
            segmentation.predict_files([file])

    def test_predicted_files_are_those_of_the_command(self, segmentation, tmp_path):
        files = [*images_of(segmentation), tmp_path / "none.png"]
        steps = []

        @contextmanager
        def progress(what, total):
            steps.append((what, total))
            yield lambda share=1: steps.append(share)

        options = {"probabilities": True, "overlay": True}
        found = segmentation.predict_files(files, tmp_path / "api", **options, progress=progress)
        assert found.count == 3 and found.table is None
        assert found.written == tuple(tmp_path / "api" / file.name for file in files[:2])
        assert found.errors == (f"there is no file {tmp_path / 'none.png'}",)
        assert steps[0] == ("segmenting", 3) and sum(steps[1:]) == pytest.approx(3)
        words = ["--probabilities", "--overlay"]
        command("predict", segmentation.folder, *files[:2], "--out", tmp_path / "command", *words)
        names = sorted(file.name for file in (tmp_path / "command").iterdir())
        assert len(names) == 6 and names == sorted(file.name for file in (tmp_path / "api").iterdir())
        for name in names:
            assert (tmp_path / "api" / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name

    def test_metrics_are_those_of_the_command(self, segmentation):
        command("evaluate", segmentation.folder, "data.test_rotation=any")
        path = segmentation.folder / "evaluation-test-test_rotation-any.json"
        written, table = json.loads(path.read_text()), path.with_suffix(".csv").read_text()
        found = segmentation.evaluate(["data.test_rotation=any"], save=True, scans=False)
        assert found.files == (path, path.with_suffix(".csv"), path.with_suffix(".png"))
        assert as_json(found.metrics) == written == json.loads(path.read_text())
        assert table == path.with_suffix(".csv").read_text()
        assert found.metrics["cases"] == 2 and 0 <= found.metrics["dice"] <= 1
        upright = segmentation.evaluate()
        assert upright.files == () and upright.metrics["hd95"] != found.metrics["hd95"]

    def test_check_is_that_of_the_command(self, segmentation, tmp_path):
        words = ["--samples", 1, "--angles", "0", "--control", segmentation.folder, "--out", tmp_path]
        command("check", segmentation.folder, *words)
        found = segmentation.check(samples=1, angles=[0.0], control=segmentation)
        written = json.loads((tmp_path / "check.json").read_text())
        assert found.is_equivariant and written.pop("control_run") == "disks"
        assert as_json(found.as_json()) == written
        assert not (segmentation.folder / "check.json").exists()

    def test_classifier_as_control_is_rejected(self, segmentation, classifier):
        with pytest.raises(ValueError, match="classifies, but the control of a segmentation must be a segmentation"):
            segmentation.check(samples=1, control=classifier)

    @pytest.mark.parametrize("shape", [(20, 24), (2, 20, 24), (1, 20, 24, 5), (1, 0, 24)])
    def test_array_of_another_shape_is_rejected(self, segmentation, shape):
        with pytest.raises(DataError, match=r"array 0 has shape .* but the model takes \(1, height, width\)"):
            segmentation.predict([np.zeros(shape)])
