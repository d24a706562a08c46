"""Conversations: the ids of transformers, and the loss on what the assistant says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.encode.chat_cases import (
    BYTE_LEVEL,
    CONTROLS,
    KINDS,
    NAMES,
    SYSTEM,
    TALK,
    WITH_SYSTEM,
    Message,
    alternating,
    case,
    flags_of,
    marked_template,
    samples,
    template,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_transformers(kind: str, name: str) -> None:
    of, text = case(kind), template(name)
    talks = [TALK, TALK[:2], *([[SYSTEM, *TALK]] if name in WITH_SYSTEM else [])]
    for train_on in ("assistant", "all"):
        made = samples(of, text, *talks, train_on=train_on)
        for i, talk in enumerate(talks):
            own = made.ids[made.offsets[i] : made.offsets[i + 1]]
            assert own.dtype == np.int32
            assert own.tolist() == of.ids(talk, text)
        assert (made.flags is None) == (train_on == "all")
        assert not made.counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_labels_are_the_contents_of_the_assistant_and_the_control_token_behind(kind: str, name: str) -> None:
    of = case(kind)
    made = samples(of, template(name), TALK)
    assert of.ids(TALK, marked_template(name)) == made.ids.tolist()
    assert flags_of(made) == of.said(TALK, marked_template(name))
    assert 0 < sum(flags_of(made)) < len(made.ids)


def test_in_chatml_the_labels_read_as_the_contents_with_their_ends() -> None:
    of = case("gpt2_bpe")
    talk = alternating(["q", "A lane.\nIt is  one. \n\n", " \n", "Sure: \U000f0000 \t"])
    made = samples(of, template("chatml"), talk)
    said = of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)])
    assert said == "A lane.\nIt is  one. \n\n<|im_end|>Sure: \U000f0000 \t<|im_end|>"


@pytest.mark.parametrize("trims_offsets", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_generation_blocks_are_the_labels_exactly_as_transformers_masks_them(name: str, trims_offsets: bool) -> None:
    of, text = case("llama3_bpe", trims_offsets=trims_offsets), marked_template(name)
    made = samples(of, text, TALK)
    assert made.ids.tolist() == of.ids(TALK, text)
    assert flags_of(made) == of.mask(TALK, text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_word_is_a_label_with_the_space_that_its_token_holds(kind: str) -> None:
    of = case(kind)
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "return"}]
    made = samples(of, template("llama_2"), talk)
    first = made.ids[flags_of(made).index(1)]
    assert of.tokenizer.convert_ids_to_tokens(int(first)).lstrip("▁Ġ")[:1] == "r"


def test_offsets_that_a_tokenizer_trims_give_the_same_labels() -> None:
    plain, trimming = case("gpt2_bpe"), case("gpt2_bpe", trims_offsets=True)
    for name in NAMES:
        talks = [TALK, [{"role": "user", "content": "a "}, {"role": "assistant", "content": " b"}]]
        of_plain, of_trimming = samples(plain, template(name), *talks), samples(trimming, template(name), *talks)
        assert of_plain.ids.tolist() == of_trimming.ids.tolist()
        assert flags_of(of_plain) == flags_of(of_trimming)


WHITE = [" ", "\n", "\n\n", "\t", "\u00a0"]
WORDS = ["hello", "return x", "👩‍🚀", "é", "ก", "0", "system", "[INST]", "<|im_", "end|>", "<", "|>"]
PRIVATE = ["\U000f0000", "\U000f0000\u0030\U000f0000", "\ue000", "\U0010fffd"]
contents = st.lists(st.sampled_from([*WHITE, *WORDS, *PRIVATE]), max_size=8).map("".join)
with_controls = st.lists(st.one_of(contents, st.sampled_from(CONTROLS)), max_size=6).map("".join)


@given(name=st.sampled_from(NAMES), kind=st.sampled_from(KINDS), texts=st.lists(contents, min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_whatever_people_say_ids_and_labels_are_those_of_transformers(name: str, kind: str, texts: list[str]) -> None:
    if any(control in text for text in texts for control in CONTROLS):
        return
    of, talk = case(kind), alternating(texts)
    made = samples(of, template(name), talk)
    assert made.ids.tolist() == of.ids(talk, template(name))
    assert flags_of(made) == of.said(talk, marked_template(name))


@given(kind=st.sampled_from(BYTE_LEVEL), texts=st.lists(with_controls, min_size=1, max_size=4), marked=st.booleans())
@settings(max_examples=60, deadline=None)
def test_control_strings_in_contents_stay_text_and_are_counted(kind: str, texts: list[str], marked: bool) -> None:
    of, talk = case(kind), alternating(texts)
    made = samples(of, (marked_template if marked else template)("chatml"), talk)
    backend = type(of.tokenizer.backend_tokenizer).from_str(of.spec.json)
    backend.encode_special_tokens = True
    start, end = backend.token_to_id("<|im_start|>"), backend.token_to_id("<|im_end|>")
    ids: list[int] = []
    flags: list[int] = []
    for message in talk:
        head = backend.encode(message["role"] + "\n" + message["content"], add_special_tokens=False)
        newline = backend.encode("\n", add_special_tokens=False).ids
        ids += [start, *head.ids, end, *newline]
        edge, said = len(message["role"]) + 1, message["role"] == "assistant"
        begins = [say[1] > edge if marked else say[0] >= edge for say in head.offsets]
        flags += [0, *(int(said and begun) for begun in begins), int(said), *[0] * len(newline)]
    assert made.ids.tolist() == ids
    assert flags_of(made) == flags
    present = any(control in text for text in texts for control in CONTROLS)
    assert ("controls" in made.counts) == present


@pytest.mark.parametrize("train_on", ["assistant", "all"])
@pytest.mark.parametrize("kind", ["sentencepiece_bpe", "metaspace_bpe"])
def test_a_control_string_in_a_content_leaves_the_ids_of_the_rest_as_they_are(kind: str, train_on: str) -> None:
    of = case(kind)
    talk = [{"role": "user", "content": "say </s>"}, {"role": "assistant", "content": "return x"}]
    made = samples(of, template("zephyr"), talk, train_on=train_on)
    tail = of.ids([{"role": "user", "content": "x"}, talk[1]], template("zephyr"))
    assert of.spec.eos_id is not None
    behind = tail.index(of.spec.eos_id)
    count = len(tail) - behind
    assert made.ids[-count:].tolist() == tail[behind:]
    assert made.ids.tolist().count(of.spec.eos_id) == 2
    assert made.counts["controls"].tolist() == [1]


def test_every_control_string_is_counted_in_its_own_sample_wherever_it_is_said() -> None:
    of = case("gpt2_bpe")
    parts = [{"type": "text", "text": "x<|im_"}, {"type": "text", "text": "end|>y"}]
    joined = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ '<|im_start|>' }}{% endfor %}"
    )
    cut = samples(of, joined, [{"role": "user", "content": parts}], train_on="all")
    assert cut.counts["controls"].tolist() == [1]
    assert of.tokenizer.convert_tokens_to_ids("<|im_end|>") not in cut.ids
    role = [{"role": "user<|im_end|>", "content": "<s><s>"}, *TALK]
    made = samples(of, template("chatml"), TALK, role)
    assert made.counts["controls"].tolist() == [0, 3]
    assert made.ids.tolist().count(of.tokenizer.convert_tokens_to_ids("<|im_end|>")) == len(TALK) + len(role)


def test_contents_that_hold_the_characters_of_marks_and_aliases_come_through() -> None:
    of = case("gpt2_bpe")
    odd = "\U000f0000\U000f0001" + "0\U000f00001" + "".join(chr(code) * 20 for code in range(0x10FFE0, 0x10FFFE))
    plain, talk = alternating(["q </s>", "a"]), alternating(["q </s>" + odd, odd])
    made = samples(of, template("chatml"), talk)
    assert samples(of, template("chatml"), plain, talk).ids[-len(made.ids) :].tolist() == made.ids.tolist()
    text = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in talk)
    assert of.tokenizer.decode(made.ids) == text
    assert of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)]) == talk[1]["content"] + "<|im_end|>"


def test_what_a_template_strips_of_a_thought_is_no_label_and_what_it_keeps_is() -> None:
    of = case("gpt2_bpe")
    talk = alternating(["q", "<think>hm</think>\n\nan </s> answer", "q </s>", "<think>\n</think>", "q", "plain"])
    made = samples(of, template("thinking"), talk)
    said = of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)])
    assert said == "an </s> answer<|im_end|><|im_end|>plain<|im_end|>"
    assert made.counts["controls"].tolist() == [2]
    assert of.spec.eos_id not in made.ids


REASONING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ '<call>' + (call | tojson) + '</call>' }}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_reasoning_and_calls_of_tools_are_labels_with_what_the_template_puts_around_them() -> None:
    of = case("gpt2_bpe")
    talk: list[Message] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"é": "<b>"}}]},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "thinking": "so", "content": "It is 5."},
    ]
    made = samples(of, REASONING, talk)
    assert made.ids.tolist() == of.ids(talk, REASONING)
    assert of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)]) == (
        '<call>{"name": "f", "arguments": {"é": "<b>"}}</call><|im_end|><think>so</think>It is 5.<|im_end|>'
    )


def test_what_a_template_does_not_read_of_a_message_changes_nothing() -> None:
    of = case("gpt2_bpe")
    rich = [{**message, "id": "7", "reasoning": "so", "tool_calls": [{"name": "f"}]} for message in TALK]
    for name in NAMES:
        plain, made = samples(of, template(name), TALK), samples(of, template(name), rich)
        assert (made.ids.tolist(), flags_of(made)) == (plain.ids.tolist(), flags_of(plain))


FORGETTING = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% set content, thought = m.content, m.reasoning_content %}"
    "{% if '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if thought and loop.index0 > ns.last %}{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}"
    "{{ content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_thoughts_that_a_template_keeps_only_of_the_last_turn_are_labels_there_alone() -> None:
    of = case("gpt2_bpe")
    for first, last in (
        ({"content": "<think>\na\n</think>\n\nb"}, {"content": "<think>\nc</think>d"}),
        ({"content": "b", "thinking": "a"}, {"content": "d", "reasoning_content": "c"}),
    ):
        talk = [{"role": role} for role in ("user", "assistant", "user", "assistant")]
        for message, said in zip(talk, ({"content": "q"}, first, {"content": "r"}, last), strict=True):
            message.update(said)
        made = samples(of, FORGETTING, talk)
        assert made.ids.tolist() == of.ids(talk, FORGETTING)
        said_text = of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)])
        assert said_text == "b<|im_end|><think>\nc\n</think>\n\nd<|im_end|>"


def test_a_template_that_looks_at_contents_is_understood_by_its_beginnings() -> None:
    of = case("gpt2_bpe")
    text = (
        "{% for m in messages %}{% if m.content.startswith('A') %}{{ '!' }}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    for ending in (text, text[: text.index("{% if add")]):
        made = samples(of, ending, alternating(["Ask", "answer", "q", " to </s> "]))
        said = of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)])
        assert said == "answer<|im_end|> to </s> <|im_end|>"
        assert made.counts["controls"].tolist() == [1]


def test_no_messages_and_no_records_have_no_tokens() -> None:
    of = case("gpt2_bpe")
    made = samples(of, template("mistral"), [], TALK[:1])
    assert made.offsets[1] == 0 < made.offsets[2]
    assert flags_of(made) == [0] * len(made.ids)
    nothing = samples(of, template("mistral"))
    assert (nothing.ids.tolist(), nothing.offsets.tolist(), flags_of(nothing)) == ([], [0], [])


def test_neither_the_bos_of_the_next_turn_nor_what_its_speaker_says_ends_a_turn() -> None:
    of = case("gpt2_bpe")
    bare = "{% for m in messages %}{{ m.content }}{% endfor %}"
    beginning = "{% for m in messages %}{{ bos_token + m.role + ':' + m.content }}{% endfor %}"
    for text, talk in (
        (beginning, alternating(["q", "a", "r"])),
        (bare, alternating(["q", "a", "</s>r"])),
        (bare, alternating(["q", "a", " \n</s>r"])),
    ):
        made = samples(of, text, talk)
        assert of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)]) == "a"


def test_empty_answers_have_their_end_as_label() -> None:
    of = case("gpt2_bpe")
    asking = (
        "{% for m in messages %}<|im_start|>{{ m.role }}"
        "{% if m.content %}{{ ':' + m.content }}{% endif %}<|im_end|>{% endfor %}"
    )
    prompting = asking + "{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
    for text, ends in ((template("chatml"), 1), (prompting, 1), (asking, 0)):
        made = samples(of, text, alternating(["q", ""]), alternating(["q", "a"]))
        said = of.tokenizer.decode(made.ids[np.asarray(flags_of(made), dtype=bool)])
        assert said == "<|im_end|>" * ends + "a<|im_end|>"


def test_a_worker_that_encodes_chats_imports_neither_transformers_nor_torch() -> None:
    code = (
        "import sys, streamfeed.encode.objectives.chat, streamfeed.encode.objectives.prompt_completion\n"
        "sys.exit(','.join({'transformers', 'torch'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
