"""Templates as transformers renders them, without its clock."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from streamfeed.encode.chat_template import BadConversation, ChatTemplate, plain_messages
from streamfeed.errors import ConfigError

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "a <b> & 'é'", "name": None},
    {"role": "assistant", "content": None, "reasoning": "so", "tool_calls": [{"n": 1.5, "b": True, "z": [1, {}]}]},
    {"role": "assistant", "content": " b "},
]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


def rendered(text: str, messages: list[dict[str, Any]] = TALK, *, prompt: bool = False) -> str:
    return ChatTemplate(text, SPECIALS, "tokenizer t").render(plain_messages(messages), prompt=prompt).text


@pytest.mark.parametrize(
    "text",
    [
        "{{ bos_token }}\n{% for m in messages %}\n    {% if loop.last %}{% break %}{% endif %}\n{{ m }}\n{% endfor %}",
        "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }}",
        "{{ messages | tojson(true, none, (',', ':'), true) }}",
        "{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.content is defined }}{% endfor %}",
        "{% set ns = namespace(self=1, i=0) %}{% for m in messages %}{% set ns.i = ns.i + 2 %}{% endfor %}{{ ns.i }}",
        "{{ dict(a=1) }}{{ dict.fromkeys(['a'], 1) }}{{ tools is none }}{{ tools }}",
        "{{ documents }}{{ pad_token is defined }}",
        "{% if strftime_now is defined and false %}{% else %}26 Jul 2024{% endif %}{{ add_generation_prompt }}",
        "{% macro say(m) %}{{ m.role ~ eos_token }}{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}",
    ],
)
def test_text_is_that_of_transformers(text: str) -> None:
    messages = [{key: value for key, value in message.items() if value is not None} for message in TALK]
    assert rendered(text) == render_jinja_template([messages], chat_template=text, **SPECIALS)[0][0]


def test_generated_ranges_are_those_of_transformers() -> None:
    text = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
        "{%- generation -%} {{ m.content or 'none' }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
    )
    template = ChatTemplate(text, SPECIALS, "t")
    assert template.marks_generation
    messages = plain_messages(TALK)
    for _ in range(2):
        texts, ranges = render_jinja_template(
            [messages], chat_template=text, return_assistant_tokens_mask=True, **SPECIALS
        )
        assert tuple(template.render(messages)) == (texts[0], ranges[0])


def test_it_is_known_whether_a_template_has_a_prompt_for_the_assistant() -> None:
    body = "{% if messages[0].role == 'user' %}{{ raise_exception('no system') }}{% endif %}{{ messages[-1].role }}"
    prompting = ChatTemplate(body + "{% if add_generation_prompt %}A:{% endif %}", {}, "t")
    assert prompting.prompts
    assert prompting.render([{"role": "system", "content": "a"}], prompt=True).text == "systemA:"
    assert not ChatTemplate(body, {}, "t").prompts


def test_a_template_that_insists_on_the_date_is_an_error_and_one_that_can_do_without_is_none() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer t asks for today's date.*Chat\(template"):
        rendered("{{ strftime_now('%d %b %Y') }}")
    optional = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}"
    assert rendered(optional) == "2024"


@pytest.mark.parametrize("text", ["{% for %}", "{{ nothing.at.all }}", "{{ ''.__class__.mro() }}", "{{ 1 / 0 }}"])
def test_a_broken_template_is_an_error_of_the_config(text: str) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer t is broken"):
        rendered(text)


def test_what_a_template_refuses_is_a_bad_conversation_with_its_own_words() -> None:
    text = (
        "{% if messages[0].role != 'human' %}{{ raise_exception('humans only') }}{% endif %}"
        "{{ messages[0].content + '' }}"
    )
    template = ChatTemplate(text, {}, "t")
    with pytest.raises(BadConversation, match=r"^humans only$"):
        template.render(TALK)
    with pytest.raises(BadConversation, match="TypeError"):
        template.render([{"role": "human", "content": 5}])
    assert template.render([{"role": "human", "content": "a"}]).text == "a"


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update(a=1) }}",
        "{{ namespace(_a=1) }}",
        "{{ messages.__class__ }}{{ messages.__class__.__base__.__subclasses__() }}",
    ],
)
def test_a_template_can_neither_change_messages_nor_reach_python(text: str) -> None:
    with pytest.raises(ConfigError, match="may not"):
        rendered(text)
