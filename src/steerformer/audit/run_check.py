"""The equivariance check of a run: choose test samples, and check its model on them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from steerformer.audit.check import ClassifierCheck, SegmentationCheck, check_classifier, check_segmentation
from steerformer.audit.rotations import sweep_axes
from steerformer.audit.samples import some_cases, some_samples, upright
from steerformer.data import DataConfig, SegmentationDataset, Splits
from steerformer.data.rotation import interpolation_mode
from steerformer.infer.evaluation import Notify, load_run_data
from steerformer.infer.memory import memory_budget
from steerformer.infer.progress_bars import ProgressBar, no_progress_bar
from steerformer.io.atomic import write_json
from steerformer.io.scans import Scan
from steerformer.models import Model, eval_mode
from steerformer.models.eval_mode import reference_parameter
from steerformer.runs.compatibility import is_segmentation
from steerformer.runs.run_folder import RunFolder

_SAMPLES, _SAMPLE_STEP = {2: 500, 3: 40}, {2: 15, 3: 45}
_CASES, _CASE_STEP = {2: 10, 3: 3}, {2: 30, 3: 45}
_RANDOM = 4


def check_run(
    run: RunFolder,
    overrides: Sequence[str] = (),
    *,
    samples: int | None = None,
    angles: Sequence[float] | None = None,
    control: RunFolder | None = None,
    progress: ProgressBar = no_progress_bar,
    notify: Notify = lambda line: None,
) -> ClassifierCheck | SegmentationCheck:
    """Check the model of a run on its upright test samples.

    Args:
        overrides: other data, such as ``data.root=DIR``.
        samples: number of test samples or cases; 500 images or 40 volumes, for segmentation 10 or 3.
        angles: in degrees.
        control: another segmentation run to compare with.
        progress: shows the progress.
        notify: called with one line if other data are resampled to the voxel spacing of the training cases.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}.")
    if angles is not None and not len(angles):
        raise ValueError("angles is empty; give at least one angle in degrees, such as [0, 30, 60].")
    config, splits = load_run_data(run, overrides, upright, notify)
    with eval_mode(run.model):
        if is_segmentation(run.config.model):
            return _check_segmentation(run, splits, overrides, samples, angles, control, progress)
        if control:
            raise ValueError(
                "a control is for segmentation models, and this run classifies; check the other run by itself."
            )
        return _check_classifier(run, config, splits, samples, angles, progress)


def save_check(found: ClassifierCheck | SegmentationCheck, folder: Path, control_run: str | None = None) -> Path:
    """Write ``check.json`` into ``folder``, with the name of the control's run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "check.json"
    write_json(path, {**found.as_json(), **({"control_run": control_run} if control_run else {})})
    return path


def _check_classifier(
    run: RunFolder,
    config: DataConfig,
    splits: Splits,
    samples: int | None,
    angles: Sequence[float] | None,
    progress: ProgressBar,
) -> ClassifierCheck:
    group = run.model.in_type.group
    chosen = range(0, 361, _SAMPLE_STEP[group.dim]) if angles is None else angles
    x, labels = some_samples(splits.test, _SAMPLES[group.dim] if samples is None else samples)
    like = reference_parameter(run.model)
    x, labels = x.to(like), labels.to(like.device)
    with progress("rotating samples", len(chosen) * len(sweep_axes(group))) as advance:
        return check_classifier(run.model, x, labels, angles=chosen, mode=interpolation_mode(config), progress=advance)


def _check_segmentation(
    run: RunFolder,
    splits: Splits,
    overrides: Sequence[str],
    samples: int | None,
    angles: Sequence[float] | None,
    control: RunFolder | None,
    progress: ProgressBar,
) -> SegmentationCheck:
    group = run.model.in_type.group
    count = _CASES[group.dim] if samples is None else samples
    chosen = range(0, 360, _CASE_STEP[group.dim]) if angles is None else angles
    cases = _some_cases(run.model, splits, count)
    other = _control(control, overrides, count, cases, splits.classes) if control else None
    total = (len(chosen) * len(sweep_axes(group)) + _RANDOM) * (2 if other else 1)
    with progress("rotating cases", total) as advance:
        return check_segmentation(
            run.model,
            cases,
            angles=chosen,
            rotations=_RANDOM,
            control=other,
            memory=memory_budget(),
            progress=advance,
        )


def _some_cases(model: Model, splits: Splits, count: int) -> list[Scan]:
    """Test cases in the dtype and on the device of the model."""
    assert isinstance(splits.test, SegmentationDataset)
    like = reference_parameter(model)
    return [replace(case, x=case.x.to(like)) for case in some_cases(splits.test, count)]


def _control(
    run: RunFolder, overrides: Sequence[str], count: int, cases: Sequence[Scan], classes: Sequence[str]
) -> tuple[Model, list[Scan]]:
    """The other model and the same cases as it preprocesses them; their names and classes must agree."""
    if not is_segmentation(run.config.model):
        raise ValueError(f"{run.folder} classifies, but the control of a segmentation must be a segmentation.")
    _, splits = load_run_data(run, overrides, upright)
    others = _some_cases(run.model, splits, count)
    if splits.classes != classes:
        raise ValueError(
            f"{run.folder} has the classes {', '.join(splits.classes)}, but this run {', '.join(classes)}."
        )
    for theirs, ours in zip_longest(*([case.name for case in some] for some in (others, cases)), fillvalue="none"):
        if theirs != ours:
            raise ValueError(f"{run.folder} has other test cases: {theirs} where this run has {ours}.")
    return run.model, others
