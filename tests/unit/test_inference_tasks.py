"""Text to rows and back, batches by length, lines in order: all without a network."""

import io
import json
import time
import tracemalloc

import numpy as np
import pytest

from configs.command_line import run
from configs.errors import InputError
from configs.inference_schema import InferenceConfig, load_inference
from data.tokenizer import WordPieceTokenizer
from inference import stream
from inference.batching import batches_by_length, make_arrays, split_outputs
from inference.predictor import Predictor
from inference.tasks import (TASKS, Answer, Classify, Embed, Encode, FillMask, LabelWords,
                             Piece)

TOKENIZER = WordPieceTokenizer("data/vocabularies/bert_base_uncased.txt")


def decode(piece):
    return TOKENIZER.decode(piece.tokens)


class Counting:
    """A runner that tells the tokens of each row."""

    rounded_to = 1

    def run(self, arrays):
        return {"embedding": arrays["sequence_id"].sum(axis=1, keepdims=True).astype(float)}


def counting(**settings):
    return Predictor(Embed(TOKENIZER, 64), Counting(), InferenceConfig(**settings))


def test_texts_and_pairs_are_cut_to_fit():
    task = Classify(TOKENIZER, 9)
    assert decode(task.read({"text": "a b c"}).pieces[0]) == "[CLS] a b c [SEP]"
    assert decode(task.read({"text": "a " * 20}).pieces[0]) == "[CLS] a a a a a a a [SEP]"
    for first, second, expected in (
            ("a a", "b " * 9, "[CLS] a a [SEP] b b b b [SEP]"),
            ("a " * 9, "b", "[CLS] a a a a a [SEP] b [SEP]"),
            ("a " * 9, "b " * 9, "[CLS] a a a [SEP] b b b [SEP]")):
        piece = task.read({"text": first, "pair": second}).pieces[0]
        assert decode(piece) == expected
        assert piece.first_size == expected.split().index("[SEP]") + 1


def test_labels_and_numbers():
    task = Classify(TOKENIZER, 9, {"labels": ["no", "yes"]})
    answer = task.answer(None, [{"logits": np.array([0.0, np.log(3)])}])
    assert answer == {"label": "yes", "probabilities": {"no": pytest.approx(0.25),
                                                        "yes": pytest.approx(0.75)}}
    assert Classify(TOKENIZER, 9).answer(None, [{"logits": np.array([2.5])}]) == {"score": 2.5}


def test_words_are_labelled_at_their_first_piece_in_as_many_parts_as_they_need():
    task = LabelWords(TOKENIZER, 8, {"labels": ["O", "B-X"]})
    reading = task.read({"text": "bridges rose\nover河 unaffable"})
    assert [decode(piece) for piece in reading.pieces] == [
        "[CLS] bridges rose over 河 [SEP]", "[CLS] unaffable [SEP]"]
    assert [len(piece.tokens) for piece in reading.pieces] == [6, 5]
    logits = [np.zeros((6, 2)), np.zeros((5, 2))]
    logits[0][[0, 2], 1], logits[1][[2, 3], 1] = 9.0, 9.0  # [CLS], rose; later pieces
    answer = task.answer(reading, [{"word_logits": array} for array in logits])
    assert answer["words"] == ["bridges", "rose", "over", "河", "unaffable"]
    assert answer["labels"] == ["O", "B-X", "O", "O", "O"]
    assert answer["probabilities"][1] == pytest.approx(1 / (1 + np.exp(-9)), abs=1e-6)
    empty = task.read({"text": " "})
    assert task.answer(empty, [{"word_logits": np.zeros((2, 2))}])["labels"] == []


def test_masks_are_found_and_words_beyond_the_vocabulary_are_not_told():
    task = FillMask(TOKENIZER, 20, {"count": 2})
    piece = task.read({"text": "the [MASK] of [MASK]."}).pieces[0]
    assert decode(piece) == "[CLS] the [MASK] of [MASK] . [SEP]" and piece.masked == (2, 4)
    logits = np.zeros((1, len(TOKENIZER) + 6), np.float32)
    logits[0, TOKENIZER.ids["river"]], logits[0, TOKENIZER.ids["sea"]] = 30.0, 29.0
    logits[0, len(TOKENIZER) + 1] = 99.0
    answer = task.answer(None, [{"masked_lm_logits": logits}])
    assert answer["tokens"] == [["river", "sea"]]
    assert answer["probabilities"][0] == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.e)])
    with pytest.raises(InputError, match="no .MASK. in it"):
        task.read({"text": "none"})
    with pytest.raises(InputError, match="22 tokens, but the model has 20"):
        task.read({"text": "[MASK] " * 20})


