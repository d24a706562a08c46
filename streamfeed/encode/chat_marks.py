"""Where the strings of a conversation lie in what a template made of it.

The conversation is rendered a second time with marks around its strings. Marks are made of a character that the text
does not hold; with them removed, the text must be the first one: then the template did not look at what it was given,
and the marks say what came from where. Templates that trim contents keep marks that stand inside the white space.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamfeed.encode.chat_template import BadConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfeed.encode.chat_template import Message
    from streamfeed.encode.chat_tokens import Range

__all__ = ["Marked", "find_controls", "find_strings"]

_FIRST = 0xF0000
_ELSEWHERE = -1  # the owner of what is no content


@dataclass(slots=True)
class Marked:
    """Found strings: ``contents[i]`` are the ranges of the contents of message ``i``, ``ends[i]`` where they end.

    A message of which a part's beginning was lost, as where a template strips what a model thought, is not in
    ``contents``; one of which the end was lost is in neither. ``foreign`` are the ranges of all strings found, in order
    and without overlaps; ``complete`` says that none is lost.
    """

    contents: dict[int, list[Range]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    foreign: list[Range] = field(default_factory=list)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class _Placement:
    """Where the marks of an assistant's content stand: outside or inside its leading and its trailing white space."""

    leading: bool = False
    trailing: bool = False
    empty: bool = True
    """Whether a content of white space alone is marked."""


def find_strings(
    messages: Sequence[Message],
    text: str,
    render: Callable[[Sequence[Message]], str],
    controls: re.Pattern[str],
    *,
    edges: bool,
) -> Marked | None:
    """Find the contents of ``messages``, and other strings of theirs that hold ``controls``, in ``text``.

    With ``edges`` the white space at the edges of an assistant's content belongs to it where the template keeps it.
    Returns None where the template looks at contents, so that marks change what it makes of them.
    """
    for placement in _placements(messages, edges=edges):
        marker = _Marker(_unused(messages, text), controls, placement)
        found = _located(marker, [marker.message(i, message) for i, message in enumerate(messages)], text, render)
        if found is not None:
            return found
    return None


def find_controls(
    messages: Sequence[Message], text: str, render: Callable[[Sequence[Message]], str], controls: re.Pattern[str]
) -> list[Range] | None:
    """Return where control strings inside the strings of ``messages`` lie; None where marks around them are lost."""
    marker = _Marker(_unused(messages, text), controls, _Placement())
    marked = [marker.controls_in(message) for message in messages]
    if not marker.owners:
        return []
    found = _located(marker, marked, text, render)
    return found.foreign if found is not None and found.complete else None


def _placements(messages: Sequence[Message], *, edges: bool) -> Iterator[_Placement]:
    contents = [text for message in messages for text in _texts(message.get("content"))]
    assistants = [text for message in messages if _is_assistant(message) for text in _texts(message.get("content"))]
    leading = {False, edges and any(text[:1].isspace() for text in assistants)}
    trailing = {False, edges and any(text[-1:].isspace() for text in assistants)}
    for empty in (True, False) if any(not text.strip() for text in contents) else (True,):
        for inner_trailing in (False, True) if len(trailing) == 2 else (not edges,):
            for inner_leading in (False, True) if len(leading) == 2 else (not edges,):
                yield _Placement(inner_leading, inner_trailing, empty)


def _located(
    marker: _Marker, marked: Sequence[Message], text: str, render: Callable[[Sequence[Message]], str]
) -> Marked | None:
    try:
        pieces = marker.pattern.split(render(marked))
    except BadConversation:
        return None
    if "".join(pieces[::2]) != text:
        return None
    return _ranges(pieces, marker.owners)


def _ranges(pieces: Sequence[str], owners: Sequence[int]) -> Marked:
    found = Marked()
    begun: dict[int, int] = {}
    whole: dict[int, Range] = {}
    ended: dict[int, int] = {}
    at = 0
    for piece, number in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        at += len(piece)
        string = int(number) // 2 if number else -1
        if number and int(number) % 2 == 0:
            begun[string] = at
        elif number:
            ended[string] = at
            begin = begun.pop(string, None)
            if begin is not None:
                whole[string] = (begin, at)
                found.foreign.append((begin, at))
    strings: defaultdict[int, list[int]] = defaultdict(list)
    for string, owner in enumerate(owners):
        strings[owner].append(string)
        if string in ended and owner != _ELSEWHERE:
            found.ends[owner] = max(found.ends.get(owner, 0), ended[string])
    for owner in found.ends:
        if all(string in whole for string in strings[owner]):
            found.contents[owner] = [whole[string] for string in strings[owner]]
    found.complete = len(whole) == len(owners)
    return found


class _Marker:
    """Puts marks around strings: a private-use character, a number, and the character again."""

    def __init__(self, character: str, controls: re.Pattern[str], placement: _Placement) -> None:
        self.owners: list[int] = []
        """Of each marked string, the message whose content it is."""
        self.pattern = re.compile(f"{character}([0-9]+){character}")
        self._character = character
        self._controls = controls
        self._placement = placement

    def message(self, index: int, message: Message) -> Message:
        """Return a message with marks around its contents, and around other strings that hold control strings."""
        placement = self._placement if _is_assistant(message) else _Placement(True, True, self._placement.empty)
        marked = {}
        for key, value in message.items():
            marked[key] = self._content(index, value, placement) if key == "content" else self._other(value)
        return marked

    def controls_in(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
        """Return ``value`` with marks around each control string in its strings."""
        if isinstance(value, str):
            return self._controls.sub(lambda match: self._marked(_ELSEWHERE, match[0]), value)
        return _inside(value, self.controls_in)

    def _content(self, index: int, value: object, placement: _Placement) -> object:
        if isinstance(value, str):
            return self._edged(index, value, placement)
        if isinstance(value, list):
            return [self._part(index, part, placement) for part in value]
        return self._other(value)

    def _part(self, index: int, part: object, placement: _Placement) -> object:
        if not isinstance(part, dict):
            return self._other(part)
        return {
            key: self._edged(index, value, placement)
            if key == "text" and isinstance(value, str)
            else self._other(value)
            for key, value in part.items()
        }

    def _edged(self, index: int, text: str, placement: _Placement) -> str:
        if not placement.empty and not text.strip():
            return text
        begin = len(text) - len(text.lstrip()) if placement.leading else 0
        end = max(begin, len(text.rstrip())) if placement.trailing else len(text)
        return text[:begin] + self._marked(index, text[begin:end]) + text[end:]

    def _other(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
        if isinstance(value, str):
            return self._marked(_ELSEWHERE, value) if self._controls.search(value) else value
        return _inside(value, self._other)

    def _marked(self, owner: int, text: str) -> str:
        number, mark = 2 * len(self.owners), self._character
        self.owners.append(owner)
        return f"{mark}{number}{mark}{text}{mark}{number + 1}{mark}"


def _inside(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever JSON can say
    if isinstance(value, dict):
        return {key: change(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [change(inner) for inner in value]
    return value


def _is_assistant(message: Message) -> bool:
    return message.get("role") == "assistant"


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _unused(messages: Sequence[Message], text: str) -> str:
    """Return a private-use character that neither the text holds nor a content of the messages."""
    texts = [text, *(one for message in messages for one in _texts(message.get("content")))]
    code = _FIRST
    while any(chr(code) in one for one in texts):
        code += 1
    return chr(code)
