"""The model: a small Llama from sizes, or a pretrained one by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import LlamaConfig, PreTrainedModel

    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.train.config import ModelConfig

__all__ = ["build_model", "check_fits", "parameter_groups"]


def build_model(config: ModelConfig, tokenizer: TokenizerSpec, seq_len: int, weights: Path | None) -> nn.Module:
    """Build a causal language model in float32; ``weights`` is a checkpoint folder to take them from.

    Raises :class:`~streamfeed.errors.ConfigError` where the model cannot take the tokenizer's ids or the row length.
    """
    from transformers import AutoModelForCausalLM, LlamaForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    source = weights if weights is not None else config.name_or_path
    if source is None:
        model = LlamaForCausalLM(_llama(config, tokenizer, seq_len))
    else:
        try:
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ConfigError(f"model {source}: cannot be loaded: {' '.join(str(error).split())}") from error
    check_fits(model, tokenizer, seq_len)
    built: nn.Module = model.train()
    return built


def check_fits(model: PreTrainedModel, tokenizer: TokenizerSpec, seq_len: int) -> None:
    """Raise :class:`~streamfeed.errors.ConfigError` for ids without an embedding and rows beyond the positions."""
    rows = model.get_input_embeddings().num_embeddings
    if tokenizer.vocab_size > rows:
        raise ConfigError(
            f"tokenizer {tokenizer.name} has ids up to {tokenizer.vocab_size - 1}, the model embeds {rows}; "
            "use the model's own tokenizer, or a model with a larger embedding"
        )
    reach = getattr(model.config, "max_position_embeddings", None)
    if reach is not None and seq_len > reach:
        raise ConfigError(f"data.seq_len {seq_len} is longer than the {reach} positions of the model")


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices, not norms and biases."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def _llama(config: ModelConfig, tokenizer: TokenizerSpec, seq_len: int) -> LlamaConfig:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=_up(tokenizer.vocab_size),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size or _up(config.hidden_size * 8 / 3),
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads or config.num_heads,
        max_position_embeddings=max(seq_len, 2048),
        attention_dropout=config.dropout,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=config.tie_embeddings,
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id,
        # No pad_token_id: it would zero the gradient of that embedding, and the pad is often the EOS.
        use_cache=False,
    )


def _up(value: float, multiple: int = 64) -> int:
    """Round up: matrices whose sides divide by 64 are faster on a GPU."""
    return math.ceil(value / multiple) * multiple
