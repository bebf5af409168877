"""The Python API for segmentation: predict, evaluate and check, with the numbers that the commands write."""

import copy
import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

import steerformer as sf
from api_runs import as_json, command, images_of
from audit.segmenters import shrink_checks
from cli import small_runs
from steerformer.io.errors import DataError
from steerformer.runs import ExperimentConfig

SPACING = (1.0, 1.0, 2.0)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def segmentation(tmp_path_factory):
    """A U-Net for images, which are resampled first."""
    root = small_runs.write_disks(tmp_path_factory.mktemp("disks"))
    config = small_runs.segmentation_config(root, group="SO2", classes=2, size=[16, 18])
    return sf.train(config, ["training.epochs=4"], out=str(tmp_path_factory.mktemp("runs") / "disks"))


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """A U-Net for volumes of two modalities in separate files, trained for one epoch."""
    root = tmp_path_factory.mktemp("volumes")
    for name in ("images", "labels"):
        (root / name).mkdir()
    for i in range(3):
        x, labels = small_runs.scene((10, 9, 6), seed=i)
        arrays = {f"images/case{i}_0000": x, f"images/case{i}_0001": x**2, f"labels/case{i}": labels.astype(float)}
        for name, array in arrays.items():
            image = nibabel.Nifti1Image(array.astype(np.float32), np.diag([*SPACING, 1.0]))
            nibabel.save(image, root / f"{name}.nii.gz")
    options = {
        "test": 1,
        "spacing": 1.5,
        "training": {"epochs": 1, "batch_size": 1},
        "model": {"in_channels": 2, "depth": 0},
    }
    config = small_runs.segmentation_config(root, group="SO3", classes=3, **options)
    return sf.train(config, out=tmp_path_factory.mktemp("runs") / "volumes")


@pytest.fixture(autouse=True)
def _small_checks(monkeypatch):
    shrink_checks(monkeypatch)


def modalities_of(run, case):
    """The files of a case, and their values (channels, x, y, z)."""
    files = sorted((run.config.data.root / "images").glob(f"case{case}_*"))
    return files, np.stack([nibabel.load(file).get_fdata(dtype=np.float32) for file in files])


class TestImages:
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
        (single,) = segmentation.predict_files(str(files[0]), tmp_path / "single").written
        assert single == tmp_path / "single" / files[0].name
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
        assert len(found.cases) == 2 and found.cases[0].name in table
        upright = segmentation.evaluate()
        assert upright.files == () and upright.metrics["hd95"] != found.metrics["hd95"]

    def test_float64_model_is_evaluated_and_checked(self, segmentation):
        """As after training with ``training.precision=64``."""
        double = replace(segmentation, model=copy.deepcopy(segmentation.model).double())
        expected, found = (run.evaluate().metrics["dice"] for run in (segmentation, double))
        assert found == pytest.approx(expected, abs=0.02)
        check = double.check(samples=1, angles=[0.0], control=segmentation)
        assert check.grid.worst < 1e-10  # float32 would be seen here
        assert check.sweep.upright == pytest.approx(check.control.upright, abs=0.02)

    def test_check_is_that_of_the_command(self, segmentation, tmp_path):
        words = ["--samples", 1, "--angles", "0", "--control", segmentation.folder, "--out", tmp_path]
        command("check", segmentation.folder, *words)
        found = segmentation.check(samples=1, angles=[0.0], control=segmentation)
        written = json.loads((tmp_path / "check.json").read_text())
        assert found.is_equivariant and written.pop("control_run") == "disks"
        assert as_json(found.as_json()) == written
        assert not (segmentation.folder / "check.json").exists()

    def test_classifier_as_control_is_rejected(self, segmentation):
        config = ExperimentConfig.model_validate(small_runs.classifier_config("plain", Path("none")))
        classifier = sf.Run(Path("bars"), config, sf.models.build(config.model), ("bar", "spot"))
        with pytest.raises(ValueError, match="classifies, but the control of a segmentation must be a segmentation"):
            segmentation.check(samples=1, control=classifier)

    @pytest.mark.parametrize("shape", [(20, 24), (2, 20, 24), (1, 20, 24, 5), (1, 0, 24)])
    def test_array_of_another_shape_is_rejected(self, segmentation, shape):
        with pytest.raises(DataError, match=r"array 0 has shape .* but the model takes \(1, height, width\)"):
            segmentation.predict([np.zeros(shape)])


class TestVolumes:
    def test_arrays_with_spacing_give_the_labels_of_files(self, volumes):
        files, values = modalities_of(volumes, 0)
        (expected,) = volumes.predict([files], probabilities=True)
        for array in (values, torch.from_numpy(values)):
            (found,) = volumes.predict(array, spacing=SPACING, probabilities=True)
            assert torch.equal(found.labels, expected.labels)
            assert torch.allclose(found.probabilities, expected.probabilities, atol=1e-6)
        (cubic,) = volumes.predict(values, probabilities=True)  # the negative control: spacing matters
        assert not torch.allclose(cubic.probabilities, expected.probabilities, atol=1e-4)

    def test_modalities_are_grouped_by_name(self, volumes, tmp_path):
        cases = [modalities_of(volumes, case)[0] for case in (0, 1)]
        expected = [result.labels for result in volumes.predict(cases)]
        mixed = [cases[1][1], cases[0][0], str(cases[0][1]), cases[1][0]]  # case 1 is named first
        assert [torch.equal(found.labels, expected[1 - i]) for i, found in enumerate(volumes.predict(mixed))] == [
            True
        ] * 2
        assert [result.labels.shape for result in volumes.predict(tuple(cases[0]))] == [(10, 9, 6)]
        written = volumes.predict_files([file for files in cases for file in files], tmp_path).written
        for path, labels in zip(written, expected, strict=True):
            assert np.array_equal(nibabel.load(path).get_fdata(), labels.numpy())

    def test_sequence_gives_the_order_of_the_modalities(self, volumes):
        """Whatever the names; files and arrays may be mixed."""
        files, values = modalities_of(volumes, 0)
        found = volumes.predict([files[::-1], values[::-1].copy()], spacing=SPACING, probabilities=True)
        assert torch.allclose(found[0].probabilities, found[1].probabilities, atol=1e-6)
        with pytest.raises(DataError, match=r"has 3 modalities .* expected 2"):
            volumes.predict([[*files, files[0]]])
