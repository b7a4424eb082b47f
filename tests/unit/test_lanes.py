"""Batches on a core each: in order, at once, and only where that is sooner."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from configs.errors import InputError
from configs.inference_schema import InferenceConfig
from data.tokenizer import WordPieceTokenizer
from inference.dynamic_batching import DynamicBatcher
from inference.lanes import Lanes
from inference.predictor import Predictor
from inference.runners import lanes_of
from inference.tasks import Embed, Piece

TOKENIZER = WordPieceTokenizer("data/vocabularies/bert_base_uncased.txt")


class Meeting:
    """A runner that tells its rows' tokens, once as many of its kind compute as are to meet."""

    rounded_to = 1

    def __init__(self, meet=None):
        self.meet, self.runs, self.copies = meet or threading.Barrier(1), [], []

    def copy(self):
        self.copies.append(Meeting(self.meet))
        return self.copies[-1]

    def run(self, arrays):
        self.meet.wait(timeout=5)
        self.runs.append(arrays["input_ids"].shape)
        return {"embedding": arrays["sequence_id"].sum(axis=1, keepdims=True).astype(float)}


def pieces(*lengths):
    return [Piece((TOKENIZER.mask,) * length, length) for length in lengths]


def lengths_of(outputs):
    return [int(output["embedding"][0]) for output in outputs]


def predictor_of(runner, **settings):
    return Predictor(Embed(TOKENIZER, 128), runner, InferenceConfig(**settings),
                     lanes=Lanes(runner, 2))


def test_batches_are_computed_at_once_and_answered_in_order():
    runner = Meeting(threading.Barrier(2))
    lengths = [9, 30, 9, 30, 9, 30, 9, 30, 30, 30]
    predictor = predictor_of(runner, batch_tokens=60)
    assert lengths_of(predictor.compute(pieces(*lengths))) == lengths
    shapes = sorted(runner.runs + runner.copies[0].runs)
    assert shapes == [(2, 30), (2, 30), (2, 30), (4, 9)]
    assert predictor.slots == sum(lengths) and predictor.padding() == 0


def test_all_cores_compute_what_cannot_be_shared():
    runner = Meeting()
    predictor = predictor_of(runner)
    assert lengths_of(predictor.compute(pieces(40))) == [40]
    assert lengths_of(predictor.compute(pieces(100, 10))) == [100, 10]
    assert predictor.compute([]) == []
    assert runner.runs == [(1, 40), (1, 100), (1, 10)] and not runner.copies[0].runs


def test_a_second_caller_takes_what_is_free():
    runner = Meeting(threading.Barrier(2))  # neither ends before both compute
    predictor = predictor_of(runner)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(predictor.compute, [pieces(7), pieces(8)]))
    assert list(map(lengths_of, found)) == [[7], [8]]


def test_a_batcher_keeps_every_lane_at_work():
    predictor = predictor_of(Meeting(threading.Barrier(2)))
    batcher = DynamicBatcher(predictor, 100)
    readings = [predictor.read({"text": "a " * count}) for count in (1, 2)]
    futures = [batcher.submit([reading]) for reading in readings]
    answers = [future.result(timeout=10)[0]["embedding"] for future in futures]
    batcher.close()
    assert answers == [[3.0], [4.0]]


def test_an_error_in_a_lane_is_heard():
    runner = Meeting()
    predictor = predictor_of(runner)
    for one in (runner, *runner.copies):
        one.meet = None
    with pytest.raises(AttributeError):
        predictor.compute(pieces(8, 8))


@pytest.mark.parametrize("settings, lanes", [
    ({"threads": 1}, 1), ({"threads": 4}, 4), ({"threads": 5}, 1), ({"threads": 8, "lanes": 3}, 3),
    ({"threads": 4, "lanes": 1}, 1), ({"threads": 4, "device": "gpu"}, 1),
    ({"threads": 4, "onednn": True}, 1)])
def test_how_many_lanes_there_are(settings, lanes):
    assert lanes_of(InferenceConfig(**{"onednn": False, **settings})) == lanes


@pytest.mark.parametrize("settings", [{"device": "gpu"}, {"onednn": True}])
def test_lanes_that_cannot_be_are_refused(settings):
    with pytest.raises(InputError, match="inference.lanes: 2, but only Paddle's own"):
        lanes_of(InferenceConfig(lanes=2, **settings))
