"""The environment of a run: versions, commit, hardware, command."""

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "lightning-fabric", "e3nn", "numpy", "scipy", "safetensors", "pydantic")


def describe_environment() -> dict[str, Any]:
    """Everything about this machine and this start that results may depend on."""
    gpus = range(torch.cuda.device_count())
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in ("steerformer", *_PACKAGES)},
        "commit": commit(Path(__file__).parents[1]),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": _memory_gb(),
        "gpus": [torch.cuda.get_device_name(i) for i in gpus],
    }


def is_first_process() -> bool:
    """Whether this is the first process; known from environment variables, before anything is set up."""
    return all(int(os.environ.get(name, "0")) == 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))


def commit(package: Path) -> dict[str, Any] | None:
    """Commit of the git checkout that ``package`` is part of, if any, and whether it has uncommitted changes."""
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py")
    head = _git(package, "rev-parse", "HEAD")
    if not tracked or not head:
        return None
    return {"hash": head, "changed": bool(_git(package, "status", "--porcelain", "--", "."))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    if name == "steerformer":
        from steerformer.version import __version__

        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Name of the processor; Linux has it in a file."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
