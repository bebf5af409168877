"""The result of predicting many files."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PredictedFiles:
    """Files that were written, and one line for each input that failed."""

    count: int
    """Number of inputs."""
    written: tuple[Path, ...]
    """Label maps, or the CSV file."""
    errors: tuple[str, ...]
    table: str | None = None
    """Classification: CSV with the class and the probabilities of each file."""
