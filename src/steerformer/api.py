"""The Python API: train, open, predict, evaluate and check runs. The commands call it."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from steerformer.config import override, validate
from steerformer.runs import ExperimentConfig, RunFolder, load_experiment, read_run_folder
from steerformer.runs.compatibility import is_segmentation

if TYPE_CHECKING:
    from steerformer.audit import ClassifierCheck, SegmentationCheck
    from steerformer.exporting import ExportedFile
    from steerformer.infer.classification import Prediction
    from steerformer.infer.evaluation import RunEvaluation
    from steerformer.infer.inputs import Input
    from steerformer.infer.predicted_files import PredictedFiles
    from steerformer.infer.progress_bars import ProgressBar
    from steerformer.infer.segmentation import Segmentation
    from steerformer.io.scans import Scan
    from steerformer.training import Reporter

ConfigLike = str | Path | Mapping[str, Any] | ExperimentConfig
Split = Literal["train", "validation", "test"]


def train(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    out: Path | str | None = None,
    resume: bool = False,
    reporter: "Reporter | None" = None,
) -> "Run":
    """Train and test a model as ``steerformer train`` does, and open the run.

    Args:
        config: a preset's name, a YAML file, a run folder, a mapping as in a YAML file, or an ``ExperimentConfig``.
        overrides: changes such as ``training.epochs=3``.
        out: folder for the run; ``runs/NAME`` for a named configuration. Several machines need a shared folder.
        resume: continue an interrupted run in ``out``; on CPUs the result is bit-identical to an uninterrupted run.
        reporter: receives the progress; nothing is shown by default.
    """
    from steerformer.training import train_run

    return open_run(
        train_run(
            resolve_config(config, overrides), run_folder(config, out, resume=resume), resume=resume, reporter=reporter
        )
    )


def open_run(folder: Path | str) -> "Run":
    """Open the run in ``folder``; a one-line ``ValueError`` if the folder has no run, or the run no model yet."""
    found = read_run_folder(folder)
    return Run(found.folder, found.config, found.model, found.classes, found.spacing)


def resolve_config(config: ConfigLike, overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The experiment that a name, file, folder, mapping or configuration describes, with overrides applied."""
    if isinstance(config, str | Path):
        return load_experiment(config, overrides)
    values = config.model_dump(mode="json") if isinstance(config, ExperimentConfig) else config
    experiment: ExperimentConfig = validate(ExperimentConfig, override(values, overrides), where="config")
    return experiment


def run_folder(
    config: ConfigLike, out: Path | str | None = None, *, name: str | None = None, resume: bool = False
) -> Path:
    """Where a run is written: ``out``, or the resumed folder itself, or ``runs/NAME``."""
    if out is not None:
        return Path(out)
    if not isinstance(config, str | Path):
        raise ValueError("a configuration without a name needs a folder for its run: out='runs/NAME'.")
    path = Path(config)
    if name is None and resume and path.is_dir():
        return path
    return Path("runs") / (name or path.resolve().name.removesuffix(".yaml").removesuffix(".yml"))


