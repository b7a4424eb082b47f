"""Raw text to prepared shards, and what bad text is answered."""

import gzip
import json
import shutil

import numpy as np
import pytest

import prepare_data
from configs.command_line import run
from data import preparation, shards
from data.shards import open_shards, read_manifest
from data.tokenizer import WordPieceTokenizer

CONFIG = "configs/pretrain/quickstart.yaml"
CHINESE = "configs/pretrain/quickstart_ernie_zh.yaml"
TEXT = "One sentence here.\nAnother sentence.\n\nA second document.\nIt ends.\n"


def prepare(tmp_path, content, name="text.txt", *options, config=CONFIG, output="out"):
    source = tmp_path / name
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run(prepare_data.main, ["--config", config, "--input", str(source), "--workers", "1",
                                   "--output", str(tmp_path / output),
                                   "--set", "data.held_out_share=0.0", *options])


def decoded(directory, split="train", vocabulary="bert_base_uncased"):
    """Documents of decoded sentences."""
    tokenizer = WordPieceTokenizer(f"data/vocabularies/{vocabulary}.txt")
    documents = []
    for shard in open_shards(directory, split):
        tokens, _ = shards.decode_continuations(shard.tokens.astype(int), len(tokenizer))
        sentences = [tokenizer.decode(tokens[start:end])
                     for start, end in zip(shard.sentences, shard.sentences[1:])]
        documents += [sentences[start:end]
                      for start, end in zip(shard.documents, shard.documents[1:])]
    return documents


