"""A run of the main job, traced: every step is made of the rows that the loop was given, and nothing was logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer

from streamfeed.cli.trace import trace
from streamfeed.cli.trace_flags import Asked
from streamfeed.loader.loader import StreamLoader
from streamfeed.train import loop
from streamfeed.train.cli import main
from tests.corpora import texts_with_ids, write_corpus
from tests.train.jobs import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Recording(StreamLoader):
    """A loader whose rows are kept in the order in which they were handed out."""

    rows: list[list[int]]

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            Recording.rows += batch["input_ids"].tolist()
            yield batch


@pytest.mark.usefixtures("one_engine")
def test_every_step_of_a_run_and_of_its_resume_is_traced(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus("jsonl", tmp_path / "corpus", [text or "" for text in texts_with_ids(300)], shards=4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "StreamLoader", Recording)
    flags = {**FLAGS, "data.tokenizer": tokenizer_folder, "loader.num_workers": 0, "train.output_dir": "run"}
    words = [f"--{name}={value}" for name, value in flags.items()]
    Recording.rows = []
    assert main([*words, "--train.max_steps=6"]) == 0
    assert main(["--resume=run", "--train.max_steps=11", "--train.skip_rows=8", "--loader.batch_size=4"]) == 0
    given = [Recording.rows[4 * index : 4 * index + 4] for index in range(13)]
    assert len(Recording.rows) == 4 * 6 + 8 + 4 * 5
    del given[6:8]  # stepped over
    traced = list(trace(Asked(tmp_path / "run", 1, 11)))
    assert [[row["row"] for row in one.rows] for one in traced[5:7]] == [[20, 21, 22, 23], [32, 33, 34, 35]]
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    for one, rows in zip(traced, given, strict=True):
        said = [[(piece["text"], *piece["columns"]) for piece in row["pieces"]] for row in one.rows]
        for pieces, ids in zip(said, rows, strict=True):
            assert pieces[-1][2] == len(ids)
            for text, begin, end in pieces:
                assert text == tokenizer.decode(ids[begin:end], skip_special_tokens=False)
    assert [one.since for one in (traced[0], traced[4], traced[6])] == [
        "the beginning",
        str(tmp_path / "run/checkpoints/step-000004"),
        str(tmp_path / "run/checkpoints/step-000006"),
    ]
