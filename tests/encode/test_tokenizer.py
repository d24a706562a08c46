from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.tokenizer import load_tokenizer
from streamfeed.errors import ConfigError
from tests.tokenizers_for_tests import EOS, bpe_json, build_bert, build_bpe, build_roberta

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_bpe(tmp_path_factory.mktemp("bpe"))


def loaded(**options: Any) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(bpe_json()), **options)


def test_a_folder_a_file_in_it_and_the_loaded_tokenizer_are_one_tokenizer(folder: Path) -> None:
    specs = [
        load_tokenizer(given)
        for given in (folder, str(folder), folder / "tokenizer.json", AutoTokenizer.from_pretrained(folder))
    ]
    assert len({spec.fingerprint for spec in specs}) == 1
    assert (specs[0].eos_id, specs[0].bos_id, specs[0].pad_id, specs[0].vocab_size) == (0, None, None, 1000)
    assert specs[0].name == str(folder)


def test_truncation_and_padding_that_were_left_on_do_not_cut_documents() -> None:
    limited = loaded(eos_token=EOS, pad_token=EOS)
    limited("hello", truncation=True, max_length=2, padding="max_length")
    assert json.loads(limited.backend_tokenizer.to_str())["truncation"] is not None
    spec = load_tokenizer(limited)
    plain = load_tokenizer(loaded(eos_token=EOS, pad_token=EOS))
    text = "one two three four five six"
    assert len(HuggingFaceEngine(spec.json, spec.frame).encode([text]).ids) > 2
    ids = [HuggingFaceEngine(each.json, each.frame).encode([text]).ids.tolist() for each in (spec, plain)]
    assert ids[0] == ids[1]


def test_a_bos_counts_only_where_the_tokenizer_adds_it() -> None:
    named = loaded(eos_token=EOS, bos_token="<s>")
    assert load_tokenizer(named).bos_id is None
    adding = loaded(eos_token=EOS, bos_token="<s>")
    bos = adding.bos_token_id
    adding.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    spec = load_tokenizer(adding)
    assert spec.bos_id == bos
    assert spec.vocab_size == 1001
    ids = HuggingFaceEngine(spec.json, spec.frame).encode(["text"]).ids.tolist()
    assert (ids[0], ids.count(bos), ids[-1], ids.count(spec.eos_id)) == (bos, 1, spec.eos_id, 1)


def test_the_size_of_a_vocabulary_is_its_largest_id_and_one_whatever_ids_are_missing() -> None:
    parsed = json.loads(bpe_json())
    last = max(parsed["model"]["vocab"], key=parsed["model"]["vocab"].__getitem__)
    parsed["model"]["vocab"][last] = 5000
    with_gap = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(parsed)), eos_token=EOS)
    assert len(with_gap) == 1000
    assert load_tokenizer(with_gap).vocab_size == 5001


def test_the_fingerprint_changes_with_vocabulary_and_special_ids() -> None:
    first = loaded(eos_token=EOS)
    grown = loaded(eos_token=EOS)
    grown.add_tokens([AddedToken("zyzzyva")])
    fingerprints = [load_tokenizer(each).fingerprint for each in (first, grown, loaded(eos_token=EOS, pad_token=EOS))]
    assert len(set(fingerprints)) == 3


def test_a_tokenizer_without_eos_loads_and_where_it_must_end_documents_is_told_how_to_set_one() -> None:
    spec = load_tokenizer(loaded())
    assert spec.eos_id is None
    with pytest.raises(ConfigError, match=r"no EOS token.*eos_token ="):
        _ = spec.frame


def test_a_file_without_a_config_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(bpe_json(), encoding="utf-8")
    spec = load_tokenizer(path)
    assert (spec.vocab_size, spec.name) == (1000, str(path))
    with pytest.raises(ConfigError, match=r"mine\.json has no EOS token"):  # a lone file names none
        _ = spec.frame


def test_special_tokens_the_mask_and_token_types_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    bert = load_tokenizer(build_bert(tmp_path / "bert"))
    assert (bert.eos_id, bert.bos_id, bert.pad_id, bert.mask_id, bert.type_ids) == (None, None, 0, 4, True)
    assert bert.specials == {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    roberta = load_tokenizer(build_roberta(tmp_path / "roberta"))
    assert (roberta.eos_id, roberta.bos_id, roberta.mask_id, roberta.type_ids) == (2, 0, 4, False)
    assert roberta.specials["sep_token"] == roberta.specials["eos_token"] == "</s>"


def test_a_template_may_name_special_tokens_that_only_this_model_has() -> None:
    tokenizer = loaded(eos_token=EOS, extra_special_tokens={"image_token": "<image>"})
    assert tokenizer.special_tokens_map == load_tokenizer(tokenizer).specials
    assert load_tokenizer(tokenizer).specials["image_token"] == "<image>"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("{{ bos_token }}", "{{ bos_token }}"),
        ({"default": "a", "tool_use": "b"}, "a"),
        ({"rag": "b"}, None),
    ],
)
def test_the_chat_template_is_the_default_one_of_several(given: object, expected: str | None, tmp_path: Path) -> None:
    tokenizer = loaded(eos_token=EOS)
    tokenizer.chat_template = given
    assert load_tokenizer(tokenizer).chat_template == expected
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).chat_template == expected


def test_a_chat_template_leaves_the_fingerprint_as_it_is() -> None:
    plain, chatting = (load_tokenizer(loaded(eos_token=EOS, chat_template=text)) for text in (None, "{{ messages }}"))
    assert chatting.chat_template == "{{ messages }}"
    assert chatting.fingerprint == plain.fingerprint


def test_a_missing_tokenizer_is_an_error_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot load tokenizer '.*absent'.*folder that save_pretrained wrote"):
        load_tokenizer(str(tmp_path / "absent"))
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot load tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_what_has_no_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no tokenizers backend \(a slow tokenizer\)"):
        load_tokenizer(object())


def test_dropout_is_refused_because_no_resume_could_repeat_it() -> None:
    parsed = json.loads(bpe_json())
    parsed["model"]["dropout"] = 0.1
    random = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(parsed)), eos_token=EOS)
    with pytest.raises(ConfigError, match="BPE dropout"):
        load_tokenizer(random)
