"""Classification of many files: a CSV table with the class and the probabilities of each."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from steerformer.infer.classification import Prediction, predict_classes, read_input
from steerformer.infer.predicted_files import PredictedFiles
from steerformer.infer.progress_bars import ProgressBar, no_progress_bar
from steerformer.io.atomic import write_atomic
from steerformer.runs.run_folder import RunFolder

_BATCH = 32


def classify_files(
    run: RunFolder,
    files: Sequence[Path],
    out: Path | None = None,
    *,
    force: bool = False,
    progress: ProgressBar = no_progress_bar,
) -> PredictedFiles:
    """Classify every file that can be read; the others do not stop it.

    Args:
        run: a run whose model classifies.
        files: images or volumes.
        out: CSV file to write, if any.
        force: overwrite a file that exists.
        progress: shows the progress.
    """
    if out is not None and out.exists() and not force:
        raise ValueError(f"{out} exists; choose another out (--out), or force=True (--force) to overwrite it.")
    predictions: list[Prediction] = []
    errors: list[str] = []
    with progress("predicting", len(files)) as advance:
        for paths, x in _batches(run, files, errors):
            predictions += predict_classes(run, x, [str(path) for path in paths])
            advance(len(paths))
    table = prediction_table(predictions, run.classes)
    if out is not None:
        write_atomic(out, table)
    return PredictedFiles(len(files), (out,) if out else (), tuple(errors), table)


def prediction_table(predictions: Sequence[Prediction], classes: Sequence[str]) -> str:
    """A CSV line for each prediction."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["file", "class", *classes])
    for prediction in predictions:
        shares = (f"{share:.6f}" for share in prediction.probabilities.values())
        table.writerow([prediction.name, prediction.label, *shares])
    return text.getvalue()


def _batches(run: RunFolder, files: Sequence[Path], errors: list[str]) -> Iterator[tuple[list[Path], Tensor]]:
    """Readable files in batches; a line for each of the others is added to ``errors``."""
    for start in range(0, len(files), _BATCH):
        names, samples = [], []
        for path in files[start : start + _BATCH]:
            try:
                samples.append(read_input(run, path))
                names.append(path)
            except (ValueError, OSError) as error:
                errors.append(str(error).removesuffix("."))
        if samples:
            yield names, torch.stack(samples)