def test_an_answer_stands_in_its_context():
    task = Answer(TOKENIZER, 16)
    record = {"question": "Who?", "context": "Ada wrote it; nobody else, " * 3 + "but Bob read."}
    reading = task.read(record)
    assert len(reading.pieces) > 2
    assert all(decode(piece).startswith("[CLS] who ? [SEP]") for piece in reading.pieces)
    assert all(len(piece.tokens) <= 16 for piece in reading.pieces)
    outputs = [{name: np.zeros(len(piece.tokens)) for name in ("start_logits", "end_logits")}
               for piece in reading.pieces]
    place = reading.pieces[-1].tokens.index(TOKENIZER.ids["bob"])
    outputs[-1]["start_logits"][place] = outputs[-1]["end_logits"][place] = 9
    answer = task.answer(reading, outputs)
    start = record["context"].index("Bob")
    assert 0.9 < answer.pop("score") < 1
    assert answer == {"answer": "Bob", "start": start, "end": start + 3}
    task.settings = {"may_have_no_answer": True}
    for found in outputs:
        found["start_logits"][0] = found["end_logits"][0] = 20
    assert task.answer(reading, outputs)["answer"] == ""


@pytest.mark.parametrize("task, record, problem", [
    ("embed", [], "record: is no object"), ("embed", {}, "text: is missing"),
    ("embed", {"text": 3}, "text: is no text"), ("classify", {"text": "a", "pair": []}, "pair"),
    ("answer", {"question": "a"}, "context: is missing"),
    ("embed", {"text": "a\udc80"}, "half of a surrogate pair"),
])
def test_records_that_are_none_are_told(task, record, problem):
    with pytest.raises(InputError) as caught:
        TASKS[task](TOKENIZER, 64).check(record)
    assert problem in str(caught.value)


def test_rows_of_like_length_share_a_batch():
    lengths = [3, 100, 4, 98, 3, 50, 4, 300]
    batches = batches_by_length(lengths, 256)
    assert batches == [([7], 300), ([1, 3], 100), ([5], 50), ([2, 6, 0, 4], 4)]
    assert batches_by_length(lengths, 256, most_rows=1, rounded_to=8, max_tokens=300)[0] == (
        [7], 300)
    assert [slots for _, slots in batches_by_length([9, 17], 99, 1, rounded_to=8)] == [24, 16]
    random = np.random.default_rng(0)
    lengths = random.integers(3, 384, 1000).tolist()
    batches = batches_by_length(lengths, 2048, 128)
    assert sorted(number for numbers, _ in batches for number in numbers) == list(range(1000))
    assert all(len(numbers) * slots <= 2048 for numbers, slots in batches)
    assert sum(len(numbers) * slots for numbers, slots in batches) < 1.02 * sum(lengths)


def test_arrays_and_outputs_of_a_batch():
    pieces = [Piece((101, 7, 102), 3, (1,)), Piece((101, 8, 102, 9, 102), 3, (1, 3))]
    arrays = make_arrays(pieces, 6, pad=0, rows=3)
    assert arrays["input_ids"].tolist() == [[101, 7, 102, 0, 0, 0], [101, 8, 102, 9, 102, 0],
                                            [0] * 6]
    assert arrays["token_type_ids"][1].tolist() == [0, 0, 0, 1, 1, 0]
    assert arrays["sequence_id"].sum(axis=1).tolist() == [3, 5, 0]
    assert arrays["masked"].tolist() == [1, 7, 9]
    parts = split_outputs({"masked_lm_logits": np.arange(3)[:, None]}, pieces)
    assert [part["masked_lm_logits"].ravel().tolist() for part in parts] == [[0], [1, 2]]
    parts = split_outputs({"start_logits": np.ones((3, 6))}, pieces)
    assert [len(part["start_logits"]) for part in parts] == [3, 5]


@pytest.mark.parametrize("texts, idle, batches", [
    (16, 2, [8, 8]), (16, 1, [16]), (16, 4, [4, 4, 4, 4]), (16, 0, [16]),
    (8, 2, [4, 4]),
    (4, 4, [4])])           # small ones are not shared out
def test_every_idle_process_takes_part(texts, idle, batches):
    """Rows of 62 words and two special tokens, so 16 of them are 1,024 slots."""
    computed = []

    class Sharing(Counting):
        def idle(self):
            return idle

        def run(self, arrays):
            computed.append(len(arrays["input_ids"]))
            return super().run(arrays)

    predictor = Predictor(Embed(TOKENIZER, 64), Sharing(), InferenceConfig(processes=4))
    assert predictor.answers([{"text": "a " * 62}] * texts) == [{"embedding": [64.0]}] * texts
    assert computed == batches


