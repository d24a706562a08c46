"""What a checkpoint holds, and how training is put back to it.

Weights are safetensors in the layout of ``from_pretrained``, the optimizer is a ``torch.save`` file that is read with
``weights_only=True``, all else is JSON: nothing in a checkpoint can run code.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from streamfeed.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.train.checkpoint import Checkpoint

__all__ = [
    "Position",
    "random_state",
    "ranks_of",
    "read_moments",
    "read_position",
    "restore_random",
    "save_random",
    "save_training",
    "seed_rank",
]

_OPTIMIZER = "optimizer.pt"
_POSITION = "position.json"
_STREAM = "stream.json"


@dataclass
class Position:
    """How far training has come; all counts are of the whole run and all ranks.

    The learning rate is a function of it, so it is the scheduler's whole state.
    """

    step: int = 0
    tokens: int = 0
    """labels trained on"""
    skipped_rows: int = 0
    """rows of the stream that ``train.skip_rows`` stepped over"""
    global_batch_size: int = 0
    """rows of an optimizer step"""
    ended: int = 0
    """the ``data.epochs`` after which the stream has ended; 0 while it goes on"""
    warm_tokens: int = 0
    """labels trained on when the warm-up ended"""
    counted: int = 0
    """rows that ``counted_epochs`` passes over the data give, as they were counted; 0: not counted"""
    counted_epochs: int = 0


def save_training(
    folder: Path,
    model: nn.Module,
    weights: dict[str, Any] | None,
    moments: dict[str, Any],
    position: Position,
    stream: dict[str, Any],
    tokenizer: str,
) -> None:
    """Write model, optimizer, position, stream state and ``tokenizer.json`` into ``folder`` (first rank only).

    ``weights`` are the model's where it does not hold all of them; ``moments`` are the optimizer's state by name.
    """
    model.save_pretrained(folder, state_dict=weights)  # type: ignore[operator]  # a transformers model
    torch.save(moments, folder / _OPTIMIZER)
    (folder / _POSITION).write_text(json.dumps(asdict(position)), encoding="utf-8")
    (folder / _STREAM).write_text(json.dumps(stream), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")


def read_position(checkpoint: Checkpoint) -> tuple[Position, dict[str, Any]]:
    """Return the position and the stream state. Raises :class:`StateError` where they are of another version."""
    try:
        return Position(**checkpoint.read(_POSITION)), checkpoint.read(_STREAM)
    except (OSError, ValueError, TypeError) as error:
        raise StateError(f"{checkpoint.path}: {_POSITION} or {_STREAM} cannot be read: {error}") from error


def read_moments(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the optimizer's state by parameter name."""
    saved: dict[str, Any] = torch.load(checkpoint.path / _OPTIMIZER, map_location="cpu", weights_only=True)
    return saved


def random_state() -> dict[str, Any]:
    """Return the states of the random generators of this rank as JSON."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is saved
    version, internal, gauss = random.getstate()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": torch.get_rng_state().tolist(),
        "cuda": torch.cuda.get_rng_state().tolist() if torch.cuda.is_available() else None,
    }


def save_random(folder: Path, states: list[dict[str, Any]]) -> None:
    """Write the states of the random generators of all ranks."""
    for rank, state in enumerate(states):
        (folder / _random_file(rank)).write_text(json.dumps(state), encoding="utf-8")


def seed_rank(rank: int, seed: int, step: int = 0) -> None:
    """Begin the sequence of a rank at ``step``: each drops out other parts of its rows than the others do."""
    torch.manual_seed(hash((seed, rank, step)) & 0x7FFFFFFF)


def ranks_of(checkpoint: Checkpoint) -> int:
    """Return how many ranks saved ``checkpoint``."""
    return len(list(checkpoint.path.glob("random-*.json")))


def restore_random(checkpoint: Checkpoint, rank: int, seed: int) -> None:
    """Put the generators of this rank back; a rank that the saved run did not have starts its own, keyed sequence."""
    if not (checkpoint.path / _random_file(rank)).exists():
        seed_rank(rank, seed, checkpoint.step)
        return
    state = checkpoint.read(_random_file(rank))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.tensor(state["cuda"], dtype=torch.uint8))


def _random_file(rank: int) -> str:
    return f"random-{rank:05d}.json"
