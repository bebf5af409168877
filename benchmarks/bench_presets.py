"""Training steps of presets now, at an earlier commit, and of their plain controls: times, memory and losses."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from measure import in_ms, interleave
from worker import Worker

ROOT = Path(__file__).parent.parent
COMMIT = "b60a748"
"""The version to compare with: the last one before training was made faster."""
BEFORE, SAME, NOW, CONTROL = CONTESTANTS = ("before", "same configuration", "now", "control")
LOSS_STEPS = 20
MEGABYTE = 1e6


@dataclass(frozen=True)
class PresetCase:
    """A preset, its plain control, the shape of its batches, and how many times faster its step must be."""

    preset: str
    control: str
    batch: int
    space: tuple[int, ...]
    faster_limit: float
    compares_losses: bool = True

    @property
    def step_name(self) -> str:
        return f"training step {self.preset}"

    @property
    def losses_name(self) -> str:
        return f"losses {self.preset}"


CASES = (
    PresetCase("hippocampus-transformer-l2-cpu", "hippocampus-monai-cpu", 2, (40, 48, 40), faster_limit=3),
    PresetCase("modelnet10-transformer-l3-cpu", "modelnet10-cnn-cpu", 16, (24, 24, 24), faster_limit=3),
    PresetCase("ph2-transformer-k4-cpu", "ph2-monai-cpu", 4, (144, 192), faster_limit=2),
    PresetCase("rotmnist-transformer-k8-cpu", "rotmnist-cnn-cpu", 50, (28, 28), faster_limit=1.5),
    PresetCase("rotmnist-transformer-k4-cpu", "rotmnist-cnn-cpu", 50, (28, 28), 1.5, compares_losses=False),
)
LOSS_OVERRIDES = {
    "NormReLU, float64": ("model.nonlinearity=norm", "training.precision=64"),
    "NormReLU": ("model.nonlinearity=norm",),
    "nonlinearity of the preset": (),
}
"""What the losses are compared with: FourierReLU has other grids of directions than before, NormReLU has none."""


def has_commit(root: Path) -> bool:
    """Whether the version to compare with is in the history of ``root``; an export or a shallow clone has none."""
    command = ["git", "-C", str(root), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return shutil.which("git") is not None and subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def source_before(root: Path) -> Iterator[Path]:
    """Temporary folder with the package as it was at :data:`COMMIT`."""
    archive = subprocess.run(["git", "-C", str(root), "archive", COMMIT, "src"], stdout=subprocess.PIPE, check=True)
    with TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
        yield Path(folder) / "src"


def measure_steps(case: PresetCase, *, threads: int, rounds: int = 25) -> dict[str, Any]:
    """Seconds of interleaved training steps of all contestants, each in its own process, and their peak memory."""
    shape: dict[str, Any] = {"batch": case.batch, "space": case.space, "threads": threads}
    with source_before(ROOT) as old, ExitStack() as running:
        contestants = {
            BEFORE: Worker(old, case.preset, **shape),
            SAME: Worker(ROOT / "src", preset_before(old, case.preset), **shape),
            NOW: Worker(ROOT / "src", case.preset, **shape),
            CONTROL: Worker(ROOT / "src", case.control, **shape),
        }
        workers = {name: running.enter_context(worker) for name, worker in contestants.items()}
        timers = {name: lambda worker=worker: worker.step()["seconds"] for name, worker in workers.items()}
        times = interleave(timers, rounds=rounds, warmup=2)
        peaks = {name: round(worker.allocated_peak()["bytes"] / MEGABYTE, 1) for name, worker in workers.items()}
    return {
        "name": case.step_name,
        "preset": case.preset,
        "control": case.control,
        "batch": case.batch,
        "space": list(case.space),
        "commit": COMMIT,
        "rounds_ms": in_ms(times),
        "peak_mb": peaks,
        "faster_limit": case.faster_limit,
    }


def compare_losses(case: PresetCase, *, threads: int) -> dict[str, Any]:
    """Losses of the first steps with the configuration of before, in both versions, and their largest difference."""
    found = {}
    with source_before(ROOT) as old:
        experiment = preset_before(old, case.preset)
        for label, overrides in LOSS_OVERRIDES.items():
            shape: dict[str, Any] = {"batch": case.batch, "space": case.space, "threads": threads}
            losses = {}
            for name, source in ((BEFORE, old), (NOW, ROOT / "src")):
                with Worker(source, experiment, overrides=overrides, **shape) as worker:
                    losses[name] = [worker.step()["loss"] for _ in range(LOSS_STEPS)]
            found[label] = losses | {"difference": largest_difference(losses[BEFORE], losses[NOW])}
    return {"name": case.losses_name, "preset": case.preset, "commit": COMMIT, "comparisons": found}


def preset_before(source: Path, name: str) -> dict[str, Any]:
    """The preset of this name in another version, as in its YAML file."""
    return yaml.safe_load((source / "steerformer" / "configs" / f"{name}.yaml").read_text())


def largest_difference(losses: list[float], others: list[float]) -> float:
    """Largest relative difference of two sequences, with two significant digits."""
    return float(f"{max(abs(a - b) / abs(a) for a, b in zip(losses, others, strict=True)):.2g}")
