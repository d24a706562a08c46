"""Chat templates in the style of well-known models, and tokenizers that know their control strings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, processors
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from streamfeed.encode.objectives.chat import ChatSamples
from streamfeed.encode.tokenizer import TokenizerSpec, load_tokenizer
from streamfeed.objectives import Chat
from tests.encode import tokenizer_kinds
from tests.tokenizers_for_tests import EOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.objectives.protocol import Samples

CONTROLS = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|user|>",
    "<|assistant|>",
]

_CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% SAY %}{{ message['content'] + '<|im_end|>' }}{% DONE %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CHATML_SYSTEM = (
    "{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    + _CHATML
)
_LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ ' ' }}{% SAY %}{{ content.strip() + ' ' + eos_token }}{% DONE %}{% endif %}{% endfor %}"
)
_LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set header = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}"
    "{% if loop.index0 == 0 %}{% set header = bos_token + header %}{% endif %}"
    "{{ header }}{% SAY %}{{ message['content'] | trim + '<|eot_id|>' }}{% DONE %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
    "{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n' }}{% SAY %}{{ message['content'] + eos_token }}{% DONE %}{{ '\n' }}{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
_MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{% SAY %}{{ message['content'] + eos_token }}{% DONE %}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
_THINKING = (
    "{% for message in messages %}{% set content = message.content %}"
    "{% if message.role == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' }}{% SAY %}{{ content + '<|im_end|>' }}{% DONE %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEMPLATES = {
    "chatml": _CHATML,
    "chatml_system": _CHATML_SYSTEM,
    "llama_2": _LLAMA_2,
    "llama_3": _LLAMA_3,
    "zephyr": _ZEPHYR,
    "mistral": _MISTRAL,
    "thinking": _THINKING,
}
NAMES = sorted(_TEMPLATES)
WITH_SYSTEM = {"chatml", "chatml_system", "llama_2", "llama_3", "zephyr", "thinking"}


def template(name: str) -> str:
    """Return a template as its models have it."""
    return _TEMPLATES[name].replace("{% SAY %}", "").replace("{% DONE %}", "")


def marked_template(name: str) -> str:
    """Return the template that says the same, and marks what the assistant says."""
    loud = "{% if message['role'] == 'assistant' %}{% generation %}SAID{% endgeneration %}{% else %}SAID{% endif %}"
    begin, _, rest = _TEMPLATES[name].partition("{% SAY %}")
    said, _, end = rest.partition("{% DONE %}")
    return begin + loud.replace("SAID", said) + end


@dataclass(frozen=True)
class Case:
    """A tokenizer as ``transformers`` loads it, and its spec."""

    tokenizer: Any
    spec: TokenizerSpec

    def ids(self, messages: Sequence[dict[str, Any]], template: str) -> list[int]:
        """Return what ``transformers`` makes of a conversation."""
        made = self.tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True)
        return list(made["input_ids"])

    def mask(self, messages: Sequence[dict[str, Any]], template: str) -> list[int]:
        """Return the mask that ``transformers`` gives for a template with ``{% generation %}``."""
        made = self.tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return list(made["assistant_masks"])

    def said(self, messages: list[dict[str, Any]], template: str) -> list[int]:
        """Return which tokens begin in what the assistant says, or hold the spaces before it and some of it."""
        specials = self.tokenizer.special_tokens_map
        texts, ranges = render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, **specials
        )
        plain = self.tokenizer.backend_tokenizer.encode(texts[0], add_special_tokens=False)
        text = texts[0]
        return [int(any(_says(text, token, said) for said in ranges[0])) for token in plain.offsets]


def _says(text: str, token: tuple[int, int], said: tuple[int, int]) -> bool:
    (start, stop), (begin, end) = token, said
    return begin <= start < end or (start < begin < stop and set(text[start:begin]) == {" "})


@cache
def case(kind: str, *, trims_offsets: bool = False) -> Case:
    """Return a tokenizer of one of the kinds of :mod:`tests.encode.tokenizer_kinds` with all control strings."""
    backend = tokenizer_kinds.KINDS[kind]()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    if trims_offsets:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token=EOS)
    spec = load_tokenizer(tokenizer)
    return Case(tokenizer, replace(spec, specials=dict(tokenizer.special_tokens_map)))


BYTE_LEVEL = ["gpt2_bpe", "llama3_bpe"]
KINDS = ["gpt2_bpe", "sentencepiece_bpe", "metaspace_bpe"]

Message = dict[str, Any]
TALK: list[Message] = [
    {"role": "user", "content": "What is a lane? 👩‍🚀"},
    {"role": "assistant", "content": "A lane is a sequence of rows.\nIt is deterministic."},
    {"role": "user", "content": " and a row \n"},
    {"role": "assistant", "content": "  A row: \U000f0000 tokens, e.g. <think> 1 2 3 \n\n"},
]
SYSTEM: Message = {"role": "system", "content": "Answer briefly."}


def samples(of: Case, text: str, *conversations: list[Message], skip: bool = False, **options: Any) -> Samples:
    """Encode conversations with the Jinja ``text``; ``options`` are those of ``Chat``."""
    objective = ChatSamples(Chat(template=text, **options), of.spec, skip)
    return objective.encode([{"messages": messages} for messages in conversations])


def flags_of(made: Samples) -> list[int]:
    """Return the flags of all tokens."""
    assert made.flags is not None
    return [int(flag) for flag in made.flags]


def alternating(texts: list[str]) -> list[Message]:
    """Return a conversation of the user and the assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
