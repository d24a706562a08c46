"""Templates and conversations that cannot be done right, and conversations that are too long for one piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamfeed.encode.objectives.chat import ChatSamples, template_of
from streamfeed.errors import ConfigError, RecordError
from streamfeed.objectives import Chat
from tests.encode.chat_cases import (
    BYTE_LEVEL,
    TALK,
    alternating,
    case,
    flags_of,
    marked_template,
    samples,
    template,
)
from tests.tokenizers_for_tests import standard_library_texts


def test_calls_of_tools_without_a_prompt_to_find_their_turns_are_an_error_that_asks_for_generation_blocks() -> None:
    calling = "{% for m in messages %}{{ m.role + ':' + m.content }}{{ m.tool_calls or '' }}{% endfor %}"
    talk = [TALK[0], {**TALK[1], "tool_calls": [{"name": "f"}]}]
    with pytest.raises(RecordError, match=r'^the conversation \[\{"role".*: the chat template changes.*endgeneration'):
        samples(case("gpt2_bpe"), calling, talk)
    made = samples(case("gpt2_bpe"), calling, TALK, talk, TALK, skip=True)
    assert made.counts["skipped"].tolist() == [0, 1, 0]


def test_a_template_that_hides_what_is_said_is_an_error_that_asks_for_generation_blocks() -> None:
    hiding = "{% for m in messages %}{{ m.content | upper if m.role == 'assistant' else m.content }}{% endfor %}"
    reversing = "{% for m in messages %}{{ m.content | reverse }}{% endfor %}"
    with pytest.raises(ConfigError, match=r"^the chat template of the settings: .*endgeneration"):
        samples(case("gpt2_bpe"), reversing)
    assert len(samples(case("gpt2_bpe"), reversing, TALK, train_on="all").ids)
    assert sum(flags_of(samples(case("gpt2_bpe"), hiding, TALK))) > 0


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_a_template_that_leaves_out_what_is_said_is_an_error_before_anything_is_read(train_on: str) -> None:
    with pytest.raises(ConfigError, match="the same text whatever is said; its text is asked for, not the name of a f"):
        samples(case("gpt2_bpe"), "templates/chatml.jinja", train_on=train_on)
    with pytest.raises(ConfigError, match=r"of the settings gives the same text whatever is said$"):
        samples(case("gpt2_bpe"), "{% for m in messages %}{{ m.role }}{% endfor %}", train_on=train_on)
    spec = replace(case("gpt2_bpe").spec, chat_template="{{ bos_token }}", name="t")
    with pytest.raises(ConfigError, match="the chat template of tokenizer t gives the same text"):
        ChatSamples(Chat(), spec, skip=False)


def test_a_conversation_that_the_template_refuses_is_an_error_or_skipped_and_its_neighbours_are_kept() -> None:
    of, twice = case("gpt2_bpe"), [{"role": "user", "content": "a" * 100}, {"role": "user", "content": "b"}]
    with pytest.raises(RecordError, match=r'\[\{"role":"user","content":"aaa.*\.\.\.: .*roles must alternate.*map'):
        samples(of, template("mistral"), TALK, twice)
    for train_on in ("assistant", "all"):
        made = samples(of, template("mistral"), TALK, twice, TALK, skip=True, train_on=train_on)
        assert made.counts["skipped"].tolist() == [0, 1, 0]
        assert np.diff(made.offsets).tolist() == [len(of.ids(TALK, template("mistral"))), 0, int(made.offsets[1])]
        strange = samples(of, template("chatml"), [{"role": "user", "content": 5}], skip=True, train_on=train_on)
        assert (strange.ids.size, strange.counts["skipped"].tolist()) == (0, [1])


def test_the_settings_template_comes_before_the_tokenizers_and_none_is_an_error() -> None:
    spec = replace(case("gpt2_bpe").spec, chat_template=None)
    with pytest.raises(ConfigError, match="no chat template"):
        ChatSamples(Chat(), spec, skip=False)
    with_own = replace(spec, chat_template="own")
    assert (template_of(Chat(), with_own), template_of(Chat(template="other"), with_own)) == ("own", "other")


@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "metaspace_bpe"])
@pytest.mark.parametrize("blocks", [False, True])
def test_long_conversations_are_encoded_in_parts_with_the_ids_and_labels_of_the_whole(kind: str, blocks: bool) -> None:
    of = case(kind)
    prose = standard_library_texts()[0]
    talks = [TALK, alternating(["q", prose, "r </s>", prose[::-1]]), alternating([prose, prose, "q", "a"]), TALK]
    options = Chat(template=(marked_template if blocks else template)("chatml"))
    records = [{"messages": talk} for talk in talks]
    whole = ChatSamples(options, of.spec, skip=False).encode(records)
    parted = ChatSamples(options, of.spec, skip=False, long=2000).encode(records)
    assert "long" not in whole.counts
    assert parted.counts["long"].tolist() == [0, 1, 1, 0]
    assert parted.offsets.tolist() == whole.offsets.tolist()
    assert parted.ids.tolist() == whole.ids.tolist()
    assert parted.ids.dtype == np.int32
    assert flags_of(parted) == flags_of(whole)
