"""What of an objective makes another stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamfeed import Source, StreamConfig
from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.objectives import Chat, Lm, Mlm
from streamfeed.plan.fingerprint import differences, fingerprint

if TYPE_CHECKING:
    from streamfeed.objectives import Objective

SPEC = TokenizerSpec("{}", "same", 0, None, None, 9, "t", 4, "{{ bos_token }}", {"bos_token": "<s>", "pad_token": "_"})


def changed(objective: Objective, now: TokenizerSpec) -> list[str]:
    config = StreamConfig([Source("a.jsonl")], "t", objective=objective)
    return differences(fingerprint(config, [], SPEC, 1), fingerprint(config, [], now, 1))


def test_a_special_string_that_a_chat_template_names_defines_rows_and_no_other_does() -> None:
    bos, pad = (replace(SPEC, specials={**SPEC.specials, name: "<b>"}) for name in ("bos_token", "pad_token"))
    (line,) = changed(Chat(), bos)
    assert line.startswith("objective.template: ")
    assert changed(Chat(), pad) == changed(Lm(), bos) == []
    assert changed(Chat(template="{{ pad_token }}"), pad)


def test_the_mask_defines_the_rows_of_masked_models_alone() -> None:
    other = replace(SPEC, mask_id=5)
    assert changed(Mlm(), other) == ["objective.mask_id: 4 in the state, 5 now"]
    assert changed(Lm(), other) == []
