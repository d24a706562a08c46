"""Tokenizers whose post-processors frame samples in unlike ways, as transformers loads them and as specs."""

from __future__ import annotations

import itertools
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from streamfeed.encode.tokenizer import TokenizerSpec
from tests.encode.tokenizer_kinds import gpt2_bpe
from tests.tokenizers_for_tests import EOS, build_bert, build_bpe, build_roberta

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.encode.objectives.protocol import Samples

__all__ = ["FRAMES", "loaded", "sample_spec", "samples_of"]

_BUILT: dict[str, Callable[[Path], Path]] = {"bert": build_bert, "roberta": build_roberta, "gpt2": build_bpe}
FRAMES = (*_BUILT, "t5")


@cache
def loaded(name: str) -> Any:
    """Return one of :data:`FRAMES`, as a transformers tokenizer; its texts' control strings are text."""
    if name in _BUILT:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = AutoTokenizer.from_pretrained(_BUILT[name](Path(folder)))
    else:
        backend = gpt2_bpe()
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, 0)]
        )
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS)
    tokenizer.split_special_tokens = True
    return tokenizer


@cache
def sample_spec(name: str) -> TokenizerSpec:
    """Return its spec."""
    tokenizer = loaded(name)
    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    return TokenizerSpec(
        json=backend.to_str(),
        fingerprint=name,
        eos_id=tokenizer.eos_token_id,
        bos_id=None,
        pad_id=tokenizer.pad_token_id,
        vocab_size=len(tokenizer),
        name=name,
        mask_id=tokenizer.mask_token_id,
        type_ids="token_type_ids" in tokenizer.model_input_names,
    )


def samples_of(samples: Samples) -> list[list[int]]:
    """Return the ids of each sample."""
    return [samples.ids[begin:end].tolist() for begin, end in itertools.pairwise(samples.offsets.tolist())]
