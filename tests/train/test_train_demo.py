from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import zstandard
from tokenizers import Tokenizer

from streamfeed.train import demo, demo_corpus
from streamfeed.train.cli import main
from streamfeed.train.metrics import read_metrics


@pytest.fixture
def stdlib(tmp_path: Path) -> Path:
    root = tmp_path / "python3"
    for index in range(40):
        file = root / ("pkg.data" if index % 3 else "") / f"mod{index:02d}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# module {index}\nvalue = {'é☃' * index!r}\n")
    for left_out in ("test", "site-packages/lib", "pkg.data/tests", "__pycache__"):
        (root / left_out).mkdir(parents=True)
        (root / left_out / "secret.py").write_text("left out")
    (root / "latin.py").write_bytes(b"# caf\xe9")
    (root / "empty.py").write_text("")
    (root / "notes.txt").write_text("no source")
    return root


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def texts(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                found.append(content.read().decode())
    for path in sorted(folder.glob("*.parquet")):
        found += pq.read_table(path)["text"].to_pylist()
    for path in sorted(folder.glob("*.jsonl.zst")):
        reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes()), read_across_frames=True)
        found += [json.loads(line)["text"] for line in reader.read().splitlines()]
    return found


def test_every_source_is_in_one_shard_and_nothing_else_is(tmp_path: Path, stdlib: Path) -> None:
    said: list[str] = []
    demo.prepare(said.append, tmp_path / "demo", stdlib)
    found = texts(tmp_path / "demo")
    assert sorted(found) == sorted(path.read_text() for path in stdlib.rglob("mod*.py"))
    assert not any("left out" in text for text in found)
    assert len([name for name in hashes(tmp_path / "demo") if name.startswith("stdlib-")]) == 9
    assert "40 files" in " ".join(said)
    assert "2 passed over" in " ".join(said)


def test_the_same_library_gives_the_same_bytes(tmp_path: Path, stdlib: Path) -> None:
    for name in ("one", "two"):
        demo.prepare(lambda _: None, tmp_path / name, stdlib)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


def test_a_finished_corpus_is_kept_and_an_interrupted_one_is_made_again(
    tmp_path: Path, stdlib: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "demo"

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "train_tokenizer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            demo.prepare(lambda _: None, folder, stdlib)
    (folder / "stdlib-000.tar").write_bytes(b"half")
    demo.prepare(lambda _: None, folder, stdlib)
    whole = hashes(folder)
    assert whole["stdlib-000.tar"] != hashlib.sha256(b"half").hexdigest()

    (stdlib / "mod00.py").write_text("changed")
    said: list[str] = []
    demo.prepare(said.append, folder, stdlib)
    assert hashes(folder) == whole
    assert "earlier run" in said[0]


def test_the_tokenizer_takes_any_text_back(tmp_path: Path, stdlib: Path) -> None:
    documents, _ = demo_corpus.find_documents(stdlib)
    demo.train_tokenizer([document.text for document in documents], tmp_path / "tokenizer", vocabulary=300)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    text = "def f(x):\n\treturn '日本 🙂' # <|endoftext"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.token_to_id("<|endoftext|>") == 0


def test_without_arguments_it_trains_on_its_own_shards_and_resumes_by_the_printed_command(
    tmp_path: Path, stdlib: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(stdlib))
    small = ["--train.max_steps", "2", "--data.seq_len", "16", "--model.hidden_size", "16", "--loader.num_workers", "0"]
    assert main(small) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Wrote them as 9 shards under shards/demo/" in said
    for word in ("at the start", "tokens/s", "data wait", "runs/demo-001/checkpoints/step-000002"):
        assert word in said
    assert said.endswith("python -m streamfeed.train --resume runs/demo-001 --train.max_steps 4")
    assert main(["--resume", "runs/demo-001", "--train.max_steps", "4"]) == 0
    assert main(["--resume", "latest", "--train.max_steps", "5"]) == 0
    assert [line["step"] for line in read_metrics(Path("runs/demo-001/metrics.jsonl"))] == [1, 2, 4, 5]
    torch.use_deterministic_algorithms(False)
