"""What a model is trained for: which loss, how answers are counted, how a split is judged."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lightning_fabric import Fabric
from torch import Tensor, nn

from steerformer.train.config import TrainingConfig
from steerformer.train.losses import make_loss


@dataclass(frozen=True)
class Verdict:
    """What a model is worth on some samples."""

    loss: float
    score: float
    figures: dict[str, Any] = field(default_factory=dict)
    """More of them, as JSON has them."""
    table: str | None = None
    """A line for each case, as CSV."""


class Task(ABC):
    """What a :class:`~steerformer.train.loop.Loop` has to know about what it trains for.

    Args:
        config: with the loss.
        classes: names of the classes.
    """

    score: ClassVar[str]
    """Name of the score, which is better when higher, from 0 to 1."""

    def __init__(self, config: TrainingConfig, classes: tuple[str, ...]) -> None:
        self.config, self.classes = config, classes
        self.loss = make_loss(config.loss, label_smoothing=config.label_smoothing)

    @abstractmethod
    def tally(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Numbers that are added up over parts, processes and steps."""

    @abstractmethod
    def mean(self, tally: Sequence[float]) -> float:
        """The score of all that was added up."""

    @abstractmethod
    def judge(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> Verdict:
        """The model on samples, of which each process takes its share; ``final`` is the test, with all figures."""

    @abstractmethod
    def is_sound(self, model: nn.Module, samples: Any) -> bool:
        """Whether logits of a few samples are finite."""