def contents(directory):
    """Bytes of every file, by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture
def small_pieces(monkeypatch):
    """Blocks and shards so small that a short text fills several."""
    monkeypatch.setattr(preparation, "BLOCK_CHARACTERS", 400)
    monkeypatch.setattr(preparation, "SHARD_TOKENS", 300)


def test_shards_decode_to_their_source(tmp_path):
    assert prepare(tmp_path, TEXT) == 0
    assert decoded(tmp_path / "out") == [["one sentence here .", "another sentence ."],
                                         ["a second document .", "it ends ."]]
    assert read_manifest(tmp_path / "out")["counts"]["train"] == {
        "documents": 2, "sentences": 4, "tokens": 14}


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


def test_second_run_finds_the_first(tmp_path, capsys):
    assert prepare(tmp_path, TEXT) == 0
    before = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    assert prepare(tmp_path, TEXT) == 0
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == before
    assert prepare(tmp_path, TEXT + "More.\n") == 2
    assert "other text" in capsys.readouterr().err


@pytest.mark.parametrize("content, problem", [
    (b"", "text.txt: no text in it"),
    (b"\n \n\t\n\r\n", "text.txt: no text in it"),
    (b"\xe2\x80\x8b\n", "no text in any file"),  # a zero-width space alone
    (b"fine\nnot \xff fine\n", "text.txt:2:"),
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


def test_a_name_with_brackets_is_a_file(tmp_path):
    assert prepare(tmp_path, TEXT, "wiki[1].txt") == 0


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


LONG_TEXT = "\n\n".join(f"Document {number} begins.\nIts second sentence is number {number * 7}."
                        for number in range(200))


def test_shards_and_blocks_change_nothing_that_is_read(tmp_path, small_pieces):
    assert prepare(tmp_path, LONG_TEXT) == 0
    assert read_manifest(tmp_path / "out")["shards"] > 5
    documents = decoded(tmp_path / "out")
    assert [document[0] for document in documents] == [
        f"document {number} begins ." for number in range(200)]


def test_goes_on_after_a_stop_with_the_same_bytes(tmp_path, small_pieces, monkeypatch, capsys):
    assert prepare(tmp_path, LONG_TEXT, output="whole") == 0
    write, written = shards.ShardWriter.close, []

    def stop_after_three(self, origin):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(write(self, origin))

    monkeypatch.setattr(shards.ShardWriter, "close", stop_after_three)
    assert prepare(tmp_path, LONG_TEXT) == 130
    assert not (tmp_path / "out").exists()
    left = sorted(path.name for path in (tmp_path / "out.partial").iterdir())
    assert left == ["settings.json", "shard_00000", "shard_00001", "shard_00002"]
    monkeypatch.setattr(shards.ShardWriter, "close", write)
    assert prepare(tmp_path, LONG_TEXT) == 0
    assert "going on with" in capsys.readouterr().out
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_parts_together_hold_every_document_once(tmp_path, small_pieces):
    for part in (1, 2, 3):
        assert prepare(tmp_path, LONG_TEXT, "text.txt", "--part", f"{part}/3",
                       output=f"part_{part}") == 0
    documents = [document[0] for part in (1, 2, 3)
                 for document in decoded(tmp_path / f"part_{part}")]
    assert sorted(documents) == sorted(f"document {number} begins ." for number in range(200))


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "a/b"])
def test_wrong_part_is_refused(tmp_path, capsys, part):
    assert prepare_code(["--config", CONFIG, "--part", part]) == 2
    assert part in capsys.readouterr().err


def prepare_code(arguments):
    try:
        return run(prepare_data.main, arguments)
    except SystemExit as exit:
        return exit.code


def test_chinese_words_are_marked(tmp_path):
    assert prepare(tmp_path, "北京大学在北京。\n\n他喜欢数学。\n", config=CHINESE) == 0
    shard, = open_shards(tmp_path / "out", "train")
    tokens, continues = shards.decode_continuations(shard.tokens.astype(int), 17964)
    tokenizer = WordPieceTokenizer("data/vocabularies/ernie_1.0_zh.txt")
    words = "".join(("" if inside else " ") + tokenizer.tokens[token]
                    for token, inside in zip(tokens, continues))
    assert words == " 北京大学 在 北京 。 他 喜欢 数学 。"
    assert shard.tokens.dtype == np.uint16


def test_continuations_that_need_more_than_two_bytes_lose_their_mark():
    tokens, continues = np.array([5, 25555, 25556, 39979]), np.array([True] * 4)
    codes = shards.encode_continuations(tokens, continues, 39980)
    back, marks = shards.decode_continuations(codes, 39980)
    assert back.tolist() == tokens.tolist() and marks.tolist() == [True, True, False, False]


def test_bytes_a_token(tmp_path):
    assert prepare(tmp_path, open("data/samples/wikipedia_zh.txt", "rb").read(),
                   config=CHINESE) == 0
    found = prepare_data.main(["verify", str(tmp_path / "out"), "--sequence-length", "128"])
    assert found["bytes_per_token"] <= 2.2


def test_verify_tells_the_figures(tmp_path):
    prepare(tmp_path, TEXT)
    found = prepare_data.main(["verify", str(tmp_path / "out"), "--sequence-length", "16"])
    assert (found["train_documents"], found["train_sentences"], found["train_tokens"]) == (2, 4, 14)
    # 14 tokens of 2 bytes and 4 offsets of 4 for 5 + 3 + twice the lone start of held_out.
    assert found["bytes_per_token"] == pytest.approx((14 * 2 + (5 + 3 + 1 + 1) * 4) / 14, abs=1e-3)
    assert found["documents_by_tokens"] and "rows_of_16" in found


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "add", "manifest"])
def test_verify_names_what_is_damaged(tmp_path, capsys, damage):
    prepare(tmp_path, TEXT)
    file = tmp_path / "out" / "shard_00000" / "train" / "tokens.bin"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-2])
    elif damage == "flip":
        content[3] ^= 4
        file.write_bytes(content)
    elif damage == "remove":
        file.unlink()
    elif damage == "add":
        shutil.copytree(tmp_path / "out" / "shard_00000", tmp_path / "out" / "shard_00001")
    else:
        (tmp_path / "out" / "manifest.json").write_text("{")
    assert run(prepare_data.main, ["verify", str(tmp_path / "out")]) == 2
    named = {"add": "has 2 shards, not 1", "manifest": "manifest.json"}
    error = capsys.readouterr().err
    assert named.get(damage, "tokens.bin") in error and error.count("\n") == 1


def test_full_disk_stops_with_one_line(tmp_path, monkeypatch, capsys):
    def no_room(self, split, name, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards.ShardWriter, "_write", no_room)
    assert prepare(tmp_path, TEXT) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_vocabulary_without_mask_is_refused(tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n")
    assert prepare(tmp_path, TEXT, "text.txt", "--set",
                   f"model.vocabulary={tmp_path / 'vocab.txt'}") == 2
    assert "has no [MASK]" in capsys.readouterr().err
