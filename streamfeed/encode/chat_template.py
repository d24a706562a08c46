"""Chat templates: Jinja text that turns a conversation into one string, rendered as ``transformers`` does.

Written again here, since a worker that imports transformers for it takes seconds and tens of megabytes. Templates come
with tokenizers from anywhere, so they run in Jinja's sandbox, on plain JSON values, and without a clock: a row must be
the same tomorrow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2 import Environment
    from jinja2.parser import Parser

__all__ = ["PROBES", "BadConversation", "ChatTemplate", "Rendered", "plain_messages"]

Message = dict[str, Any]

_REASONING = ("reasoning_content", "thinking", "reasoning")
PROBES: tuple[list[Message], ...] = (
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}],
)
"""Conversations that a template can be tried with: most take both, some insist on a system's message, or refuse it."""


class BadConversation(Exception):  # noqa: N818 - it says what is bad, and never leaves the objective
    """The template refuses a conversation, or cannot render it; says why."""


class Rendered(NamedTuple):
    """A conversation as text; ``generated`` are the ranges of its characters that ``{% generation %}`` blocks gave."""

    text: str
    generated: list[tuple[int, int]]


class ChatTemplate:
    """A compiled template; ``specials`` are the strings that it may name, as ``bos_token``.

    Raises :class:`~streamfeed.errors.ConfigError` where the text is no template, and where it renders no conversation
    whatever, other than by refusing it itself.
    """

    def __init__(self, text: str, specials: Mapping[str, str], name: str) -> None:
        self.source = text
        self._name = name
        self._specials = dict(specials)
        self.bos = self._specials.get("bos_token")
        """The string that the template knows as BOS."""
        environment = _environment()
        self._generation = cast("_Generation", environment.extensions[_Generation.identifier])
        try:
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise self._broken(f"{error.message} (line {error.lineno})") from error
        self.marks_generation = self._generation.used
        """Whether the template says itself what the assistant generates."""
        self.prompts = self._probe()
        """Whether it ends in where the assistant begins, when asked to."""

    def render(self, messages: Sequence[Message], *, prompt: bool = False) -> Rendered:
        """Render messages, which :func:`plain_messages` gave; with ``prompt`` up to where the assistant begins.

        Raises :class:`BadConversation`, and :class:`~streamfeed.errors.ConfigError` for what no conversation can mend.
        """
        blocks: list[str] = []
        generated = self._generation.begin()
        context: Message = {**self._specials, "tools": None, "documents": None, "add_generation_prompt": prompt}
        try:
            for block in self._template.generate(messages=messages, **context):
                blocks.append(block)
                self._generation.written += len(block)
        except _RefusedError as error:
            raise BadConversation(str(error)) from error
        except SecurityError as error:
            raise self._broken(f"it does what a template may not: {error}") from error
        except Exception as error:  # a template's expressions raise what Python's do
            if isinstance(error, UndefinedError) and "'strftime_now'" in str(error):
                raise ConfigError(
                    f"the chat template of {self._name} asks for today's date (strftime_now), which would make rows "
                    "differ from day to day; pass Chat(template=...) with a fixed date in its place"
                ) from error
            raise BadConversation(f"{type(error).__name__}: {error}") from error
        return Rendered("".join(blocks), generated)

    def _probe(self) -> bool:
        failures = []
        for messages in PROBES:
            try:
                self.render(messages)
                return self.render(messages[:-1], prompt=True).text != self.render(messages[:-1]).text
            except BadConversation as error:
                failures.append(error)
        if not any(isinstance(error.__cause__, _RefusedError) for error in failures):
            raise self._broken(str(failures[0]))
        return False

    def _broken(self, cause: str) -> ConfigError:
        return ConfigError(f"the chat template of {self._name} is broken: {cause}; pass Chat(template=...)")


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages as templates know them: without nulls, and reasoning under each name that templates read."""
    made = []
    for message in messages:
        kept = {key: value for key, value in message.items() if value is not None}
        reasoning = next((kept[key] for key in _REASONING if key in kept), None)
        if reasoning is not None:
            kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
        made.append(kept)
    return made


class _RefusedError(TemplateError):
    """What ``raise_exception`` raises: the template's own word on a conversation."""


class _Generation(Extension):
    """The tag ``{% generation %}``: notes where its text lies in the output."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's declaration

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.used = False
        self.written = 0
        self._ranges: list[tuple[int, int]] = []

    def begin(self) -> list[tuple[int, int]]:
        """Return the list that the next rendering fills."""
        self.written, self._ranges = 0, []
        return self._ranges

    def parse(self, parser: Parser) -> nodes.CallBlock:
        """Parse a block."""
        self.used = True
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_note"), [], [], body)
        block.set_lineno(line)
        return block

    def _note(self, caller: Callable[[], str]) -> str:
        text = caller()
        self._ranges.append((self.written, self.written + len(text)))
        return text


class _SafeNamespace(Namespace):
    """A namespace without names that begin with an underscore, through which a template could reach Python."""

    def __init__(*args: Any, **attributes: Any) -> None:  # noqa: ANN401 - and a template may name one "self"
        values = dict(*args[1:], **attributes)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class _SafeDict:
    """``dict`` as a function, not as a class."""

    def __call__(self, *args: Any, **entries: Any) -> dict[Any, Any]:  # noqa: ANN401
        return dict(*args, **entries)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:  # noqa: ANN401
        """See ``dict.fromkeys``."""
        return dict.fromkeys(*args)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_refuse, dict=_SafeDict(), namespace=_SafeNamespace)
    return environment


def _refuse(message: str) -> None:
    raise _RefusedError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the escapes of HTML that Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
