"""What only ``datasets`` can read, through its ``IterableDataset``: a unit is one of its shards.

``datasets`` reads by itself here: it fetches with its own retries, lists a folder of the repository in each process
that opens a file of it, and imports torch. Nothing else does, and nothing is read this way that our readers can read.
"""

from __future__ import annotations

import importlib
import tempfile
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from streamfeed.errors import CorruptShardError, FieldError, ReadError, ShardError
from streamfeed.formats.fields import found_at, listed
from streamfeed.formats.kinds import without_nulls
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece, Value
from streamfeed.formats.shape import Shape
from streamfeed.storage.hub.client import hide_signatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfeed.formats.recipe import Recipe
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.hub.address import HubAddress

__all__ = ["HubShards", "open_dataset"]

_EXAMPLES = 64
"""Read at a time: an example may be a whole document with media beside it."""

_BROKEN = (ValueError, EOFError, zlib.error, zipfile.BadZipFile, UnicodeError)  # pyarrow's and pandas' are ValueErrors


class HubShards:
    """Reads one text field, or those of a shape, of the examples that a builder of ``datasets`` makes.

    The extent is always the whole shard. A cursor's ``seek`` is 0, ``skip`` the examples passed: they are the position
    in the state of the shard's ``IterableDataset``, which ``load_state_dict`` takes. What is in front of it in the
    shard is read again, but not made into examples; other shards are not touched.
    """

    name = "datasets"

    def __init__(self, recipe: Recipe, text: str | Shape) -> None:
        self._recipe = recipe
        self._shape = Shape(text) if isinstance(text, str) else text

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:  # noqa: ARG002
        """Return None: a shard is entered at its start alone."""
        return None

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield the shard's examples from ``cursor`` on; see :class:`Format`."""
        done = cursor.skip
        batches = self._batches(file, done)
        while (batch := _next(batches, file, done)) is not None:
            values = self._values(batch, file, done)
            yield Chunk(0, done, values)
            done += len(values)

    def _batches(self, file: ShardFile, done: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        address, files, index, count = self._recipe.part(file.url)
        dataset = open_dataset(self._recipe, address, files, file.options).shard(num_shards=count, index=index)
        dataset.info.features = None  # else each example is decoded by them: images, audio, and a state in layers
        yield from _from(dataset, done)

    def _values(self, batch: Mapping[str, Sequence[Any]], file: ShardFile, done: int) -> list[Value]:
        names = list(batch)
        shape = self._shape.all_of(names)
        for field in [one.name or one.key for one in shape.fields] or [shape.text or "text"]:
            if not any(field == name or field.startswith(name + ".") for name in names):
                cause = f"there is no field {field!r}; fields present: {listed(names)}"
                raise FieldError(file.shard, "", cause, "set the source's text to one of them")
        values: list[Value] = []
        for offset, row in enumerate(zip(*batch.values(), strict=True)):
            record = dict(zip(names, row, strict=True))
            where = f"example {done + offset}"
            values.append(shape.value(record, where) if shape.plain else shape.value_of(_found(shape, record), where))
        return values


def _found(shape: Shape, record: Mapping[str, Any]) -> Iterator[object]:
    """Yield the fields of an example: its lists of messages come out of a column, and have nulls for absent keys."""
    for field in shape.fields:
        value = found_at(record, field.name or field.key)
        yield without_nulls(value) if field.kind == "messages" else value


def open_dataset(recipe: Recipe, address: HubAddress, files: Sequence[str], options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the ``IterableDataset`` that the recipe's builder makes of ``files``, at the commit of ``address``."""
    import datasets
    from datasets.data_files import DataFilesDict, DataFilesList

    hide_signatures()
    module = importlib.import_module(f"datasets.packaged_modules.{recipe.module}.{recipe.module}")
    builders = [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, datasets.DatasetBuilder)
        and found.__module__ == module.__name__
    ]
    settings = dict(recipe.settings)
    if "features" in settings:
        settings["features"] = datasets.Features.from_dict(settings["features"])
    origin = [(address.repo, address.revision)] * len(files)
    data_files = DataFilesList([address.at(path).url for path in files], origin)
    with tempfile.TemporaryDirectory(prefix="streamfeed-hub-") as scratch:  # the builder wants a folder, and locks it
        builder = builders[-1](
            cache_dir=scratch,
            config_name=recipe.config,
            hash=address.revision,
            base_path=address.url,
            repo_id=address.repo,
            token=options.get("token"),
            data_files=DataFilesDict({recipe.split: data_files}),
            **settings,
        )
    return builder.as_streaming_dataset(recipe.split)


def _from(dataset: Any, done: int) -> Iterator[Mapping[str, Sequence[Any]]]:  # noqa: ANN401
    """Yield batches of examples behind the first ``done``."""
    state = dataset.state_dict()
    place = _place(state)
    if done and place is None:
        dataset = dataset.skip(done)  # layers whose state is more than a position: the examples are made and dropped
    elif done:
        assert place is not None
        place["shard_example_idx"] = done
        dataset.load_state_dict(state)
    # Not iter(dataset): in a worker of a DataLoader that leaves out what it takes for other workers' shards.
    for batch in dataset.iter(batch_size=_EXAMPLES):
        done += len(next(iter(batch.values()), ()))
        reached = _place(dataset.state_dict())
        if place is not None and reached is not None and reached["shard_idx"] == 0:
            assert reached["shard_example_idx"] == done, "the state of an IterableDataset is no longer its position"
        yield batch


def _place(state: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of a dataset's state that is its position, None where there are layers with states above it."""
    inner = state["examples_iterable"]
    if inner.get("type") == "RebatchedArrowExamplesIterable" and inner.get("previous_state") is None:
        inner = inner["examples_iterable"]
    return inner if set(inner) == {"shard_idx", "shard_example_idx", "type"} else None


def _next(batches: Iterator[Mapping[str, Sequence[Any]]], file: ShardFile, done: int) -> Any:  # noqa: ANN401
    try:
        return next(batches, None)
    except ShardError:
        raise
    except ImportError as error:
        raise ReadError(file.shard, "", f"`datasets` needs a package to read it: {error}") from error
    except Exception as error:  # noqa: BLE001 - of any library that a builder uses
        where = f"behind example {done}"
        cause = f"`datasets` cannot read it ({type(error).__name__})"
        if isinstance(error, OSError) or not isinstance(error, _BROKEN):
            # Nothing of the error is shown: it may hold the signed URL of a large file.
            raise ReadError(file.shard, where, cause, "try again; the bytes prove nothing") from None
        raise CorruptShardError(file.shard, where, cause) from None
