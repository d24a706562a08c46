"""The model: a small Llama or BERT from sizes, or a pretrained one by name; its head is the objective's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from streamfeed.errors import ConfigError
from streamfeed.objectives import Classification, Mlm, Objective
from streamfeed.train.attention import position_offset

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import BertConfig, LlamaConfig, PreTrainedModel

    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.train.config import ModelConfig

__all__ = ["build_model", "check_fits", "parameter_groups"]


def build_model(
    config: ModelConfig, objective: Objective, tokenizer: TokenizerSpec, seq_len: int, weights: Path | None
) -> PreTrainedModel:
    """Build the model of ``objective`` in float32; ``weights`` is a checkpoint folder to take them from.

    Raises :class:`~streamfeed.errors.ConfigError` where the model cannot take the tokenizer's ids or the row length.
    """
    import transformers
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    source = weights if weights is not None else config.name_or_path
    options = _head(objective)
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    try:
        if source is not None:
            auto = getattr(transformers, f"AutoModelFor{_kind(objective)}")
            model = auto.from_pretrained(source, dtype=torch.float32, trust_remote_code=False, **options)
        elif isinstance(objective, Classification | Mlm):
            small = getattr(transformers, f"BertFor{_kind(objective)}")
            model = small(_bert(config, tokenizer, seq_len, options))
        else:
            model = transformers.LlamaForCausalLM(_llama(config, tokenizer, seq_len, options))
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"model {source or 'of sizes'}: cannot be made: {' '.join(str(error).split())}") from error
    if isinstance(objective, Classification):
        _say_pad(model, tokenizer)
    check_fits(model, tokenizer, seq_len)
    return model.train()


def _kind(objective: Objective) -> str:
    if isinstance(objective, Classification):
        return "SequenceClassification"
    return "MaskedLM" if isinstance(objective, Mlm) else "CausalLM"


def _head(objective: Objective) -> dict[str, Any]:
    """Return what a config has to know of the objective."""
    if not isinstance(objective, Classification):
        return {}
    names = dict(enumerate(objective.names or (f"LABEL_{number}" for number in range(objective.count))))
    return {
        "num_labels": objective.count,
        "id2label": names,
        "label2id": {name: number for number, name in names.items()},
    }


def _say_pad(model: PreTrainedModel, tokenizer: TokenizerSpec) -> None:
    """Tell a causal model that classifies what rows are filled with: it looks for the last token in front of that.

    Whatever its config calls the pad, but in models that count positions from behind the pad's id.
    """
    if model.config.pad_token_id != tokenizer.padding and not position_offset(model):
        model.config.pad_token_id = tokenizer.padding
        model.get_input_embeddings().padding_idx = tokenizer.padding  # as when it is loaded again


def check_fits(model: PreTrainedModel, tokenizer: TokenizerSpec, seq_len: int) -> None:
    """Raise :class:`~streamfeed.errors.ConfigError` for ids without an embedding and rows beyond the positions."""
    rows = model.get_input_embeddings().num_embeddings
    if tokenizer.vocab_size > rows:
        raise ConfigError(
            f"tokenizer {tokenizer.name} has ids up to {tokenizer.vocab_size - 1}, the model embeds {rows}; "
            "use the model's own tokenizer, or a model with a larger embedding"
        )
    reach = getattr(model.config, "max_position_embeddings", None)
    if reach is not None and seq_len > reach - position_offset(model):
        raise ConfigError(
            f"data.seq_len {seq_len} is longer than the {reach - position_offset(model)} positions of the model"
        )


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices, not norms and biases."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]


def _llama(config: ModelConfig, tokenizer: TokenizerSpec, seq_len: int, options: dict[str, Any]) -> LlamaConfig:
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
        **options,
    )


def _bert(config: ModelConfig, tokenizer: TokenizerSpec, seq_len: int, options: dict[str, Any]) -> BertConfig:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=_up(tokenizer.vocab_size),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size or 4 * config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        max_position_embeddings=max(seq_len, 512),
        # BERT's 0.02 at its width of 768, and the same scale of what a layer gives at others: a narrow model with 0.02
        # has not learnt to compare two words after four times the steps.
        initializer_range=0.02 * math.sqrt(768 / config.hidden_size),
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        tie_word_embeddings=config.tie_embeddings,
        pad_token_id=tokenizer.pad_id,  # a pad of its own: it is never trained on
        **options,
    )


def _up(value: float, multiple: int = 64) -> int:
    """Round up: matrices whose sides divide by 64 are faster on a GPU."""
    return math.ceil(value / multiple) * multiple
