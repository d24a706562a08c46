"""Documents in one row do not see each other: how a model is told where they end, and the check that it heeds it.

A causal model of ``transformers`` reads the borders off ``position_ids``, but only without a cache and without an
attention mask, and not every architecture does. So the model at hand is asked, with a row of two documents, before
training starts: what leaks is told by an explicit mask, and what leaks even then is refused.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask
    from transformers import PreTrainedModel

__all__ = [
    "Batch",
    "Inputs",
    "Isolation",
    "check_attention",
    "choose_inputs",
    "document_mask",
    "isolates",
    "position_offset",
]

Batch = dict[str, Tensor]

Isolation = Literal["positions", "documents", "padding"]
"""By ``position_ids`` alone; by an explicit mask of documents; one document a row, by a mask of its padding."""

_FIRST, _SECOND = 5, 7  # tokens of the two documents of the check
_LEAK = 0.01
"""Of what a leak moves the logits by: rounding moves them by 1e-5 of it."""


@dataclass(frozen=True)
class Inputs:
    """Makes the keyword arguments of a model's ``forward`` out of a batch.

    ``takes`` are the names of its parameters. ``offset`` is where its positions begin: models like RoBERTa count them
    from behind the pad's id. ``attention`` is the implementation: ``eager``, ``sdpa`` or ``flex_attention``.
    """

    isolation: Isolation
    causal: bool
    attention: str
    takes: frozenset[str]
    offset: int = 0
    token_types: bool = False

    @classmethod
    def of(cls, model: PreTrainedModel, isolation: Isolation, *, causal: bool) -> Inputs:
        """Read off ``model`` what its ``forward`` takes."""
        return cls(
            isolation,
            causal,
            str(model.config._attn_implementation),  # noqa: SLF001 - transformers has no public name for it
            frozenset(inspect.signature(model.forward).parameters),
            position_offset(model),
            token_types=getattr(model.config, "type_vocab_size", 0) >= 2,
        )

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Return the arguments for ``batch``: ids, and whatever of the rest the model takes."""
        ids = batch["input_ids"]
        positions = batch.get("position_ids")
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        # A cache, even an empty one, makes a causal model take the row for one document.
        given: dict[str, Any] = {"input_ids": ids, "position_ids": positions + self.offset, "use_cache": False}
        if self.isolation == "documents":
            given["attention_mask"] = document_mask(positions, self.attention, causal=self.causal)
        elif self.isolation == "padding":
            mask = batch["attention_mask"].clone()
            mask[:, 0] = 1  # a row without tokens sees its first pad: a softmax over nothing is NaN
            given["attention_mask"] = mask
        if self.token_types and "token_type_ids" in batch:
            given["token_type_ids"] = batch["token_type_ids"]
        return {name: value for name, value in given.items() if name in self.takes}


def choose_inputs(model: PreTrainedModel, *, causal: bool, packed: bool) -> Inputs:
    """Find what keeps the documents of a row apart in ``model``, which is asked where rows are ``packed``.

    Raises :class:`~streamfeed.errors.ConfigError` where nothing does.
    """
    if not packed:
        return Inputs.of(model, "padding", causal=causal)
    said = ""
    for isolation in _candidates(model, causal=causal):
        inputs = Inputs.of(model, isolation, causal=causal)
        try:
            if isolates(model, inputs):
                return inputs
        except (RuntimeError, ValueError, TypeError, IndexError) as error:  # whatever a model says to such a mask
            said = f" ({isolation}: {' '.join(str(error).split())[:200]})"
    raise ConfigError(
        f"{type(model).__name__} with {model.config._attn_implementation} attention lets the documents of a packed row "  # noqa: SLF001
        f"see each other, and no mask of documents that it takes prevents it{said}; set data.packing to none, where a "
        "row is one document, or take another model"
    )


def _candidates(model: PreTrainedModel, *, causal: bool) -> list[Isolation]:
    # A mask of our own takes the place of the model's, and so of the windows in it.
    windows = getattr(model.config, "sliding_window", None) or getattr(model.config, "local_attention", None)
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}
    masked: list[Isolation] = [] if windows or kinds else ["documents"]
    return ["positions", *masked] if causal else masked


def isolates(model: PreTrainedModel, inputs: Inputs) -> bool:
    """Say whether the second of two documents in a row has the logits that it has alone.

    Logits as of one document of both, in which the second does see the first, are the measure of a leak. Draws nothing
    from a random generator.
    """
    pad = getattr(model.config, "pad_token_id", None)
    rows = model.get_input_embeddings().num_embeddings
    tokens = [token for token in range(rows) if token != pad][: _FIRST + _SECOND]
    ids = torch.tensor([(tokens * (_FIRST + _SECOND))[: _FIRST + _SECOND]], device=model.device)
    positions = torch.cat([torch.arange(_FIRST), torch.arange(_SECOND)])[None].to(model.device)
    alone_inputs = {"use_cache": False} if "use_cache" in inputs.takes else {}
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            alone = model(input_ids=ids[:, _FIRST:], **alone_inputs).logits
            whole = model(input_ids=ids, **alone_inputs).logits[:, _FIRST:]
            packed = model(**inputs({"input_ids": ids, "position_ids": positions})).logits[:, _FIRST:]
    finally:
        model.train(training)
    return bool((packed - alone).abs().max() <= _LEAK * (whole - alone).abs().max())


def check_attention(model: PreTrainedModel, device: torch.device) -> None:
    """Raise :class:`~streamfeed.errors.ConfigError` where flex attention cannot train ``model`` on ``device``."""
    if model.config._attn_implementation != "flex_attention":  # noqa: SLF001
        return
    if device.type == "cpu":
        raise ConfigError(
            "model.attention flex_attention cannot train on a CPU: torch has no gradient of it there; use sdpa"
        )
    for name in ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop"):
        if getattr(model.config, name, 0.0):
            raise ConfigError(
                f"model.attention flex_attention has no dropout, and {name} of {type(model).__name__} is "
                f"{getattr(model.config, name)}; use sdpa, or set it to 0 in the model's config.json"
            )


def document_mask(positions: Tensor, attention: str, *, causal: bool) -> Tensor | BlockMask:
    """Return the mask under which a token sees its own document alone, and nothing behind itself where ``causal``.

    ``positions`` are int64 ``[B, T]``, 0 where a document begins. For ``eager`` what is added to the scores, float32;
    for ``sdpa`` True where a token is seen: ``[B, 1, T, T]`` both. For ``flex_attention`` a ``BlockMask``.
    """
    documents = (positions == 0).cumsum(1)
    if attention == "flex_attention":
        return _blocks(documents, causal=causal)
    seen = documents[:, None, :, None] == documents[:, None, None, :]
    if causal:
        seen = seen.tril()
    if attention == "sdpa":
        return seen
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)


def _blocks(documents: Tensor, *, causal: bool) -> BlockMask:
    from torch.nn.attention.flex_attention import create_block_mask

    def same(batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return documents[batch, query] == documents[batch, key]

    def same_and_before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return same(batch, head, query, key) & (query >= key)

    rows, length = documents.shape
    return create_block_mask(
        same_and_before if causal else same, rows, None, length, length, device=str(documents.device)
    )


def position_offset(model: PreTrainedModel) -> int:
    """Return the position of a document's first token: 0, or behind the pad's in models such as RoBERTa."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0
