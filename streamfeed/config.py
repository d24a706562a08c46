"""What a stream is: :class:`Source` and :class:`StreamConfig`.

Everything here is part of the stream's fingerprint (but ``epochs``, ``skip_budget``, credentials and retries); how a
stream *runs* (batch size, workers, ranks) is the loader's business and free to change on resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence  # here, so that typing.get_type_hints works on these classes
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, Literal

from streamfeed.errors import ConfigError
from streamfeed.objectives import Chat, Classification, Lm, Map, Objective, PromptCompletion
from streamfeed.redaction import redact

__all__ = ["HoldOut", "OnError", "Packing", "RetryPolicy", "Source", "StreamConfig"]

KEY = "key:"
Packing = Literal["concat", "best_fit", "none"]
OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class RetryPolicy:
    """How long a store's faults are borne.

    ``attempts``: requests made for one thing, the first included. Before the n-th repetition a random time of up to
    ``first_s * 2 ** (n - 1)`` seconds, at most ``most_s``, is waited, or longer where the store asks for it
    (Retry-After). No repetition begins later than ``total_s`` seconds after the first request. A request that brings no
    byte for ``stall_s`` seconds is given up and counts as failed.
    """

    attempts: int = 8
    first_s: float = 0.5
    most_s: float = 30.0
    total_s: float = 300.0
    stall_s: float = 30.0

    def __post_init__(self) -> None:
        _at_least("attempts", self.attempts, 1)
        for name in ("first_s", "most_s", "total_s", "stall_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a positive number of seconds, got {value!r}")


@dataclass(frozen=True)
class HoldOut:
    """A part of the corpus that training never reads: every record whose hash is among the lowest ``share`` of all.

    The hash is XXH3's of 64 bits with ``seed``, which has nothing to do with the stream's: no shuffle, epoch or
    topology moves a record to the other side, a larger share holds all of a smaller one, and what is added to the
    corpus moves nothing. It is the hash of what ``by`` says, in UTF-8:

    - ``text``: the record's text; where the objective reads several fields, all of these (where a map function has
      ``fields``, those), as they are before it. Copies of a text fall on one side.
    - ``key:NAME``: the field ``NAME`` of the record, a text or a whole number; dotted names reach into structs, and
      ``key:__key__`` is a tar sample's key. Records of one key, the parts of a page say, fall on one side. A record
      whose key is missing, null or empty is a bad one.
    - ``shard``: the shard's name, relative to its folder. Reading either part then does not read the other.

    ``part``: which of the two is read; :meth:`StreamConfig.held_out` sets it.
    """

    share: float
    by: str = "text"
    seed: int = 0
    part: Literal["training", "held_out"] = "training"

    def __post_init__(self) -> None:
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not (number and 0 < self.share < 1 and self.limit):
            raise ConfigError(f"the share of a hold-out is a number between 0 and 1, got {self.share!r}")
        if not isinstance(self.by, str) or not (self.by in {"text", "shard"} or self.key is not None):
            raise ConfigError(f"a hold-out is by 'text', 'shard' or 'key:' and a field's name, got {self.by!r}")
        if self.key is not None and not all(self.key.split(".")):
            raise ConfigError(f"the hold-out's key {self.key!r} has an empty part")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"the seed of a hold-out is a whole number in [0, 2**64), got {self.seed!r}")
        _one_of("part", self.part, ("training", "held_out"))

    @property
    def key(self) -> str | None:
        """The name of the field that the hash is of, None where it is of something else."""
        return self.by.removeprefix(KEY) if self.by.startswith(KEY) else None

    @property
    def limit(self) -> int:
        """The hash of the first record that is not held out, were there one for every number."""
        return int(self.share * 2.0**64)


@dataclass(frozen=True)
class Source:
    """One dataset of the mixture.

    ``uri`` is a path, folder, glob, brace pattern or URL, or a list of them. ``text`` names the field that holds
    the text, dotted names reach into structs (``meta.body``) and into a tar's members (``json.text``); left out, it
    is ``text``, and in a tar the ``txt`` member; plain text has no fields. ``format`` forces ``jsonl``,
    ``parquet``, ``arrow``, ``tar``, ``text`` (a document a file), ``lines`` (a document a line), ``csv``, ``tsv`` or
    ``tokens`` where suffix and magic bytes say something else. ``weight`` is the share of *tokens* that the source
    should have, relative to the others. ``storage_options`` are fsspec's, for the URIs' store: keys, end points. They
    are no part of the stream, and are written nowhere; nor is ``retry``, how long faults of a remote store are
    borne. Of ``hf://datasets/org/name``, a whole dataset on the Hub, ``config`` and ``split`` choose the files by
    the rules of the ``datasets`` library; left out, they are its default config and ``train``.

    ``map`` is a user's own function, or a :class:`Map` of one, run on every record before the objective; ``fields`` are
    those that it gets, left out: those that the objective reads.
    """

    uri: str | Sequence[str]
    text: str | None = None
    format: str | None = None
    weight: float = 1.0
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    config: str | None = None
    split: str | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    map: Map | Callable[..., Any] | None = None
    fields: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.uri, PurePath):
            object.__setattr__(self, "uri", str(self.uri))
        if not self.uris or not all(isinstance(uri, str) and uri for uri in self.uris):
            raise ConfigError("a source needs at least one URI, each a string that is not empty")
        if not (self.weight > 0 and self.weight < float("inf")):
            raise ConfigError(f"source {redact(self.uris[0])}: weight must be a positive number, got {self.weight}")
        if self.text is not None and not all(self.text.split(".")):
            raise ConfigError(f"source {redact(self.uris[0])}: text field {self.text!r} has an empty part")
        if self.map is not None and not isinstance(self.map, Map):
            object.__setattr__(self, "map", Map(self.map))
        if self.fields is not None and (self.map is None or not _are_names(self.fields)):
            raise ConfigError(f"source {redact(self.uris[0])}: fields is a list of names, for a map function to read")
        if (self.config or self.split) and not any(uri.startswith("hf://datasets/") for uri in self.uris):
            raise ConfigError(
                f"source {redact(self.uris[0])}: config and split are of datasets on the Hub, hf://datasets/..."
            )

    @property
    def mapping(self) -> Map | None:
        """The user's function with its settings."""
        assert self.map is None or isinstance(self.map, Map)
        return self.map

    def __repr__(self) -> str:
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        shown["uri"] = redact(self.uri) if isinstance(self.uri, str) else [redact(uri) for uri in self.uri]
        return f"Source({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs as a tuple, also when one was given as a string."""
        return (self.uri,) if isinstance(self.uri, str) else tuple(self.uri)


