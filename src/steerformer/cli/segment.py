"""What ``steerformer predict`` does with a model that segments: a label map for every file."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steerformer.cli.console import console, fail
from steerformer.cli.runs import progress_bar, what_failed

if TYPE_CHECKING:
    from steerformer.data.scans import Scan
    from steerformer.infer import Appetite, Segmented
    from steerformer.train import Run


@dataclass(frozen=True)
class Wishes:
    """What to write beside the labels, and how much memory to take."""

    probabilities: bool
    overlay: bool
    force: bool
    memory: str | None


@dataclass(frozen=True)
class _Job:
    """The file of a scan, or those of its modalities, and the files that are made of it."""

    scan: tuple[Path, ...]
    labels: Path
    probabilities: Path | None
    overlay: Path | None

    @property
    def outputs(self) -> list[Path]:
        return [path for path in (self.labels, self.probabilities, self.overlay) if path]


def segment_files(run: "Run", files: Sequence[Path], out: Path, wishes: Wishes) -> None:
    """Write label maps for all files of which that can be done, and end with a line about the others."""
    from steerformer.infer import Appetite
    from steerformer.infer.modalities import scans_of

    jobs = [_job(scan, out, wishes) for scan in scans_of(files, run.model.config.in_channels)]
    _require_free(jobs, force=wishes.force)
    memory, appetite = _bytes(wishes.memory), Appetite(run.model)
    out.mkdir(parents=True, exist_ok=True)
    bad: list[str] = []
    with progress_bar("segmenting", len(jobs)) as advance:
        for job in jobs:
            left = _Left(advance)
            problem = _do(run, job, memory, appetite, left.take)
            bad += [problem] if problem else []
            left.finish()
    count = len(jobs) - len(bad)
    console.print(
        f"wrote {count} label map{'s' * (count != 1)} into {out}{_peak(wishes.memory)}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    if bad:
        fail("; ".join([f"{len(bad)} of {len(jobs)} scans could not be segmented", *bad]) + ".")


class _Left:
    """What is left to do of one file: a bad one is done with at once."""

    def __init__(self, advance: Callable[[float], object]) -> None:
        self.advance, self.share = advance, 1.0

    def take(self, share: float) -> None:
        self.share -= share
        self.advance(share)

    def finish(self) -> None:
        self.take(self.share)


def _job(scan: tuple[Path, ...], out: Path, wishes: Wishes) -> _Job:
    from steerformer.infer.modalities import name_of

    name, ending = name_of(scan)
    scores = ".npy" if ending == ".png" else ending
    return _Job(
        scan,
        labels=out / f"{name}{ending}",
        probabilities=out / f"{name}-probabilities{scores}" if wishes.probabilities else None,
        overlay=out / f"{name}-overlay.png" if wishes.overlay else None,
    )


def _require_free(jobs: Sequence[_Job], *, force: bool) -> None:
    """Neither two results of one name, nor one that would write over a scan or, unless by force, over anything."""
    made: dict[Path, Path] = {}
    scans = {path.resolve() for job in jobs for path in job.scan}
    for job in jobs:
        for path in job.outputs:
            if path in made:
                raise ValueError(
                    f"{job.scan[0]} and {made[path]} would both become {path}; predict them into different folders."
                )
            if path.resolve() in scans:
                raise ValueError(f"{path} is one of the files to predict; give another folder by --out.")
            if path.exists() and not force:
                raise ValueError(f"{path} exists; give another --out, or --force to write over what is there.")
            made[path] = job.scan[0]


def _bytes(text: str | None) -> int | None:
    from steerformer.infer.memory import budget, parse_bytes

    return budget() if text is None else parse_bytes(text)


def _peak(allowed: str | None) -> str:
    """How much memory was taken, for those who set a limit."""
    from steerformer.infer.memory import as_text, highest

    peak = highest()
    return f", with {as_text(peak)} of memory at most ({allowed} allowed)" if allowed and peak else ""


def _do(
    run: "Run", job: _Job, memory: int | None, appetite: "Appetite", progress: Callable[[float], object]
) -> str | None:
    """Segment a scan and write what was found; what is wrong if that cannot be done."""
    from nibabel.spatialimages import HeaderDataError

    try:
        scan = _read(run, job.scan)
        _write(run, scan, _segment(run, scan, job, memory, appetite, progress), job)
    except OSError as error:
        return what_failed(error, job.scan[0])
    except ValueError as error:
        return str(error).removesuffix(".")
    except HeaderDataError as error:
        return f"{job.scan[0]}: {error}".removesuffix(".")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return f"{job.scan[0]}: memory ran out; free some, or give a lower --memory"
    return None


def _read(run: "Run", scan: tuple[Path, ...]) -> "Scan":
    from steerformer.data.scans import read_scan

    return read_scan(scan[0] if len(scan) == 1 else scan, run.model.config.in_channels, dim=run.model.in_type.group.dim)


def _segment(
    run: "Run",
    scan: "Scan",
    job: _Job,
    memory: int | None,
    appetite: "Appetite",
    progress: Callable[[float], object],
) -> "Segmented":
    from steerformer.data import DataError
    from steerformer.data.config import CasesConfig
    from steerformer.infer import segment

    config = run.config.data
    assert isinstance(config, CasesConfig)
    wanted = job.probabilities is not None
    try:
        return segment(
            run.model, scan, config, probabilities=wanted, memory=memory, progress=progress, appetite=appetite
        )
    except DataError:
        raise
    except ValueError as error:
        raise ValueError(f"{scan.path}: {error}") from None


def _write(run: "Run", scan: "Scan", found: "Segmented", job: _Job) -> None:
    """All files of a scan or none: one of them alone would look as if the scan were done."""
    from steerformer.data.scans import write_labels, write_probabilities

    with ExitStack() as undo:
        write_labels(scan, found.labels, job.labels, classes=len(run.classes))
        undo.callback(job.labels.unlink)
        if job.probabilities and found.probabilities is not None:
            write_probabilities(scan, found.probabilities, job.probabilities)
            undo.callback(job.probabilities.unlink)
        if job.overlay:
            from steerformer.infer.overlay import write_overlay

            write_overlay(scan.x, found.labels, job.overlay, classes=run.classes, spacing=scan.spacing)
        undo.pop_all()