class Run(RunFolder):
    """A trained run: its ``folder``, ``config``, ``model`` (the best weights, in eval mode) and ``classes``."""

    @property
    def is_segmentation(self) -> bool:
        """Whether the model labels every voxel, rather than the whole input."""
        return is_segmentation(self.config.model)

    def predict(
        self,
        inputs: "Input | Sequence[Input]",
        *,
        spacing: Sequence[float] | None = None,
        probabilities: bool = False,
        memory: int | None = None,
    ) -> "list[Prediction] | list[Segmentation]":
        """Predictions for files or arrays: classes with probabilities, or label maps on the grid of each input.

        Args:
            inputs: one or several paths or arrays (channels, \\*space). An array means what a file with the same
                values means, so it is preprocessed in the same way. Segmentation: an item may also be a sequence of
                paths, the modalities of one scan; a flat list with NAME_0000, NAME_0001, ... is grouped by name.
            spacing: voxel spacing of arrays; 1 along each axis by default.
            probabilities: segmentation: also the probabilities of all classes.
            memory: segmentation: limit for the peak memory of the process in bytes; by default what is free.
        """
        from steerformer.infer.classification import classify_inputs
        from steerformer.infer.segmentation import segment_inputs

        single = isinstance(inputs, str | Path | np.ndarray | Tensor)
        items: "Sequence[Input]" = [inputs] if single else list(inputs)  # type: ignore[list-item, arg-type]
        if self.is_segmentation:
            options: dict[str, Any] = {"spacing": spacing, "probabilities": probabilities, "memory": memory}
            return segment_inputs(self, items, **options, notify=_warn)
        self._reject_segmentation_options(memory is not None, probabilities)
        return classify_inputs(self, items, spacing=spacing)

    def predict_files(
        self,
        files: Path | str | Sequence[Path | str],
        out: Path | str | None = None,
        *,
        probabilities: bool = False,
        overlay: bool = False,
        force: bool = False,
        memory: int | None = None,
        progress: "ProgressBar | None" = None,
        notify: Callable[[str], object] | None = None,
    ) -> "PredictedFiles":
        """Write predictions for files, as ``steerformer predict`` does; files that cannot be read do not stop others.

        A segmentation model writes a label map for each scan into the folder ``out``, in the scan's geometry; a
        classifier writes one CSV file ``out``, if given. ``notify`` is called with one line if scans were resampled to
        the voxel spacing of the training cases; a warning by default.
        """
        from steerformer.infer.classify_files import classify_files
        from steerformer.infer.progress_bars import no_progress_bar
        from steerformer.infer.segment_files import segment_files

        paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
        bar = progress or no_progress_bar
        if not self.is_segmentation:
            self._reject_segmentation_options(memory is not None, probabilities, overlay)
            return classify_files(self, paths, None if out is None else Path(out), force=force, progress=bar)
        if out is None:
            raise ValueError("a segmentation model writes a file for each input; choose a folder by out (--out).")
        return segment_files(
            self,
            paths,
            Path(out),
            probabilities=probabilities,
            draw_overlay=self._draw_overlay if overlay else None,
            force=force,
            memory=memory,
            progress=bar,
            notify=notify or _warn,
        )

    def evaluate(
        self,
        overrides: Sequence[str] = (),
        *,
        split: Split = "test",
        rotations: int = 1,
        batch_size: int = 250,
        save: bool = False,
        scans: bool = True,
        progress: "ProgressBar | None" = None,
        notify: Callable[[str], object] | None = None,
    ) -> "RunEvaluation":
        """Metrics on a split, as ``steerformer evaluate`` gives them.

        Args:
            overrides: other data, such as ``data.test_rotation=any``.
            split: which samples.
            rotations: classification: average probabilities over this many equally spaced rotations.
            batch_size: classification: samples per batch.
            save: write ``evaluation-*.json`` (for segmentation also .csv and .png) into the run folder.
            scans: segmentation: draw the scans in the saved figure; ``False`` for confidential ones.
            progress: shows the progress.
            notify: called with one line if other data are resampled to the training cases' spacing; default: a warning.
        """
        from steerformer.infer.evaluation import evaluate_run, save_evaluation
        from steerformer.infer.progress_bars import no_progress_bar

        found = evaluate_run(
            self,
            overrides,
            split=split,
            rotations=rotations,
            batch_size=batch_size,
            progress=progress or no_progress_bar,
            notify=notify or _warn,
        )
        if not save:
            return found
        path = self.folder / f"evaluation-{_tag(split, rotations, overrides)}.json"
        files = save_evaluation(found, path)
        if found.cases:
            from steerformer.plots.run_figures import draw_examples

            files += draw_examples(found, path, scans=scans)
        return replace(found, files=files)

    def check(
        self,
        overrides: Sequence[str] = (),
        *,
        samples: int | None = None,
        angles: Sequence[float] | None = None,
        control: "Run | None" = None,
        out: Path | str | None = None,
        progress: "ProgressBar | None" = None,
        notify: Callable[[str], object] | None = None,
    ) -> "ClassifierCheck | SegmentationCheck":
        """Whether the model is equivariant: logits, layers, and accuracy or Dice against angle.

        Args:
            overrides: other data, such as ``data.root=DIR``.
            samples: number of test samples; 500 images or 40 volumes, for segmentation 10 or 3.
            angles: in degrees.
            control: another segmentation run to compare with.
            out: folder for ``check.json`` and ``check.png``; nothing is written by default.
            progress: shows the progress.
            notify: as in :meth:`evaluate`.
        """
        from steerformer.audit.run_check import check_run, save_check
        from steerformer.infer.progress_bars import no_progress_bar

        found = check_run(
            self,
            overrides,
            samples=samples,
            angles=angles,
            control=control,
            progress=progress or no_progress_bar,
            notify=notify or _warn,
        )
        if out is not None:
            save_check(found, Path(out), control.folder.resolve().name if control else None)
            from steerformer.plots.run_figures import draw_check

            draw_check(found, Path(out))
        return found

    def export(
        self,
        out: Path | str | None = None,
        *,
        inputs: Tensor | None = None,
        free_size: bool | None = None,
        force: bool = False,
    ) -> "ExportedFile":
        """Write the best weights to a file that runs without steerformer, as ``steerformer export`` does.

        Args:
            out: .onnx, .pt2 or .pt file; ``RUN/model.onnx`` by default. It holds ``describe_run`` of the run as well.
            inputs, free_size: see :func:`~steerformer.exporting.export`.
            force: overwrite a file that exists.
        """
        from steerformer.exporting import describe_run, export, file_size

        path = self.folder / "model.onnx" if out is None else Path(out)
        if path.exists() and not force:
            raise ValueError(f"{path} exists; choose another out (--out), or force=True (--force) to overwrite it.")
        size = file_size(self) if free_size is False and inputs is None else None
        return export(self.model, path, inputs=inputs, size=size, free_size=free_size, metadata=describe_run(self))

    @staticmethod
    def _reject_segmentation_options(*given: bool) -> None:
        if any(given):
            raise ValueError(
                "memory, probabilities and overlay (--memory, --probabilities and --overlay) are for segmentation "
                "models, and this one classifies."
            )

    def _draw_overlay(self, scan: "Scan", found: "Segmentation", path: Path) -> None:
        from steerformer.plots.overlay import write_overlay

        write_overlay(scan, found.labels, path, classes=self.classes)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=4)


def _tag(split: str, rotations: int, overrides: Sequence[str]) -> str:
    """A file name that distinguishes evaluations; of another data folder, its last part."""
    parts = [split, *([f"rotations{rotations}"] if rotations > 1 else [])]
    for word in overrides:
        key, _, value = word.removeprefix("data.").partition("=")
        parts.append(re.sub(r"[^\w.]+", "-", f"{key}-{Path(value).name if key == 'root' else value}"))
    return "-".join(parts)
