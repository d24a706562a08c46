"""Conversations: messages by a chat template, with the loss on what the assistant says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from streamfeed.encode.chat_marks import find_controls, find_strings
from streamfeed.encode.chat_template import PROBES, BadConversation, ChatTemplate, plain_messages
from streamfeed.encode.chat_tokens import ChatTokenizer, Tokens
from streamfeed.encode.chat_turns import assistant_ranges
from streamfeed.encode.long import LONG
from streamfeed.encode.objectives.protocol import LOSS, Samples
from streamfeed.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.chat_marks import Marked
    from streamfeed.encode.chat_template import Message, Rendered
    from streamfeed.encode.chat_tokens import Range
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.objectives import Chat

__all__ = ["ChatSamples", "template_of"]

_SHOWN = 80


class _UnclearError(BadConversation):
    """The template renders a conversation, but what it makes of it cannot be told apart; says all of why."""


def template_of(settings: Chat, spec: TokenizerSpec) -> str:
    """Return the Jinja text that conversations are rendered with.

    Raises :class:`~streamfeed.errors.ConfigError` where neither the settings nor the tokenizer has one.
    """
    template = settings.template or spec.chat_template
    if template is None:
        raise ConfigError(
            f"tokenizer {spec.name} has no chat template; pass Chat(template=...), or the tokenizer of a chat model"
        )
    return template


@dataclass(slots=True)
class _Conversation:
    """A rendered conversation: its text, what of it is said by the assistant, and what it holds of control strings."""

    text: str = ""
    said: Sequence[Range] = ()
    own: list[Range] = field(default_factory=list)
    controls: int = 0
    skipped: bool = False


class ChatSamples:
    """Encodes the ``messages`` of records: ids as ``apply_chat_template`` of ``transformers`` gives, nothing added.

    Control strings inside of what people say stay text. Labels are the tokens of the assistant's contents and the
    control token that ends each (with the white space between the two); where a message holds reasoning or calls of
    tools, all of the turn; with a template that has ``{% generation %}`` blocks, the tokens that these touch. A
    conversation that the template refuses, or in which it hides what is said, has no tokens and counts as skipped with
    ``skip``.

    Texts of more than ``long`` characters are encoded in parts, and counted.

    Raises :class:`~streamfeed.errors.ConfigError` where there is no template, a broken one, one that leaves out what is
    said, and where labels are asked for, one that hides what the assistant says in any conversation.
    """

    def __init__(self, settings: Chat, spec: TokenizerSpec, skip: bool, long: int = LONG) -> None:
        name = f"tokenizer {spec.name}" if settings.template is None else "the settings"
        self._template = ChatTemplate(template_of(settings, spec), spec.specials, name)
        self._assistant = settings.train_on == "assistant"
        self._by_blocks = self._template.marks_generation
        self._tokenizer = ChatTokenizer(spec.json, trimmed=self._by_blocks, long=long)
        self._skip = skip
        self._try(f"the chat template of {name}")

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; flags are None where every token is a label.

        Raises :class:`~streamfeed.errors.RecordError` for a conversation that the template refuses, or in which it
        hides what the assistant says, unless these are skipped.
        """
        conversations = [self._conversation(record["messages"]) for record in records]
        encoded = self._tokens(conversations)
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(tokens.ids) for tokens in encoded], out=offsets[1:])
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(tokens.ids for tokens in encoded)])
        flags = np.zeros(len(ids), dtype=np.uint8) if self._assistant else None
        if flags is not None:
            for conversation, tokens, begin in zip(conversations, encoded, offsets[:-1].tolist(), strict=True):
                self._flag(conversation, tokens, flags[begin : begin + len(tokens.ids)])
        return Samples(ids, offsets, flags, None, _counts(conversations, self._tokenizer.long))

    def _try(self, name: str) -> None:
        """Refuse a template that can do no conversation right, before any data is read."""
        for messages in PROBES:
            louder = [{**message, "content": 2 * message["content"]} for message in messages]
            try:
                if self._text(messages) == self._text(louder):
                    file = "" if "{" in self._template.source else "; its text is asked for, not the name of a file"
                    raise ConfigError(f"{name} gives the same text whatever is said{file}")
                self._rendered(messages)
            except _UnclearError as error:
                raise ConfigError(f"{name}: {error}") from error
            except BadConversation:
                continue
            return

    def _conversation(self, given: Sequence[Mapping[str, Any]]) -> _Conversation:
        messages = plain_messages(given)
        if not messages:
            return _Conversation()
        try:
            return self._rendered(messages)
        except BadConversation as error:
            if self._skip:
                return _Conversation(skipped=True)
            shown = orjson.dumps(given).decode()
            raise RecordError(
                f"the conversation {shown[:_SHOWN]}{'...' * (len(shown) > _SHOWN)}",
                "",
                str(error) if isinstance(error, _UnclearError) else f"the chat template refuses it: {error}",
                'correct it, leave it out with map, or pass over such records with on_error="skip"',
            ) from error

    def _rendered(self, messages: Sequence[Message]) -> _Conversation:
        rendered = self._template.render(messages)
        text, controls = rendered.text, self._tokenizer.specials
        by_marks = self._assistant and not self._by_blocks
        marked = find_strings(messages, text, self._text, controls, edges=by_marks)
        said = self._said(messages, rendered, marked) if self._assistant else ()
        foreign = marked.foreign if marked is not None and marked.complete else None
        if foreign is None:
            foreign = find_controls(messages, text, self._text, controls)
        if foreign is None:
            raise _UnclearError("it holds control strings, and the chat template changes what is around them")
        own, count = self._tokenizer.own(text, foreign)
        return _Conversation(text, said, own, count)

    def _said(self, messages: Sequence[Message], rendered: Rendered, marked: Marked | None) -> Sequence[Range]:
        if self._by_blocks:
            return rendered.generated
        ranges = assistant_ranges(self._template, self._tokenizer, messages, rendered.text, marked)
        if ranges is None:
            raise _UnclearError(
                "the chat template changes what the assistant says in a way that hides where it is; mark it in the "
                "template with {% generation %} ... {% endgeneration %} and pass that as Chat(template=...), "
                'or train_on="all"'
            )
        return ranges

    def _text(self, messages: Sequence[Message]) -> str:
        return self._template.render(messages).text

    def _tokens(self, conversations: Sequence[_Conversation]) -> list[Tokens]:
        common = [conversation.text for conversation in conversations if not conversation.controls]
        encoded = iter(self._tokenizer.encode(common, offsets=self._assistant))
        return [
            self._tokenizer.encode_apart(conversation.text, conversation.own)
            if conversation.controls
            else next(encoded)
            for conversation in conversations
        ]

    def _flag(self, conversation: _Conversation, tokens: Tokens, flags: NDArray[np.uint8]) -> None:
        for begin, end in conversation.said:
            if self._by_blocks:
                flags[tokens.first_beyond(begin) : tokens.first_from(end)] |= LOSS
                continue
            first = tokens.first_from(begin)
            # A word's token may hold the space before it: it is the first that the model has to say.
            while first and tokens.characters(first - 1)[1] > begin:
                if conversation.text[tokens.characters(first - 1)[0] : begin].strip(" "):
                    break
                first -= 1
            flags[first : tokens.first_from(end)] |= LOSS


def _counts(conversations: Sequence[_Conversation], long: int) -> dict[str, NDArray[np.int64]]:
    counts = {
        "long": np.asarray([len(conversation.text) > long for conversation in conversations], dtype=np.int64),
        "controls": np.asarray([conversation.controls for conversation in conversations], dtype=np.int64),
        "skipped": np.asarray([conversation.skipped for conversation in conversations], dtype=np.int64),
    }
    return {name: count for name, count in counts.items() if count.any()}
