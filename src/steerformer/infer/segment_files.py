"""Segmentation of many files: a label map for each, in the geometry of the scan."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from steerformer.data.config import SegmentationDataConfig
from steerformer.infer.memory import memory_budget
from steerformer.infer.predicted_files import PredictedFiles
from steerformer.infer.progress_bars import ProgressBar, no_progress_bar
from steerformer.infer.segmentation import Segmentation, segment
from steerformer.infer.window_memory import WindowMemory
from steerformer.io.errors import DataError, describe_os_error
from steerformer.io.modalities import group_modalities, output_name
from steerformer.io.scans import Scan, read_scan, write_labels, write_probabilities
from steerformer.models import Model
from steerformer.runs.run_folder import RunFolder
from steerformer.runs.spacing_range import adapt_to_spacing, resampled_line

Draw = Callable[[Scan, Segmentation, Path], None]
"""Draws a scan with its segmentation into a file."""


@dataclass(frozen=True)
class _Job:
    """The files of one scan, and the files to write for it."""

    scan: tuple[Path, ...]
    labels: Path
    probabilities: Path | None
    overlay: Path | None

    @property
    def outputs(self) -> list[Path]:
        return [path for path in (self.labels, self.probabilities, self.overlay) if path]


def segment_files(
    run: RunFolder,
    files: Sequence[Path],
    out: Path,
    *,
    probabilities: bool = False,
    draw_overlay: Draw | None = None,
    force: bool = False,
    memory: int | None = None,
    progress: ProgressBar = no_progress_bar,
    notify: Callable[[str], object] = lambda line: None,
) -> PredictedFiles:
    """Write a label map for every file that can be segmented; a failing file does not stop the others.

    Args:
        run: a run whose model segments.
        files: images or volumes; NAME_0000, NAME_0001, ... are modalities of one scan.
        out: folder for the label maps.
        probabilities: also write the probabilities of all classes.
        draw_overlay: draws ``NAME-overlay.png`` for each scan.
        force: overwrite files that exist.
        memory: limit for the peak memory of the process in bytes; by default what is free.
        progress: shows the progress.
        notify: called with one line if scans had to be resampled to the voxel spacing of the training cases.
    """
    scans = group_modalities(files, run.model.config.in_channels)
    jobs = [_job(scan, out, probabilities, draw_overlay is not None) for scan in scans]
    _require_new_files(jobs, force=force)
    limit = memory_budget() if memory is None else memory
    window_memory = WindowMemory(run.model)
    out.mkdir(parents=True, exist_ok=True)
    written, errors = [], []
    resampled: dict[str, tuple[float, ...]] = {}
    with progress("segmenting", len(jobs)) as advance:
        for job in jobs:
            shares: list[float] = []

            def step(share: float, shares: list[float] = shares) -> None:
                shares.append(share)
                advance(share)

            error = _try(run, job, limit, window_memory, step, draw_overlay, resampled)
            errors += [error] if error else []
            written += [] if error else [job.labels]
            advance(1 - sum(shares))
    if resampled and run.spacing:
        notify(resampled_line(resampled, run.spacing))
    return PredictedFiles(len(jobs), tuple(written), tuple(errors))


def _job(scan: tuple[Path, ...], out: Path, probabilities: bool, overlay: bool) -> _Job:
    name, suffix = output_name(scan)
    scores = ".npy" if suffix == ".png" else suffix
    return _Job(
        scan,
        labels=out / f"{name}{suffix}",
        probabilities=out / f"{name}-probabilities{scores}" if probabilities else None,
        overlay=out / f"{name}-overlay.png" if overlay else None,
    )


def _require_new_files(jobs: Sequence[_Job], *, force: bool) -> None:
    """Reject outputs with the same name, and outputs that would overwrite a scan or, without ``force``, any file."""
    made: dict[Path, Path] = {}
    scans = {path.resolve() for job in jobs for path in job.scan}
    for job in jobs:
        for path in job.outputs:
            if path in made:
                raise ValueError(
                    f"{job.scan[0]} and {made[path]} would both become {path}; predict them into different folders."
                )
            if path.resolve() in scans:
                raise ValueError(f"{path} is one of the files to predict; choose another folder by out (--out).")
            if path.exists() and not force:
                raise ValueError(f"{path} exists; choose another out (--out), or force=True (--force) to overwrite it.")
            made[path] = job.scan[0]


def _try(
    run: RunFolder,
    job: _Job,
    memory: int | None,
    window_memory: WindowMemory,
    progress: Callable[[float], object],
    draw_overlay: Draw | None,
    resampled: dict[str, tuple[float, ...]],
) -> str | None:
    """Segment a scan and write the results; the error in one line if that fails."""
    from nibabel.spatialimages import HeaderDataError

    channels, dim = run.model.config.in_channels, run.model.in_type.group.dim
    try:
        scan = read_scan(job.scan[0] if len(job.scan) == 1 else job.scan, channels, dim=dim)
        assert isinstance(run.config.data, SegmentationDataConfig)
        config = adapt_to_spacing(
            run.config.data, run.spacing, scan.spacing, name=scan.path, is_stated=scan.geometry is not None
        )
        found = _segment(run.model, scan, config, job, memory, window_memory, progress)
        _write(run, scan, found, job, draw_overlay)
        if config is not run.config.data:
            resampled[scan.name] = scan.spacing
    except OSError as error:
        return describe_os_error(error, job.scan[0])
    except ValueError as error:
        return str(error).removesuffix(".")
    except HeaderDataError as error:
        return f"{job.scan[0]}: {error}".removesuffix(".")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return f"{job.scan[0]}: out of memory; free some, or set a lower memory (--memory)"
    return None


def _segment(
    model: Model,
    scan: Scan,
    config: SegmentationDataConfig,
    job: _Job,
    memory: int | None,
    window_memory: WindowMemory,
    progress: Callable[[float], object],
) -> Segmentation:
    try:
        return segment(
            model,
            scan,
            config,
            probabilities=job.probabilities is not None,
            memory=memory,
            progress=progress,
            window_memory=window_memory,
        )
    except DataError:
        raise
    except ValueError as error:
        raise ValueError(f"{scan.path}: {error}") from None


def _write(run: RunFolder, scan: Scan, found: Segmentation, job: _Job, draw_overlay: Draw | None) -> None:
    """Write all files of a scan or none: one alone would look as if the scan were finished."""
    with ExitStack() as undo:
        write_labels(scan, found.labels, job.labels, classes=len(run.classes))
        undo.callback(job.labels.unlink)
        if job.probabilities and found.probabilities is not None:
            write_probabilities(scan, found.probabilities, job.probabilities)
            undo.callback(job.probabilities.unlink)
        if job.overlay and draw_overlay:
            draw_overlay(scan, found, job.overlay)
        undo.pop_all()
