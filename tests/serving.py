"""A server in a thread, with a model that counts."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from configs.inference_schema import InferenceConfig
from data.tokenizer import WordPieceTokenizer
from inference.predictor import Predictor
from inference.server import Limits, PromptProtocol, build_app
from inference.tasks import Embed

TOKENIZER = WordPieceTokenizer("data/vocabularies/bert_base_uncased.txt")
LIMITS = Limits(most_waiting=64, timeout=2.0, largest_body=20_000, most_records=8)


class CountingRunner:
    """Tells the tokens of each row; slow or broken where that is asked for."""

    rounded_to = 1

    def __init__(self):
        self.seconds, self.fails, self.rows = 0.0, False, []
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def run(self, arrays):
        self.entered.set()
        self.may_go_on.wait()
        time.sleep(self.seconds)
        if self.fails:
            raise RuntimeError("the device is gone")
        self.rows.append(len(arrays["input_ids"]))
        return {"embedding": arrays["sequence_id"].sum(axis=1, keepdims=True).astype(float)}


def counting_predictor():
    return Predictor(Embed(TOKENIZER, 128), CountingRunner(), InferenceConfig())


@contextmanager
def serving(predictor, limits=LIMITS):
    """The port of a server in a thread."""
    protocol = type("Protocol", (PromptProtocol,), {"seconds": limits.timeout})
    server = uvicorn.Server(uvicorn.Config(build_app(predictor, limits), port=0, http=protocol,
                                           ws="none", log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
