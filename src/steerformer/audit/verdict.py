"""The verdict on a model: exact under rotations of the grid, and how well it holds at all other angles."""

from dataclasses import dataclass
from typing import Literal

Grade = Literal["pass", "weak", "fail"]
TOLERANCE = 1e-3
"""Largest relative change of logits under rotations of the grid that float32 rounding explains, with a margin."""
WEAK, FAIL = 0.05, 0.2
"""Agreement lost at arbitrary angles, from which on a model is weak, and fails."""


@dataclass(frozen=True)
class Verdict:
    """How equivariant a model is, from its behavior under rotations of the grid and under all others."""

    grid: float
    """Largest relative change of the logits under rotations of the grid, which need no interpolation."""
    lost: float | None
    """At other angles: by how much predictions agree less with the upright ones than interpolation alone explains;
    share of samples, or Dice. Samples rotated there and back are interpolated twice, so for classifiers this is a lower
    bound. ``None`` if no other angle was tried."""

    @property
    def is_exact(self) -> bool:
        """Whether logits commute with rotations of the grid, up to rounding."""
        return self.grid <= TOLERANCE

    @property
    def grade(self) -> Grade:
        """fail: not exact on the grid, or lost at other angles; weak: exact on the grid, unstable at other angles."""
        lost = 0.0 if self.lost is None else self.lost
        if not self.is_exact or not lost <= FAIL:
            return "fail"
        return "pass" if lost <= WEAK else "weak"

    def describe(self) -> str:
        """One line for users."""
        if not self.is_exact:
            return f"fail: NOT equivariant, a rotation of the grid changes the logits by {self.grid:.1%}."
        exact = f"rotations of the grid change the logits by {self.grid:.1e}, which is rounding"
        if self.lost is None:
            return f"pass: equivariant, {exact}; other angles were not tried."
        other = f"at other angles predictions agree {100 * self.lost:.1f} points less than interpolation explains"
        return {
            "pass": f"pass: equivariant, {exact}; {other}.",
            "weak": f"weak: exact on the grid and approximate elsewhere, {exact}, but {other}.",
            "fail": f"fail: {exact}, but {other}: the model is exact on the grid and unstable elsewhere.",
        }[self.grade]
