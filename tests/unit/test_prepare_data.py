"""Raw text to prepared shards, and what bad text is answered."""

import gzip
import json

import numpy as np
import pytest

import prepare_data
from configs.command_line import run
from data.shards import open_shards, read_manifest
from data.tokenizer import WordPieceTokenizer

CONFIG = "configs/pretrain/quickstart.yaml"
TEXT = "One sentence here.\nAnother sentence.\n\nA second document.\nIt ends.\n"


def prepare(tmp_path, content, name="text.txt", *options):
    source = tmp_path / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run(prepare_data.main, ["--config", CONFIG, "--input", str(source),
                                   "--output", str(tmp_path / "out"),
                                   "--set", "data.held_out_share=0.0", *options])


def decoded(directory, split="train"):
    """Documents of decoded sentences."""
    tokenizer = WordPieceTokenizer("data/vocabularies/bert_base_uncased.txt")
    shard, = open_shards(directory, split)
    sentences = [tokenizer.decode(shard.tokens[start:end])
                 for start, end in zip(shard.sentences, shard.sentences[1:])]
    return [sentences[start:end] for start, end in zip(shard.documents, shard.documents[1:])]


def test_shards_decode_to_their_source(tmp_path):
    assert prepare(tmp_path, TEXT) == 0
    assert decoded(tmp_path / "out") == [["one sentence here .", "another sentence ."],
                                         ["a second document .", "it ends ."]]
    assert read_manifest(tmp_path / "out")["counts"]["train"] == {
        "documents": 2, "sentences": 4, "tokens": 14, "shards": 1}


def test_gzip_windows_line_ends_and_byte_order_mark_change_nothing(tmp_path):
    odd = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    assert prepare(tmp_path, gzip.compress(odd), "text.txt.gz") == 0
    assert decoded(tmp_path / "out")[0] == ["one sentence here .", "another sentence ."]


def test_token_counts_are_those_of_the_training_text(tmp_path):
    prepare(tmp_path, TEXT)
    counts = np.load(tmp_path / "out" / "token_counts.npy")
    assert counts.sum() == 14 and counts[1012] == 4  # 1012 is "."


def test_held_out_documents_are_spread_and_apart(tmp_path):
    documents = "\n\n".join(f"document number {number} ." for number in range(20))
    assert prepare(tmp_path, documents, "text.txt", "--set", "data.held_out_share=0.1") == 0
    held_out = decoded(tmp_path / "out", "held_out")
    assert held_out == [["document number 9 ."], ["document number 19 ."]]
    assert len(decoded(tmp_path / "out")) == 18


def test_two_bytes_a_token(tmp_path):
    prepare(tmp_path, TEXT * 500)
    shard, = open_shards(tmp_path / "out", "train")
    assert shard.tokens.dtype == np.uint16


def test_second_run_finds_the_first(tmp_path, capsys):
    assert prepare(tmp_path, TEXT) == 0
    before = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    assert prepare(tmp_path, TEXT) == 0
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == before
    assert prepare(tmp_path, TEXT + "More.\n") == 2
    assert "other text" in capsys.readouterr().err


@pytest.mark.parametrize("content, problem", [
    (b"", "no text in any file"),
    (b"\n \n\t\n\r\n", "no text in any file"),
    (b"fine\nnot \xff fine\n", "text.txt:2: byte 4 of the line is not UTF-8"),
])
def test_bad_text_is_refused_and_leaves_nothing(tmp_path, capsys, content, problem):
    assert prepare(tmp_path, content) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_truncated_gzip_is_named(tmp_path, capsys):
    whole = gzip.compress((TEXT * 100).encode())
    assert prepare(tmp_path, whole[:len(whole) // 2], "cut.txt.gz") == 2
    assert "cut.txt.gz" in capsys.readouterr().err


def test_missing_file_among_several_is_named(tmp_path, capsys):
    (tmp_path / "there.txt").write_text(TEXT)
    code = run(prepare_data.main, [
        "--config", CONFIG, "--output", str(tmp_path / "out"), "--input",
        str(tmp_path / "there.txt"), str(tmp_path / "missing*.txt")])
    assert code == 2 and "missing*.txt' matches no file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_foreign_folder_is_not_touched(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    assert prepare(tmp_path, TEXT) == 2
    assert (tmp_path / "out" / "mine").read_text() == "keep"


def test_manifest_names_sources_and_vocabulary(tmp_path):
    prepare(tmp_path, TEXT)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["sources"][0]["file"].endswith("text.txt")
    # sha256sum data/vocabularies/bert_base_uncased.txt
    assert manifest["vocabulary_sha256"].startswith("07eced375cec144d")