def test_answers_keep_their_order_over_batches_and_errors():
    predictor = counting(batch_tokens=16)
    texts = ["a " * (number * 7 % 11) for number in range(50)]
    records = [{"text": text} for text in texts]
    records.insert(3, {"text": None})
    answers = predictor.answers(records)
    assert "is no text" in answers.pop(3)["error"]
    assert answers == [{"embedding": [text.count("a") + 2.0]} for text in texts]
    assert predictor.latency()["p50"] > 0 and predictor.padding() == pytest.approx(0, abs=0.2)


def test_memory_does_not_grow_with_the_input(monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 128)
    out = type("Nowhere", (), {"write": lambda self, text: None, "flush": lambda self: None})()
    predictor = counting()

    def peak(count):
        tracemalloc.reset_peak()
        lines = (f"{'a' * 2000} {number}\n".encode() for number in range(count))
        assert stream.answer_lines(predictor, lines, out, False) == (count, 0)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        peak(256)
        assert peak(1280) < 1.2 * peak(256)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("processes", [None, 2])
def test_scores_of_every_word_are_given_back_once_answered(processes):
    """200 of 30,522 words and 4 bytes would be 24 MB."""
    class Scores(Counting):
        def idle(self):
            return processes

        def run(self, arrays):
            scores = np.zeros((len(arrays["masked"]), len(TOKENIZER)), np.float32)
            scores[:, 7] = 1
            return {"masked_lm_logits": scores}

    predictor = Predictor(FillMask(TOKENIZER, 64, {"count": 1}), Scores(),
                          InferenceConfig(batch_tokens=32, processes=processes))
    answer = predictor.task.answer
    predictor.task.answer = lambda *found: time.sleep(1e-3) or answer(*found)  # slower than these
    tracemalloc.start()
    try:
        answers = predictor.answers([{"text": "a [MASK]"}] * 200)
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()
    assert [answer["tokens"] for answer in answers] == [[[TOKENIZER.tokens[7]]]] * 200


@pytest.mark.parametrize("task, parts", [(Embed, [200]), (Encode, [65, 65, 65, 5])])
def test_what_answers_much_takes_little_at_once(task, parts):
    """Lines of 1,000 bytes; 65 of them are the last to fit into 65,536."""
    class Vectors(Counting):
        def run(self, arrays):
            return {**super().run(arrays),
                    "hidden_states": np.ones((*arrays["input_ids"].shape, 2), np.float32)}

    predictor, seen = Predictor(task(TOKENIZER, 64), Vectors(), InferenceConfig()), []
    answer = predictor.answers
    predictor.answers = lambda records: seen.append(len(records)) or answer(records)
    stream.answer_lines(predictor, [b"a" * 999 + b"\n"] * 200, io.StringIO(), False)
    assert seen == parts
    line = stream.to_json(answer([{"text": "one"}])[0])
    assert json.loads(line) == ({"embedding": [3.0]} if task is Embed else
                                {"tokens": ["[CLS]", "one", "[SEP]"],
                                 "hidden_states": [[1.0, 1.0]] * 3})


def test_a_line_that_is_too_long_is_refused_and_the_rest_is_read(monkeypatch):
    monkeypatch.setattr(stream, "LONGEST_LINE", 16)
    source = io.BytesIO(b"short\n" + b"a" * 1000 + b"\n" + b"b" * 15 + b"\nlast")
    lines = list(stream.read_lines(source))
    assert [len(line) for line in lines] == [6, 17, 16, 4]
    out = io.StringIO()
    assert stream.answer_lines(counting(), lines, out, False) == (4, 1)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    assert "longer than 16 bytes" in answers[1]["error"] and answers[3] == {"embedding": [3.0]}


def test_every_shipped_setting_loads():
    for name in ("cpu", "cpu_bf16", "gpu", "ipu"):
        assert load_inference(f"configs/inference/{name}.yaml", ["threads=3"]).threads == 3


@pytest.mark.parametrize("override, problem", [
    ("thread=3", "did you mean 'inference.threads'?"), ("threads=x", "wants an integer or null"),
    ("batch_tokens=0", "0 is not positive"), ("precision=fp16", "fp16 is not computed on cpu"),
    ("device=ipu", "IPUs compute one shape"), ("fixed_rows=2", "go together"),
    ("threads", "write --set key=value"),
])
def test_bad_settings_are_told(override, problem, capsys):
    assert run(lambda argv: load_inference(None, argv), [override]) == 2
    assert problem in capsys.readouterr().err
