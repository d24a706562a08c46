"""What of an objective, and of a hold-out, makes another stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamfeed import HoldOut, Source, StreamConfig
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


def test_a_hold_out_and_its_part_define_rows_and_without_one_the_fingerprint_is_as_it_was() -> None:
    plain = StreamConfig([Source("a.jsonl")], "t")
    held = replace(plain, hold_out=HoldOut(0.25, "key:url", 3))
    none, rest, part = (fingerprint(config, [], SPEC, 1) for config in (plain, held, held.held_out()))
    assert list(none) == [
        "order_version",
        "sources",
        "tokenizer",
        "seq_len",
        "packing",
        "objective",
        "shuffle_buffer",
        "window_bytes",
        "seed",
        "lanes",
        "on_error",
    ]
    assert rest == {"hold_out": {"share": 0.25, "by": "key:url", "seed": 3, "part": "training"}, **none}
    assert differences(rest, part) == [
        "hold_out.part: 'training' in the state, 'held_out' now",
        "shuffle_buffer: 16384 in the state, 0 now",
    ]
    assert len(differences(none, rest)) == len(differences(rest, none)) == 1
