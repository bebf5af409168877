"""What an experiment is: a model, data, training and a seed, as values that can be written into a file."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from steerformer import models
from steerformer.config import Config, ConfigError, override, read_yaml, validate
from steerformer.data.config import DataConfig
from steerformer.models.config import ModelConfig
from steerformer.train.losses import loss_parts

Positive = Annotated[int, Field(ge=1, le=10**9)]
Few = Annotated[int, Field(ge=1, le=4096)]
Share = Annotated[float, Field(ge=0, lt=1)]
LossName = Annotated[str, AfterValidator(lambda name: "+".join(loss_parts(name)))]


class TrainingConfig(Config):
    """How a model is trained. The defaults are a modern recipe; the paper's is ``adam`` with ``step``."""

    model_config = ConfigDict(allow_inf_nan=False)

    epochs: Positive = 20
    batch_size: Positive = 50
    """Samples in a step, over all processes and all accumulated parts together."""
    accumulate: Positive = 1
    """Parts that the share of each process is cut into, one after the other: less memory, the same gradient, except
    that batch normalization sees one part at a time."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """adamw: decoupled weight decay, which spares the gains of norms and all biases; adam: L2 on everything, as in the
    paper."""
    learning_rate: Annotated[float, Field(gt=0, le=1e3)] = 3e-3
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 1e-2
    schedule: Literal["cosine", "onecycle", "step", "constant"] = "cosine"
    """cosine: straight up during the warm-up, then down to 0 along a cosine; onecycle: the same with a gentle
    start, and a warm-up of at least 30 % of the run; step: times step_factor every step_every epochs, as in the paper,
    and without a warm-up; constant: after the warm-up always the same."""
    warmup: Annotated[float, Field(ge=0)] = 1.0
    """Epochs during which the learning rate grows; at most half of all. The schedule step has none."""
    step_every: Positive = 20
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    clip: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """Longest gradient; longer ones are shortened to it."""
    loss: LossName = "cross_entropy"
    """cross_entropy, dice, focal, or a sum of them such as cross_entropy+dice; dice is for segmentation alone."""
    label_smoothing: Share = 0.0
    """Part of the cross entropy that is spread over all classes."""
    ema: Share | None = None
    """Decay of a moving average of the weights, which is then what is validated, tested and kept as best."""
    validate_every: Positive = 1
    """Epochs between two validations, of which the last epoch has one in any case: whole scans may take longer to
    validate on than an epoch of patches takes to learn."""
    patience: Positive | None = None
    """Stop after so many epochs without progress on the validation samples: a better accuracy or Dice, or the same
    one with a lower loss."""
    precision: Literal["32", "bf16", "fp16", "64"] = "32"
    """32, 64, or 16-bit arithmetic where it is safe: bf16 on new devices, fp16 on older GPUs."""
    devices: Few | Literal["auto"] = "auto"
    """Processes on each machine: auto takes all GPUs, or one process on a machine without."""
    num_nodes: Few = 1
    """Machines."""
    strategy: Literal["auto", "ddp"] = "auto"
    threads: Few | None = None
    """Threads of each process; null leaves it to torch."""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    """Processes that read data ahead."""
    eval_batch_size: Positive = 250
    log_every: Positive = 50
    """Steps between two points of the loss in TensorBoard."""
    checkpoint_every: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between two checkpoints within an epoch; there is one after each epoch anyway."""

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
            raise ValueError(
                f"batch_size {self.batch_size} cannot be cut into accumulate = {self.accumulate} equal parts"
            )
        return self

    @model_validator(mode="after")
    def _patience_meets_validations(self) -> "TrainingConfig":
        if self.patience is not None and self.patience % self.validate_every:
            raise ValueError(
                f"patience {self.patience} would end between two validations; set a multiple of validate_every = "
                f"{self.validate_every}"
            )
        return self


class ExperimentConfig(Config):
    """All that decides what a run gives."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig = TrainingConfig()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Start of all random numbers: weights, order of samples, dropout."""


def load_experiment(name_or_path: str | Path, words: Iterable[str] = ()) -> ExperimentConfig:
    """The preset, the YAML file or the run folder of that name, with ``training.epochs=3`` and the like applied."""
    values = override(_read(str(name_or_path)), words)
    experiment: ExperimentConfig = validate(ExperimentConfig, values, where=str(name_or_path))
    return experiment


def _read(name: str) -> dict[str, Any]:
    path, known = Path(name), models.presets()
    if (path / "config.yaml").is_file():
        return read_yaml(path / "config.yaml")
    if path.is_dir() and name not in known:
        raise ConfigError(f"{path} is a folder, but holds no run; give a preset, a YAML file or a run folder.")
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return read_yaml(path)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"there is no preset and no file {name!r}{hint} 'steerformer train --list' shows all presets."
        )
    return models.preset(name)
