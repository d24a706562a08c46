"""A tokenizer as the engines need it: the JSON of the *loaded* tokenizer, its special ids and a fingerprint."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import orjson
import xxhash

from streamfeed.encode.frame import Frame
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TokenizerSpec", "is_of_folder", "load_tokenizer"]

_SET_EOS = (
    'set one where the tokenizer is made, e.g. tokenizer.eos_token = "<|endoftext|>" before save_pretrained, '
    'or "eos_token" in its tokenizer_config.json'
)


@dataclass(frozen=True)
class TokenizerSpec:
    """All of a tokenizer that a stream depends on; small to pickle beside its ``json``.

    ``json`` is what the loaded tokenizer means (it can differ from the file on disk), without truncation and padding.
    ``fingerprint`` is the xxh3_128 hex of ``json`` and the special ids. ``bos_id`` is set only where the tokenizer
    itself puts a BOS in front of a text. ``vocab_size`` is the largest id and one: a vocabulary may have gaps.
    ``chat_template`` is Jinja text, and ``specials`` what it may name: ``bos_token`` and so on, also those that only
    this model has. ``type_ids`` says that its models take token types.
    """

    json: str
    fingerprint: str
    eos_id: int | None
    bos_id: int | None
    pad_id: int | None
    vocab_size: int
    name: str
    mask_id: int | None = None
    chat_template: str | None = None
    specials: Mapping[str, str] = field(default_factory=dict, hash=False)
    type_ids: bool = False

    @property
    def frame(self) -> Frame:
        """The special tokens that engines put around a document.

        Raises :class:`~streamfeed.errors.ConfigError` where the tokenizer has no EOS.
        """
        if self.eos_id is None:
            raise ConfigError(f"tokenizer {self.name} has no EOS token, which ends every document; {_SET_EOS}")
        return Frame(self.bos_id, self.eos_id)

    @property
    def padding(self) -> int:
        """The id that fills rows: the pad, else the EOS, else 0. No length is ever read off it."""
        return next((token for token in (self.pad_id, self.eos_id) if token is not None), 0)


class _Loaded(Protocol):
    """What is used of a loaded ``transformers`` tokenizer."""

    @property
    def eos_token_id(self) -> int | None: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def pad_token_id(self) -> int | None: ...
    @property
    def mask_token_id(self) -> int | None: ...
    def __call__(self, text: str, **options: bool) -> dict[str, list[int]]: ...


def load_tokenizer(tokenizer: object) -> TokenizerSpec:
    """Load a tokenizer by name, folder or ``tokenizer.json`` path, or take a loaded ``transformers`` tokenizer.

    No code that comes with a tokenizer is run. Raises :class:`~streamfeed.errors.ConfigError` where there is no such
    tokenizer, where it has no ``tokenizers`` backend, and where it draws ids at random (BPE dropout). One without an
    EOS loads: whether it is needed depends on the objective, and :attr:`TokenizerSpec.frame` refuses it there.
    """
    by_name = isinstance(tokenizer, (str, Path))
    loaded = _from_name(tokenizer) if isinstance(tokenizer, (str, Path)) else cast("_Loaded", tokenizer)
    name = str(tokenizer) if by_name else str(getattr(loaded, "name_or_path", "") or type(loaded).__name__)
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        raise ConfigError(
            f"tokenizer {name}: {type(loaded).__name__} has no tokenizers backend (a slow tokenizer); "
            "convert it to a fast one and save that, so that it has a tokenizer.json"
        )
    eos_id, pad_id = loaded.eos_token_id, loaded.pad_token_id
    meaning = _without_limits(name, backend.to_str())
    bos_id = _bos_it_adds(loaded)
    key = json.dumps([meaning, eos_id, bos_id, pad_id])
    return TokenizerSpec(
        json=meaning,
        fingerprint=xxhash.xxh3_128_hexdigest(key.encode()),
        eos_id=eos_id,
        bos_id=bos_id,
        pad_id=pad_id,
        vocab_size=max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1,
        name=name,
        mask_id=loaded.mask_token_id,
        chat_template=_chat_template(loaded),
        specials={name: str(token) for name, token in getattr(loaded, "special_tokens_map", {}).items()},
        type_ids="token_type_ids" in getattr(loaded, "model_input_names", ()),
    )


def _chat_template(loaded: _Loaded) -> str | None:
    """Return the chat template; of several with names, the one that transformers takes where none is named."""
    found = getattr(loaded, "chat_template", None)
    if isinstance(found, dict):
        found = found.get("default")
    return found if isinstance(found, str) else None


def _from_name(name: str | Path) -> _Loaded:
    path = Path(name).expanduser()
    try:
        if path.is_file():
            return _from_file(path)
        return _from_folder_or_hub(path if path.is_dir() else name)
    except Exception as error:  # transformers and tokenizers raise OSError, ValueError, KeyError, bare Exception, ...
        cause = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"cannot load tokenizer {str(name)!r}: {cause}; give a name on the Hub, a folder that save_pretrained "
            "wrote, or the path of a tokenizer.json"
        ) from error


def _from_folder_or_hub(name: str | Path) -> _Loaded:
    from transformers import AutoTokenizer

    return cast("_Loaded", AutoTokenizer.from_pretrained(name, trust_remote_code=False))


def _from_file(path: Path) -> _Loaded:
    """Load one file; beside a ``tokenizer_config.json`` it means the folder, which knows the special tokens."""
    if is_of_folder(path):
        return _from_folder_or_hub(path.parent)
    from transformers import PreTrainedTokenizerFast

    return cast("_Loaded", PreTrainedTokenizerFast(tokenizer_file=str(path), name_or_path=str(path)))


def is_of_folder(path: Path) -> bool:
    """Return whether the file means its folder: a ``tokenizer.json`` beside a ``tokenizer_config.json``."""
    return path.name == "tokenizer.json" and path.with_name("tokenizer_config.json").is_file()


def _without_limits(name: str, text: str) -> str:
    """Drop truncation and padding: a document is encoded whole, whatever the tokenizer was last used for."""
    parsed = orjson.loads(text)
    if parsed.get("model", {}).get("dropout"):
        raise ConfigError(
            f"tokenizer {name} has BPE dropout {parsed['model']['dropout']}, which draws other ids at every reading, "
            "so that no resume could be exact; save it with dropout None"
        )
    if parsed.get("truncation") is None and parsed.get("padding") is None:
        return text
    parsed["truncation"] = None
    parsed["padding"] = None
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))


def _bos_it_adds(loaded: _Loaded) -> int | None:
    bos = loaded.bos_token_id
    if bos is None:
        return None
    with_specials = loaded("a", add_special_tokens=True, truncation=False, padding=False)["input_ids"]
    return bos if with_specials and with_specials[0] == bos else None
