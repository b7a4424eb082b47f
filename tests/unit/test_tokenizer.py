import dataclasses
from pathlib import Path

import pytest

from configs.errors import InputError
from configs.load import load_section
from data.tokenizer import (SPECIAL_TOKENS, WordPieceTokenizer, open_tokenizer,
                            read_vocabulary)

FOLDER = "data/vocabularies/"


@pytest.mark.parametrize("name, count, specials", [
    ("bert_base_uncased", 30522, (0, 100, 101, 102, 103)),
    ("bert_base_chinese", 21128, (0, 100, 101, 102, 103)),
    ("ernie_1.0_zh", 17964, (0, 17963, 1, 2, 3)),
    ("ernie_3.0_zh", 39980, (0, 39979, 1, 2, 3)),
])
def test_shipped_vocabularies(name, count, specials):
    tokenizer = WordPieceTokenizer(f"{FOLDER}{name}.txt")
    assert len(tokenizer) == count
    assert (tokenizer.pad, tokenizer.unknown, tokenizer.cls, tokenizer.sep,
            tokenizer.mask) == specials


def test_english_ids_are_those_of_hugging_face():
    # transformers 4.44.2, BertTokenizer("bert-base-uncased"), without special tokens.
    tokenizer = WordPieceTokenizer(f"{FOLDER}bert_base_uncased.txt")
    assert tokenizer.encode(["Hello, Wörld! unaffable"]) == [
        [7592, 1010, 2088, 999, 14477, 20961, 3468]]


def test_special_tokens_in_a_text_are_text():
    tokenizer = WordPieceTokenizer(f"{FOLDER}bert_base_uncased.txt")
    ids = tokenizer.encode(["a [SEP] b [MASK]"])[0]
    assert tokenizer.sep not in ids and tokenizer.mask not in ids
    assert tokenizer.decode(ids) == "a [ sep ] b [ mask ]"


def test_line_separator_is_a_token():
    assert read_vocabulary(f"{FOLDER}bert_base_chinese.txt").count("\u2028") == 1


def test_token_listed_twice_keeps_the_later_id():
    assert WordPieceTokenizer(f"{FOLDER}ernie_3.0_zh.txt").encode(["$"]) == [[18005]]


def test_a_byte_order_mark_is_no_token(tmp_path):
    text = Path("data/vocabularies/bert_base_uncased.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + text)
    assert WordPieceTokenizer(tmp_path / "vocab.txt").tokens[0] == "[PAD]"


@pytest.mark.parametrize("content, problem", [
    (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n", "has no [MASK]"),
    (b"[PAD]\t0\n[UNK]\t2\n", ":2: id '2' where 1 is due"),
    (b"[PAD]\n\xff\n", "not UTF-8"),
    (None, "no such vocabulary file"),
    ("a folder", "the vocabulary cannot be read (Is a directory); name a file, e.g. vocab.txt"),
])
def test_bad_vocabulary_is_refused(tmp_path, content, problem):
    path = tmp_path / "vocab.txt"
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="vocab.txt") as error:
        WordPieceTokenizer(path)
    assert problem in str(error.value)


@pytest.mark.parametrize("name, lower_case, sample", [
    ("bert_base_uncased", True, "wikipedia_en"), ("bert_base_uncased", False, "wikipedia_en"),
    ("bert_base_chinese", True, "wikipedia_zh"), ("ernie_1.0_zh", True, "wikipedia_zh"),
    ("bert_base_uncased", True, "wikipedia_zh"), ("ernie_3.0_zh", True, "wikipedia_en")])
def test_fast_ids_are_those_of_the_library(name, lower_case, sample):
    tokenizer = WordPieceTokenizer(f"{FOLDER}{name}.txt", lower_case)
    with open(f"data/samples/{sample}.txt", encoding="utf-8", newline="\n") as stream:
        sentences = [line for line in stream.read(400_000).split("\n") if line]
    odd = ["", " \t ", "x" * 150 + " y", "\u0300ab\u0301 \x1cjoined\x1d", "a\u2028b\u3000c\u0085d",
           "İstanbul ΣΑΣ ﬁ ½ é", "😀👍🏽 \u200bzero", "中\u0301文abc中", "[MASK]##ing a##b", "\ufffd\x00z"]
    expected = tokenizer.encode(sentences + odd)
    tokens, sizes, continues = tokenizer.encode_sentences(sentences + odd)
    assert sizes.tolist() == [len(ids) for ids in expected]
    assert tokens.tolist() == [token for ids in expected for token in ids]
    assert not continues.any()
    again, _, _ = tokenizer.encode_sentences(odd[::-1])
    assert again.tolist() == [token for ids in tokenizer.encode(odd[::-1]) for token in ids]


def cased_vocabulary(folder):
    path = folder / "cased.txt"
    words = [*SPECIAL_TOKENS, *(f"Word{number}" for number in range(200)), "word"]
    path.write_text("\n".join(words) + "\n")
    return path


@pytest.mark.parametrize("cased, lower_case, says", [
    (True, True, r"is cased \(200 tokens have capitals\).*write model.lower_case: false"),
    (False, False, "has no token with a capital.*write model.lower_case: true")])
def test_case_of_vocabulary_and_recipe_agree(tmp_path, cased, lower_case, says):
    path = cased_vocabulary(tmp_path) if cased else f"{FOLDER}bert_base_uncased.txt"
    model = load_section("model", "configs/models/bert_tiny_uncased.yaml", [
        f"model.vocabulary={path}", f"model.lower_case={str(lower_case).lower()}"])
    with pytest.raises(InputError, match=says):
        open_tokenizer(model)
    open_tokenizer(dataclasses.replace(model, lower_case=not lower_case))


def test_chinese_vocabulary_serves_either_case():
    """transformers' bert-base-chinese says do_lower_case false, Google's script true."""
    for lower_case in ("true", "false"):
        open_tokenizer(load_section("model", "configs/models/bert_base_chinese.yaml",
                                    [f"model.lower_case={lower_case}"]))
