"""What the assistant says in a rendered conversation, for templates without ``{% generation %}``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.encode.chat_marks import Marked
from streamfeed.encode.chat_template import BadConversation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.chat_template import ChatTemplate, Message
    from streamfeed.encode.chat_tokens import ChatTokenizer, Range

__all__ = ["assistant_ranges"]

_THOUGHTS = {"reasoning_content", "thinking", "reasoning"}
_CALLS = {"tool_calls", "function_call"}


def assistant_ranges(
    template: ChatTemplate, tokenizer: ChatTokenizer, messages: Sequence[Message], text: str, marked: Marked | None
) -> list[Range] | None:
    """Return the ranges of ``text`` that assistants say, each with the control token that ends it.

    That is their contents. Of a message that holds more, as reasoning or calls of tools, it is all that is behind the
    prompt for it. None where neither the marks nor the renderings of the first messages tell where a turn lies.
    """
    turns = _Turns(template, tokenizer, messages, text, marked or Marked())
    ranges: list[Range] = []
    for index, message in enumerate(messages):
        if message.get("role") == "assistant":
            found = turns.ranges(index)
            if found is None:
                return None
            ranges += found
    return ranges


class _Turns:
    """Finds the turns of one conversation."""

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: ChatTokenizer,
        messages: Sequence[Message],
        text: str,
        marked: Marked,
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._messages = messages
        self._text = text
        self._marked = marked
        self._settled = 0  # where the last of the beginnings ends that the text was found to have

    def ranges(self, index: int) -> list[Range] | None:
        """Return the ranges of the assistant's message ``index``; None where they cannot be told."""
        message = self._messages[index]
        more = {key for key in _THOUGHTS | _CALLS if message.get(key) and key in self._template.source}
        if not more and index in self._marked.contents:
            *parts, last = self._marked.contents[index]
            return [*parts, (last[0], self._with_control(last[1]))]
        end = self._marked.ends.get(index) if more <= _THOUGHTS else None
        if end is None:
            end = self._end(index)
        begin = None if end is None else self._begin(index, end, narrow=not more)
        if begin is None or end is None:
            return None if message.get("content") or more else []
        return [(begin, self._with_control(end))]

    def _begin(self, index: int, end: int, *, narrow: bool) -> int | None:
        """Return where the prompt for a message ends; else, with ``narrow``, where the content that ends it begins."""
        prompt = self._prefix(index, prompt=True) if self._template.prompts else None
        if prompt is not None and prompt <= end:
            return prompt
        content = self._messages[index].get("content")
        if not narrow or not isinstance(content, str) or not content.strip():
            return None
        begin = self._text.rfind(content.strip(), self._prefix(index, prompt=False) or 0, end)
        return begin if begin >= 0 and not self._text[begin + len(content.strip()) : end].strip() else None

    def _end(self, index: int) -> int | None:
        """Return where what a message adds to those before it ends, without white space and the last control token."""
        begin, after = self._settled, self._prefix(index + 1, prompt=False)
        if after is None:
            return None
        self._settled = after
        trimmed = begin + len(self._text[begin:after].rstrip())
        *_, last = [None, *self._tokenizer.specials.finditer(self._text, begin, trimmed)]
        return last.start() if last is not None and last.end() == trimmed else trimmed

    def _prefix(self, count: int, *, prompt: bool) -> int | None:
        """Return the length of the first ``count`` messages' text; None where the whole does not begin with it."""
        if count == 0 and not prompt:
            return 0
        try:
            text = self._template.render(self._messages[:count], prompt=prompt).text
        except BadConversation:
            return None
        return len(text) if self._text.startswith(text) else None

    def _with_control(self, end: int) -> int:
        """Return the place behind the control token at ``end``, which ends the turn; a BOS begins the next one."""
        match = self._tokenizer.ending.match(self._text, end)
        if match is None or match[1] == self._template.bos or self._is_said(match.start(1)):
            return end
        return match.end()

    def _is_said(self, place: int) -> bool:
        return any(begin <= place < end for begin, end in self._marked.foreign)
