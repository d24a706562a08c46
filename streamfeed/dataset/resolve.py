"""From a config to a plan: list the shards, see their formats, choose the lanes, take the fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from streamfeed.encode.objectives.build import has_flags, has_values, uses_engine
from streamfeed.encode.spec import tokenizer_spec
from streamfeed.errors import ConfigError
from streamfeed.formats.detect import make_format
from streamfeed.plan.carried import CarriedMap
from streamfeed.plan.fingerprint import asked_of, differences, fingerprint, source_print
from streamfeed.plan.indexed import Indexed
from streamfeed.plan.listed import Listed, listed_source
from streamfeed.plan.plan import Plan, Rules, SourcePlan
from streamfeed.plan.shapes import objective_shape, read_shape, token_shape
from streamfeed.plan.split import Split, Splitter, split_sources
from streamfeed.storage.store import Store
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streamfeed.config import Source, StreamConfig
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.formats.protocol import Piece
    from streamfeed.formats.shape import Shape
    from streamfeed.plan.shards import ShardTable

__all__ = ["Once", "Resolved", "fit_plan"]

T = TypeVar("T")


class Once(Protocol):
    """Makes something in one process for all that need it: see :func:`streamfeed.topology.once`."""

    def __call__(self, make: Callable[[], T], /) -> T:
        """Return what ``make`` made, here or elsewhere."""


def _here(make: Callable[[], T], /) -> T:
    return make()


class _Look(NamedTuple):
    """What looking at the stores found: all sources' shards, and how they are cut for the config's lanes."""

    listed: list[Listed]
    split: Split
    retries: int
    indexed: tuple[str, ...]
    """for each source, a hash of what a manifest told of its shards, empty where none was used"""


class Resolved:
    """A config whose shards have been listed and whose tokenizer is loaded, once; plans for any number of lanes.

    ``once`` lists where others need the same list; ``plan``, one that was made of the same config before, saves even
    that. ``cache_dir`` keeps what a tokenizer's files mean. What was found is logged once. Raises :class:`SourceError`
    for a URI that means nothing, :class:`~streamfeed.errors.ConfigError` for a tokenizer that cannot be loaded and for
    a plan of another config.
    """

    def __init__(
        self, config: StreamConfig, *, once: Once = _here, plan: Plan | None = None, cache_dir: Path | None = None
    ) -> None:
        self.config = config
        self.tokenizer: TokenizerSpec = tokenizer_spec(config.tokenizer, cache_dir)
        self._given = None if plan is None else fit_plan(plan, config, self.tokenizer)
        self._look = once(lambda: _look(config)) if plan is None else None

    @property
    def retries(self) -> int:
        """Requests of listing and planning that were repeated because a store failed."""
        return self._look.retries if self._look else 0

    def plan(self, lanes: int | None = None) -> Plan:
        """Return the plan; ``lanes`` (say, a state's) wins over the config's."""
        if self._look is None:
            assert self._given is not None
            if lanes not in {None, self._given.lanes}:
                raise ConfigError(
                    f"the plan that was passed in has {self._given.lanes} lanes, the state {lanes}; pass none, or one "
                    "made for as many"
                )
            return self._given
        split, indexed = self._look.split, self._look.indexed
        if lanes not in {None, split.lanes}:
            stores = [Store(source.storage_options, policy=source.retry) for source in self.config.sources]
            split, indexed = _split(self.config, stores, self._look.listed, lanes)
        return _plan(self.config, self.tokenizer, self._look.listed, split, indexed)


def _look(config: StreamConfig) -> _Look:
    """List all sources and read what cutting them takes."""
    stores = [Store(source.storage_options, policy=source.retry) for source in config.sources]
    listed = [
        listed_source(source, _shape(source, config), store, config.hold_out)
        for source, store in zip(config.sources, stores, strict=True)
    ]
    split, indexed = _split(config, stores, listed, None)
    return _Look(listed, split, sum(store.stats.retries for store in stores), indexed)


def _split(
    config: StreamConfig, stores: Sequence[Store], listed: Sequence[Listed], lanes: int | None
) -> tuple[Split, tuple[str, ...]]:
    """Return how sources are cut, and for each a hash of what manifests beside its shards told for that."""
    tables = [found.table for found in listed]
    indexes = [Indexed(table, store.options) for table, store in zip(tables, stores, strict=True)]
    splitters = [
        _splitter(_shape(source, config), store, table, index)
        for source, store, table, index in zip(config.sources, stores, tables, indexes, strict=True)
    ]
    split = split_sources(tables, splitters, lanes or config.lanes, finite=config.epochs is not None)
    return split, tuple(index.digest for index in indexes)


def _shape(source: Source, config: StreamConfig, tokenizer: str | None = None) -> Shape:
    """Return what is read of a source; with ``tokenizer``, the print of one, its shards are tokens."""
    if tokenizer is not None:
        return token_shape(source, config.objective, config.hold_out, tokenizer)
    return read_shape(source, config.objective, config.hold_out)


def _splitter(shape: Shape, store: Store, table: ShardTable, indexed: Indexed) -> Splitter:
    """Return the function that cuts a shard of a source: by the manifest beside it, else by its format."""

    def split(shard: int, max_bytes: int) -> list[Piece] | None:
        told = indexed.pieces(shard, max_bytes)
        if told is not None:
            return told
        file = store.file(table.url(shard), int(table.sizes[shard]), table.version(shard))
        return make_format(table.kind(shard), shape).split(file, max_bytes)

    return split


def _plan(
    config: StreamConfig,
    tokenizer: TokenizerSpec,
    listed: Sequence[Listed],
    split: Split,
    indexed: Sequence[str],
) -> Plan:
    prints = [
        source_print(source, found.names, found.table.sizes.tolist(), found.kinds)
        | ({"index": digest} if digest else {})
        for source, found, digest in zip(config.sources, listed, indexed, strict=True)
    ]
    return Plan(
        sources=[
            SourcePlan(
                found.table,
                units,
                _shape(source, config, tokenizer.fingerprint if "tokens" in found.kinds else None),
                source.weight,
                source.storage_options,
                source.retry,
                _asked(source),
                None if source.mapping is None else CarriedMap(source.mapping),
                objective_shape(source, config.objective),
            )
            for source, found, units in zip(config.sources, listed, split.units, strict=True)
        ],
        rules=_rules(config, tokenizer, split.lanes),
        fingerprint=fingerprint(config, prints, tokenizer, split.lanes),
    )


def _rules(config: StreamConfig, tokenizer: TokenizerSpec, lanes: int) -> Rules:
    return Rules(
        lanes=lanes,
        seq_len=config.seq_len,
        seed=config.seed,
        shuffle_buffer=config.shuffle_buffer,
        window_bytes=config.window_bytes,
        epochs=config.epochs,
        on_error=config.on_error,
        skip_budget=config.skip_budget,
        packing=config.packing,
        group_by_length=config.group_by_length,
        flags=has_flags(config.objective, tokenizer),
        values=has_values(config.objective),
        eos=uses_engine(config.objective),
        hold_out=None if config.hold_out is None or config.hold_out.by == "shard" else config.hold_out,
    )


def fit_plan(plan: Plan, config: StreamConfig, tokenizer: TokenizerSpec) -> Plan:
    """Return ``plan`` with what of ``config`` defines no rows: epochs, budget, credentials.

    Raises :class:`ConfigError` where the plan is of another config, naming what differs.
    """
    prints: list[dict[str, Any]] = list(plan.fingerprint["sources"])
    if len(prints) == len(config.sources):  # else the differences name the two numbers
        shards = ("shards", "bytes", "hash", "index")
        prints = [
            {name: old[name] for name in shards if name in old} | asked_of(source)
            for old, source in zip(prints, config.sources, strict=True)
        ]
    else:
        prints = [{} for _ in config.sources]
    lanes = plan.lanes if config.lanes == "auto" else config.lanes
    lines = differences(plan.fingerprint, fingerprint(config, prints, tokenizer, lanes))
    if lines:
        said = "\n  ".join(line.replace("in the state", "in the plan") for line in lines)
        raise ConfigError(f"the plan that was passed in is of another config:\n  {said}")
    for number, (source, given) in enumerate(zip(plan.sources, config.sources, strict=True)):
        if source.asked and source.asked != _asked(given):
            raise ConfigError(
                f"the plan that was passed in is of another config:\n  source {number}: {_words(source.asked)} in the "
                f"plan, {_words(_asked(given))} now"
            )
    sources = [
        replace(
            source,
            storage_options=given.storage_options,
            retry=given.retry,
            map=None if given.mapping is None else CarriedMap(given.mapping),
        )
        for source, given in zip(plan.sources, config.sources, strict=True)
    ]
    return replace(plan, sources=sources, rules=_rules(config, tokenizer, plan.lanes))


def _asked(source: Source) -> tuple[str | None, ...]:
    """Return what the shards of ``source`` were chosen by; a URL that is signed anew is the same."""
    return (source.format, source.config, source.split, *map(redact, source.uris))


def _words(asked: Sequence[str | None]) -> str:
    return ", ".join(part for part in (*asked[3:], *asked[:3]) if part)
