"""Evaluation of trained models on a split of a data set."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.config import ConfigError, override, validate
from steerformer.data import DataConfig, SegmentationDataConfig, SegmentationDataset, Splits, load
from steerformer.data.rotation import interpolation_mode
from steerformer.infer.classification import equally_spaced_rotations, rotation_averaged_probabilities
from steerformer.infer.memory import memory_budget
from steerformer.infer.progress_bars import ProgressBar, no_progress_bar
from steerformer.infer.window_memory import WindowMemory
from steerformer.infer.windows import predict_logits
from steerformer.io.atomic import write_atomic, write_json
from steerformer.io.errors import DataError
from steerformer.io.scans import Scan
from steerformer.metrics.accuracy import classification_scores
from steerformer.metrics.case_scores import CaseScores, case_table, summarize_cases
from steerformer.metrics.overlap import class_structures, overlaps, tumor_regions
from steerformer.models.eval_mode import eval_mode, reference_parameter
from steerformer.runs.compatibility import is_segmentation, require_compatible
from steerformer.runs.run_folder import RunFolder
from steerformer.runs.spacing_range import SpacingRange, adapt_to_spacing, describe_spacing

Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits ``(batch, class, *space)`` and labels ``(batch, *space)`` to a mean over the batch."""
Notify = Callable[[str], object]
"""Called with one line of text for the user."""
_SPLITS = ("train", "validation", "test")
Predict = Callable[[nn.Module, Tensor], Tensor]
"""Logits ``(class, *space)`` of one case ``(channel, *space)`` by a model in eval mode."""


def load_run_data(
    run: RunFolder,
    overrides: Sequence[str] = (),
    adapt: Callable[[DataConfig], DataConfig] = lambda config: config,
    notify: Notify = lambda line: None,
) -> tuple[DataConfig, Splits]:
    """The data of a run, or other data by ``data.*`` overrides; ``adapt`` changes the configuration before them.

    Other data whose voxels are unlike those of the training cases are resampled; ``notify`` is called with one line
    that says so.
    """
    for word in overrides:
        if not word.startswith("data."):
            raise ConfigError(f"only data.* can be changed for a trained model, got {word!r}.")
    values = override({"data": adapt(run.config.data).model_dump()}, overrides)["data"]
    config: DataConfig = validate(DataConfig, values, where="data")
    if config.root is not None and not config.root.is_absolute() and not config.root.exists():
        raise DataError(
            f"there is no {config.root} here: {run.folder} names its data relative to the folder in which it was "
            f"trained; give data.root=PATH."
        )
    splits = load(config)
    known, found = run.spacing, SpacingRange.of_training(splits)
    if isinstance(config, SegmentationDataConfig) and known and found:
        where = config.root or config.name
        adapted = adapt_to_spacing(config, known, found.median, name=where, is_stated=True)
        if adapted is not config:
            notify(
                f"{where} has voxels of {describe_spacing(found.median)}, unlike the training cases; its cases are "
                f"resampled to {describe_spacing(known.median)}, and scored there"
            )
            config, splits = adapted, load(adapted)
    require_compatible(run.model, splits, run.config)
    if splits.classes != run.classes and not all(name.isdigit() for name in run.classes):
        raise ConfigError(
            f"the run has the classes {_first_few(run.classes)}, but the data have {_first_few(splits.classes)}."
        )
    return config, splits


def evaluate_cases(
    model: nn.Module,
    cases: Any,
    numbers: Iterable[int],
    *,
    classes: Sequence[str],
    loss: Loss | None = None,
    distances: bool = True,
    predict: Predict | None = None,
    watch: Callable[[int, Tensor, CaseScores], object] | None = None,
) -> list[CaseScores]:
    """Compare predictions for some of ``cases`` with their labels, one whole case at a time.

    Dice and HD95 are measured on the grid of the preprocessed cases, not on that of the scans. A structure that exists
    in the scan, but neither on this grid nor in the prediction, is missed.

    Args:
        cases: with ``cases[i] -> (x, labels)``, ``names``, ``spacing(i)`` and ``present(i)``, the classes in the scan;
            shapes may differ.
        loss: measured too, if given; else 0.
        distances: measure HD95, which takes time.
        predict: computes logits, for cases too large for one pass; :func:`predict_whole` by default.
        watch: called with the number, the predicted labels and the scores of each case.
    """
    structures, regions = class_structures(classes), tumor_regions(classes)
    results = []
    with eval_mode(model):
        for number in numbers:
            x, labels = cases[number]
            logits = (predict or predict_whole)(model, x)
            labels = labels.to(logits.device)
            cost = loss(logits[None].float(), labels[None]).item() if loss else 0.0
            predicted = logits.argmax(dim=0)
            spacing = tuple(cases.spacing(number)) if distances else None
            known = cases.present(number)
            parts = (overlaps(predicted, labels, s, spacing=spacing, present=known) for s in (structures, regions))
            results.append(CaseScores(cases.names[number], cost, *parts))
            if watch:
                watch(number, predicted.cpu(), results[-1])
    return results


def predict_whole(model: nn.Module, x: Float[Tensor, "channel *space"]) -> Float[Tensor, "class *space"]:
    """Logits of a whole case in one pass."""
    return model(x.to(reference_parameter(model))[None])[0]


class MemoryLimitedPredict:
    """Logits of whole cases, in windows if they do not fit into the available memory."""

    def __init__(self, model: nn.Module) -> None:
        self.window_memory, self.memory = WindowMemory(model), memory_budget()
        self.in_windows = 0
        """Number of cases that did not fit."""

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        shares: list[float] = []
        logits = predict_logits(model, x, memory=self.memory, window_memory=self.window_memory, progress=shares.append)
        self.in_windows += len(shares) > 1
        return logits


