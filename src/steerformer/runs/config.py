"""The experiment configuration: model, data, training and seed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from steerformer import models
from steerformer.config import Config, ConfigError, override, read_yaml, validate
from steerformer.data.config import DataConfig
from steerformer.models.config import ModelConfig

LOSSES = ("cross_entropy", "dice", "focal")


def loss_terms(name: str) -> tuple[str, ...]:
    """The terms of a sum of losses; ``ValueError`` for an unknown or repeated one.

    >>> loss_terms("cross_entropy + dice")
    ('cross_entropy', 'dice')
    """
    parts = tuple(part.strip() for part in name.split("+"))
    if not set(parts) <= set(LOSSES) or len(set(parts)) < len(parts):
        raise ValueError(f"losses are {', '.join(LOSSES)} and sums such as cross_entropy+dice, got {name!r}")
    return parts


Positive = Annotated[int, Field(ge=1, le=10**9)]
Few = Annotated[int, Field(ge=1, le=4096)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
LossName = Annotated[str, AfterValidator(lambda name: "+".join(loss_terms(name)))]


class TrainingConfig(Config):
    """How a model is trained. The defaults are a modern recipe; the paper uses ``adam`` with ``step``."""

    model_config = ConfigDict(allow_inf_nan=False)

    epochs: Positive = 20
    """Epochs: each is one pass over the training samples, or several."""
    batch_size: Positive = 50
    """Samples per optimizer step, over all processes and accumulated parts."""
    accumulate: Positive = 1
    """Gradient accumulation: number of parts into which each process splits its share of a batch. Less memory and the
    same gradient, except that batch normalization sees one part at a time."""
    passes: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Passes over the training samples in one epoch. With few samples, epochs of several passes need fewer validations
    and checkpoints."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """adamw: decoupled weight decay, except for gains of norms and biases; adam: L2 on everything, as in the paper."""
    learning_rate: Annotated[float, Field(gt=0, le=1e3)] = 3e-3
    """Largest learning rate, after the warm-up."""
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 1e-2
    """Weight decay of the optimizer."""
    schedule: Literal["cosine", "onecycle", "step", "constant"] = "cosine"
    """cosine: linear warm-up, then cosine decay to 0; onecycle: cosine warm-up for at least 30 % of the run, then
    cosine decay; step: times step_factor every step_every epochs, as in the paper, without warm-up; constant:
    constant after the warm-up."""
    warmup: Annotated[float, Field(ge=0)] = 1.0
    """Warm-up epochs, at most half of all. The schedule step has none."""
    step_every: Positive = 20
    """step: epochs between two changes of the learning rate."""
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """step: factor of each change of the learning rate."""
    clip: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """Gradient clipping: largest norm of the gradient."""
    loss: LossName = "cross_entropy"
    """cross_entropy, dice, focal, or a sum of them such as cross_entropy+dice; dice is for segmentation alone."""
    label_smoothing: Fraction = 0.0
    """Label smoothing of the cross entropy."""
    ema: Fraction | None = None
    """Decay of the exponential moving average (EMA) of the weights, which is then validated, tested and saved."""
    validate_every: Positive = 1
    """Epochs between two validations; the last epoch always has one. Validation on whole scans may take longer than an
    epoch of training on patches."""
    patience: Positive | None = None
    """Early stopping: stop after this many epochs without a better validation accuracy or Dice, or an equal one with a
    lower loss."""
    precision: Literal["32", "bf16", "fp16", "64"] = "32"
    """32, 64, or mixed precision: bf16 on new devices, fp16 on older GPUs."""
    devices: Few | Literal["auto"] = "auto"
    """Processes per machine: auto uses all GPUs, or one process on a machine without GPUs."""
    num_nodes: Few = 1
    """Machines."""
    strategy: Literal["auto", "ddp"] = "auto"
    """Distribution over processes: auto lets Fabric choose; ddp: distributed data parallel."""
    threads: Few | None = None
    """CPU threads per process; null leaves it to torch."""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    """Data loader workers."""
    eval_batch_size: Positive = 250
    """Samples per batch in validation and test; segmentations go case by case."""
    log_every: Positive = 50
    """Steps between two points of the loss curve in TensorBoard."""
    checkpoint_every: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between two checkpoints within an epoch; every epoch ends with one."""

    @model_validator(mode="before")
    @classmethod
    def _plain_precision(cls, values: Any) -> Any:
        """YAML reads 32 as a number."""
        if isinstance(values, dict) and isinstance(values.get("precision"), int):
            return {**values, "precision": str(values["precision"])}
        return values

    @model_validator(mode="after")
    def _parts_are_whole(self) -> "TrainingConfig":
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by accumulate = {self.accumulate}")
        return self

    @model_validator(mode="after")
    def _patience_meets_validations(self) -> "TrainingConfig":
        if self.patience is not None and self.patience % self.validate_every:
            raise ValueError(
                f"patience {self.patience} ends between two validations; use a multiple of validate_every = "
                f"{self.validate_every}"
            )
        return self


class ExperimentConfig(Config):
    """Everything that determines the result of a run."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig = TrainingConfig()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the weights, the order of samples and dropout."""


def load_experiment(name_or_path: str | Path, overrides: Iterable[str] = ()) -> ExperimentConfig:
    """The experiment of a preset, a YAML file or a run folder, with overrides such as ``training.epochs=3``."""
    values = override(_read(str(name_or_path)), overrides)
    experiment: ExperimentConfig = validate(ExperimentConfig, values, where=str(name_or_path))
    return experiment


def _read(name: str) -> dict[str, Any]:
    path, known = Path(name), models.presets()
    if (path / "config.yaml").is_file():
        return read_yaml(path / "config.yaml")
    if path.is_dir() and name not in known:
        raise ConfigError(f"{path} is a folder without a run; name a preset, a YAML file or a run folder.")
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return read_yaml(path)
    if name not in known:
        hint = models.preset_hint(name) or "."
        raise ConfigError(
            f"there is no preset and no file {name!r}{hint} 'steerformer train --list' shows all presets."
        )
    return models.preset(name)
