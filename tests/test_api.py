"""The Python API: train, open, predict, evaluate and check classifiers, with the numbers that the commands write."""

import copy
import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import steerformer as sf
from api_runs import as_json, command, images_of
from audit.segmenters import shrink_checks
from cli import small_runs
from steerformer.api import run_folder
from steerformer.config import ConfigError
from steerformer.io.errors import DataError
from steerformer.training import Reporter

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A steerable classifier, trained from a mapping."""
    config = small_runs.classifier_config("steerable", small_runs.write_classes(tmp_path_factory.mktemp("classes")))
    return sf.train(config, out=tmp_path_factory.mktemp("runs") / "bars")


@pytest.fixture(autouse=True)
def _small_checks(monkeypatch):
    shrink_checks(monkeypatch)


class TestTrain:
    def test_run_has_model_configuration_and_classes(self, classifier):
        assert not classifier.is_segmentation and classifier.classes == ("bar", "spot")
        assert isinstance(classifier.model, sf.models.Classifier) and not classifier.model.training
        assert classifier.config.training.epochs == 2
        assert json.loads((classifier.folder / "metrics.json").read_text())["classes"] == ["bar", "spot"]

    def test_repr_does_not_print_the_network(self, classifier):
        text = repr(classifier)
        assert text.startswith("Run(folder=") and "bars" in text and "model=Classifier(" not in text
        assert "Conv" not in text and "\n" not in text

    def test_interrupted_run_is_resumed(self, classifier, tmp_path):
        """Interrupted after the first of two epochs; the reporter sees only the second one after that."""

        class Epochs(Reporter):
            def __init__(self, stop=False):
                self.rows, self.stop = [], stop

            def epoch(self, row, *, best):
                self.rows.append(row["epoch"])

            def step(self, *, epoch, **values):
                if self.stop and self.rows:
                    raise KeyboardInterrupt

        first, second = Epochs(stop=True), Epochs()
        with pytest.raises(KeyboardInterrupt):
            sf.train(classifier.config, out=tmp_path / "run", reporter=first)
        run = sf.train(classifier.config, out=tmp_path / "run", resume=True, reporter=second)
        assert len(first.rows) == len(second.rows) == 1 and first.rows != second.rows
        expected = classifier.model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in run.model.state_dict().items())

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
        assert classifier.predict_files(str(files[0])).table == classifier.predict_files(files[:1]).table

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

    def test_float64_model_is_evaluated_and_checked(self, classifier):
        """As after training with ``training.precision=64``."""
        double = replace(classifier, model=copy.deepcopy(classifier.model).double())
        expected, found = (run.evaluate(rotations=3).metrics for run in (classifier, double))
        assert found["confusion"] == expected["confusion"]
        check = double.check(samples=3, angles=[0.0, 90.0])
        assert check.grid.worst < 1e-10  # float32 would be seen here
        (prediction,) = double.predict(images_of(classifier, 1))
        assert prediction.probabilities == pytest.approx(
            classifier.predict(images_of(classifier, 1))[0].probabilities, abs=1e-5
        )

    def test_data_with_a_relative_path_are_asked_for_elsewhere(self, classifier, tmp_path, monkeypatch):
        """A run is opened in another folder than the one in which it was trained."""
        data = classifier.config.data.model_copy(update={"root": Path("classes")})
        moved = replace(classifier, config=classifier.config.model_copy(update={"data": data}))
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError, match=r"there is no classes here: .* give data\.root=PATH\.$"):
            moved.evaluate()
        assert moved.evaluate([f"data.root={classifier.config.data.root}"]).metrics["samples"]

    def test_saving_an_evaluation_does_not_draw(self, classifier, monkeypatch):
        for name in [name for name in sys.modules if name.startswith(("steerformer.plots", "matplotlib"))]:
            monkeypatch.delitem(sys.modules, name)
        for name in ("steerformer.plots", "matplotlib"):  # importing them now fails
            monkeypatch.setitem(sys.modules, name, None)
        (path,) = classifier.evaluate(save=True, split="train").files
        assert path.name == "evaluation-train.json" and path.is_file()
        with pytest.raises(ImportError):  # the negative control: a check is drawn
            classifier.check(samples=2, angles=[0.0], out=classifier.folder / "drawn")

    def test_options_are_checked(self, unchecked, classifier, tmp_path):
        file = images_of(classifier)[0]
        for options in ({"split": "tests"}, {"rotations": 0}):
            with pytest.raises(ValueError, match=r"got ('tests'|0)"):
                classifier.evaluate(**options)
        for options in ({"samples": 0}, {"angles": []}):
            with pytest.raises(ValueError, match=r"at least (1|one)"):
                classifier.check(**options)
        words = "are for segmentation models, and this one classifies"
        for options in ({"memory": 2**30}, {"probabilities": True}):
            with pytest.raises(ValueError, match=words):
                classifier.predict(file, **options)
        for options in ({"memory": 2**30}, {"probabilities": True}, {"overlay": True}):
            with pytest.raises(ValueError, match=words):
                classifier.predict_files(file, tmp_path / "a.csv", **options)
        assert list(tmp_path.iterdir()) == []

    def test_control_is_rejected(self, classifier):
        with pytest.raises(ValueError, match="a control is for segmentation models, and this run classifies"):
            classifier.check(control=classifier)

    @pytest.mark.parametrize(
        ("array", "words"),
        [
            (np.ones((1, 12, 12), dtype=np.int64), "array 0 holds int64; pass uint8, uint16 or floats from 0 to 1"),
            (np.full((1, 12, 12), 200.0), r"array 0 holds values from 200 to 200 \(float64\), expected 0 to 65535"),
        ],
    )
    def test_array_that_no_image_file_could_hold_is_rejected(self, classifier, array, words):
        with pytest.raises(DataError, match=words):
            classifier.predict(array)

    @pytest.mark.parametrize("shape", [(12, 12), (3, 12, 12), (1, 1, 12, 12)])
    def test_array_of_another_shape_is_rejected(self, classifier, shape):
        with pytest.raises(DataError, match=r"array 0 has shape .* but the model takes \(1, height, width\)"):
            classifier.predict(np.zeros(shape))
