"""``last.ckpt``: everything that an exact resume needs, in a file that runs no code when read."""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steerformer.files import write_whole

FORMAT = 2


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message is one line."""


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write it in one go: an earlier checkpoint stays whole until the new one is."""
    buffer = io.BytesIO()  # torch writes files in a way that hides why it failed
    torch.save({"format": FORMAT, **content}, buffer)
    write_whole(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What :func:`save_checkpoint` wrote, on the CPU."""
    data = io.BytesIO(path.read_bytes())
    try:
        content = torch.load(data, map_location="cpu", weights_only=True)
    except Exception:  # torch has many words for it, none of them for users
        raise CheckpointError(
            f"{path} is damaged or no checkpoint of steerformer; delete it to start the run from its beginning."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of this version of steerformer.")
    return content


def random_states() -> dict[str, Any]:
    """Random numbers of Python, numpy and torch, as values that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    version, words, spare = random.getstate()
    return {
        "python": (version, torch.tensor(words), spare),
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Go on with random numbers where :func:`random_states` was taken."""
    version, words, spare = states["python"]
    random.setstate((version, tuple(words.tolist()), spare))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def seed_everything(seed: int) -> None:
    """Start the random numbers of Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