@dataclass(frozen=True, eq=False)
class ExampleCase:
    """A case chosen to be shown, with its prediction."""

    title: str
    scan: Scan
    predicted: Tensor


@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """Metrics of a run on a split; for segmentation also the scores of each case, and examples."""

    metrics: dict[str, Any]
    """``accuracy``, ``per_class``, ``confusion``, ...; or ``dice``, ``hd95``, ``structures``, ``missed``, ...: as in
    ``evaluation-*.json``."""
    cases: list[CaseScores] = field(default_factory=list)
    examples: list[ExampleCase] = field(default_factory=list, repr=False)
    """The best, the median and the worst case."""
    files: tuple[Path, ...] = ()
    """Files that were written."""


def evaluate_run(
    run: RunFolder,
    overrides: Sequence[str] = (),
    *,
    split: str = "test",
    rotations: int = 1,
    batch_size: int = 250,
    progress: ProgressBar = no_progress_bar,
    notify: Notify = lambda line: None,
) -> RunEvaluation:
    """Evaluate a run on a split of its data, or of other data by overrides."""
    if split not in _SPLITS:
        raise ValueError(f"split is one of {', '.join(_SPLITS)}; got {split!r}.")
    for name, value in {"rotations": rotations, "batch_size": batch_size}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if is_segmentation(run.config.model) and rotations > 1:
        raise ValueError(
            "rotations (--rotations) above 1 are for classifiers; rotate the cases of a segmentation by "
            "data.test_rotation=any."
        )
    config, splits = load_run_data(run, overrides, notify=notify)
    if not len(getattr(splits, split)):
        raise ValueError(f"there are no samples in {split}; set data.validation to have some for validation.")
    if is_segmentation(run.config.model):
        found = _evaluate_segmentation(run, splits, split, progress)
    else:
        found = _evaluate_classifier(run, config, splits, split, rotations, batch_size, progress)
    details = {
        **{"split": split, "rotations": rotations, "changes": list(overrides)},
        **{"data": config.model_dump(mode="json"), "classes": list(splits.classes)},
    }
    return replace(found, metrics={**found.metrics, **details})


def save_evaluation(found: RunEvaluation, path: Path) -> tuple[Path, ...]:
    """Write the metrics to the JSON file ``path`` and the scores of cases, if any, to a .csv beside it."""
    write_json(path, found.metrics)
    if not found.cases:
        return (path,)
    table = path.with_suffix(".csv")
    write_atomic(table, case_table(found.cases))
    return path, table


def _evaluate_classifier(
    run: RunFolder,
    config: DataConfig,
    splits: Splits,
    split: str,
    rotations: int,
    batch_size: int,
    progress: ProgressBar,
) -> RunEvaluation:
    """Accuracy, with probabilities averaged over equally spaced rotations."""
    samples, group, mode = getattr(splits, split), run.model.in_type.group, interpolation_mode(config)
    with progress(f"evaluating {split}", len(samples)) as advance:
        scores, labels, single = rotation_averaged_probabilities(
            run.model,
            samples,
            equally_spaced_rotations(group, rotations),
            mode=mode,
            batch_size=batch_size,
            progress=advance,
        )
    where = "in the plane" if group.dim == 2 else "about z"
    found = classification_scores(scores, labels, splits.classes)
    return RunEvaluation({**found.as_json(), "mean_accuracy": single, "rotated": f"{where}, equally spaced, {mode}"})


def _evaluate_segmentation(run: RunFolder, splits: Splits, split: str, progress: ProgressBar) -> RunEvaluation:
    """Dice and HD95 of whole cases."""
    cases, predict = getattr(splits, split).whole(), MemoryLimitedPredict(run.model)
    with progress(f"evaluating {split}", len(cases)) as advance:
        scores = evaluate_cases(
            run.model,
            cases,
            range(len(cases)),
            classes=splits.classes,
            predict=predict,
            watch=lambda number, labels, result: advance(),
        )
    unit = "mm" if run.model.in_type.group.dim == 3 else "pixels"
    metrics = {**summarize_cases(scores), "unit": unit, "in_windows": predict.in_windows}
    return RunEvaluation(metrics, scores, _examples(run, cases, scores, splits.classes, predict))


def _examples(
    run: RunFolder, cases: SegmentationDataset, scores: Sequence[CaseScores], classes: Sequence[str], predict: Predict
) -> list[ExampleCase]:
    """The best, the median and the worst case, predicted again: keeping all label maps would not fit into memory."""
    chosen = best_median_worst([result.dice for result in scores])
    titles = {number: word for word, number in chosen.items()}
    examples: list[ExampleCase] = []

    def add(number: int, predicted: Tensor, result: CaseScores) -> None:
        title = f"{titles[number]}: {result.name}\nDice {100 * (result.dice or 0):.1f} %"
        examples.append(ExampleCase(title, cases.scan(number), predicted))

    evaluate_cases(run.model, cases, chosen.values(), classes=classes, distances=False, predict=predict, watch=add)
    return examples


def best_median_worst(scores: Sequence[float | None]) -> dict[str, int]:
    """Numbers of the best, median and worst case; fewer if fewer have a score.

    >>> best_median_worst([0.5, None, 0.9, 0.1])
    {'best': 2, 'median': 0, 'worst': 3}
    """
    ranked = sorted(((score, number) for number, score in enumerate(scores) if score is not None), reverse=True)
    places = {"best": 0, "median": len(ranked) // 2, "worst": len(ranked) - 1}
    if len(ranked) == 2:
        del places["median"]
    names = {place: name for name, place in reversed(places.items())}  # a single case is the best
    return {names[place]: ranked[place][1] for place in sorted(names) if ranked}


def _first_few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