@dataclass(frozen=True)
class StreamConfig:
    """What the stream is; saved as a fingerprint with every state.

    ``tokenizer`` is a name, a folder, or a loaded ``transformers`` tokenizer. ``seq_len`` is the tokens of a row.
    ``shuffle_buffer`` is counted in documents over the whole run, 0 keeps the listed order. ``window_bytes`` bounds the
    UTF-8 bytes of text that one lane's window holds (a larger document is a window alone). ``epochs=None`` repeats for
    ever. ``on_error="skip"`` passes over what the bytes prove bad, at most ``skip_budget`` times.

    ``objective`` says what a record becomes. ``packing`` is how samples become rows: ``concat`` lays them end to end,
    ``best_fit`` puts whole ones together and pads, ``none`` makes a row of each. ``group_by_length`` (of ``none``) puts
    samples of about the same length into rows that follow each other.

    ``hold_out`` keeps a part of the records out of the stream; :meth:`held_out` is the stream of that part.
    """

    sources: Sequence[Source]
    tokenizer: Any
    seq_len: int = 2048
    packing: Packing = "concat"
    shuffle_buffer: int = 16384
    window_bytes: int = 64 << 20
    seed: int = 0
    lanes: int | Literal["auto"] = "auto"
    epochs: int | None = None
    on_error: OnError = "raise"
    skip_budget: int = 1000
    objective: Objective = field(default_factory=Lm)
    group_by_length: bool = False
    hold_out: HoldOut | None = None

    def held_out(self) -> StreamConfig:
        """Return the config of one pass over the part that is held out, in listed order.

        Raises :class:`ConfigError` where there is no ``hold_out``.
        """
        if self.hold_out is None:
            raise ConfigError("nothing is held out: give the stream a hold_out, as in HoldOut(0.01)")
        return replace(self.listed(), hold_out=replace(self.hold_out, part="held_out"))

    def listed(self) -> StreamConfig:
        """Return the config of one pass over the same records in listed order, as for an evaluation."""
        return replace(self, epochs=1, shuffle_buffer=0, lanes="auto", group_by_length=False)

    def __post_init__(self) -> None:
        if isinstance(self.sources, Source):
            object.__setattr__(self, "sources", (self.sources,))
        if not self.sources:
            raise ConfigError("a stream needs at least one source")
        strange = [type(source).__name__ for source in self.sources if not isinstance(source, Source)]
        if strange:
            raise ConfigError(f"sources takes Source objects, as in [Source('data/*.parquet')], got {strange[0]}")
        _at_least("seq_len", self.seq_len, 2)
        _at_least("shuffle_buffer", self.shuffle_buffer, 0)
        _at_least("window_bytes", self.window_bytes, 1)
        _at_least("skip_budget", self.skip_budget, 0)
        _one_of("packing", self.packing, ("concat", "best_fit", "none"))
        _one_of("on_error", self.on_error, ("raise", "skip"))
        if self.lanes != "auto":
            _at_least("lanes", self.lanes, 1)
        if self.epochs is not None:
            _at_least("epochs", self.epochs, 1)
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"seed must be in [0, 2**64), got {self.seed}")
        if self.hold_out is not None and not isinstance(self.hold_out, HoldOut):
            raise ConfigError(f"hold_out takes an object, as in HoldOut(0.01), got {self.hold_out!r}")
        self._check_objective()

    def _check_objective(self) -> None:
        if not isinstance(self.objective, Objective):
            raise ConfigError(f"objective takes an object, as in Lm() or Chat(), got {self.objective!r}")
        unread = [source for source in self.sources if source.text is not None]
        if unread and isinstance(self.objective, Chat | PromptCompletion):
            raise ConfigError(
                f"source {redact(unread[0].uris[0])}: {type(self.objective).__name__} does not read the text field "
                f"{unread[0].text!r}; name its own fields in the objective"
            )
        if isinstance(self.objective, Classification) and self.packing != "none":
            raise ConfigError(f"classification has one sample a row: set packing='none', not {self.packing!r}")
        if self.group_by_length and self.packing != "none":
            raise ConfigError(f"group_by_length is for packing='none', where rows have lengths, not {self.packing!r}")


def _are_names(given: object) -> bool:
    """Say whether this is a list of names of fields, each once and without empty parts."""
    names = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    whole = all(isinstance(name, str) and all(name.split(".")) for name in names)
    return whole and 0 < len(set(names)) == len(names)


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
