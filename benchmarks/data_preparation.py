"""How fast raw text becomes shards, against the tokenizer and the recipe of the peers.

``python -m benchmarks.data_preparation --input FILE [--output FILE]`` measures, in one run:

- ours: ``prepare_data.py`` from raw English text to finished shards, with all cores;
- PaddleNLP's ``BertTokenizer`` tokenising the same text and doing nothing else;
- a plain reference of the original BERT recipe in one process: tokenise with that tokenizer,
  pair, mask, write;
- peak memory of ours for the text and for ten copies of it under ten names.

The slow ones run on the first megabyte and are told in MB/s of raw text.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from configs.command_line import Parser, run, tell

CONFIG = "configs/pretrain/quickstart.yaml"
PEER_BYTES = 1_000_000
SECONDS_BETWEEN_SAMPLES = 0.05


def main(argv=None):
    """Measure, print the figures as JSON and return them."""
    parser = Parser(prog="python -m benchmarks.data_preparation", description=__doc__)
    parser.add_argument("--input", required=True, metavar="FILE", help="English text, may be .gz")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        text = _read(Path(arguments.input))
        figures = measure(text, Path(folder), arguments.workers)
    tell(figures, arguments.output)
    return figures


def measure(text, folder, workers):
    """All figures of a text, bytes ``text``."""
    copies = [folder / f"text_{number}.txt" for number in range(10)]
    for copy in copies:
        copy.write_bytes(text)
    megabytes = len(text) / 1e6
    seconds, one_peak = _prepare(copies[:1], folder / "one", workers)
    ten_seconds, ten_peak = _prepare(copies, folder / "ten", workers)
    part = text[:PEER_BYTES].decode("utf-8", "ignore")
    tokenizer_rate, recipe_rate = _peer_rates(part, folder / "peer.json")
    ours = megabytes / seconds
    return {
        "megabytes": megabytes, "workers": workers,
        "ours_mb_per_second": ours, "ours_tenfold_mb_per_second": 10 * megabytes / ten_seconds,
        "paddlenlp_tokenizer_mb_per_second": tokenizer_rate,
        "bert_recipe_mb_per_second": recipe_rate,
        "ratio_to_tokenizer": ours / tokenizer_rate, "ratio_to_bert_recipe": ours / recipe_rate,
        "peak_memory_mb": one_peak, "peak_memory_tenfold_mb": ten_peak,
        "memory_growth": ten_peak / one_peak - 1,
    }


def _read(path):
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
        return stream.read()


def _prepare(sources, output, workers):
    """Seconds and peak memory in MB of a whole ``prepare_data.py``, its workers included."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "prepare_data.py", "--config", CONFIG, "--output", str(output),
         "--workers", str(workers), "--input", *map(str, sources)], stdout=subprocess.DEVNULL)
    peak = _PeakMemory(process.pid)
    if process.wait():
        raise RuntimeError("prepare_data.py failed")
    return time.perf_counter() - start, peak.stop()


class _PeakMemory:
    """Watches the proportional memory of a process and its children."""

    def __init__(self, pid):
        import psutil

        self.process, self.peak, self.stopped = psutil.Process(pid), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def stop(self):
        """The peak in MB."""
        self.stopped.set()
        self.thread.join()
        return self.peak / 1e6

    def _watch(self):
        import psutil

        while not self.stopped.wait(SECONDS_BETWEEN_SAMPLES):
            try:
                family = [self.process, *self.process.children(recursive=True)]
                self.peak = max(self.peak, sum(p.memory_full_info().pss for p in family))
            except psutil.Error:
                continue  # one of them has just ended


def _peer_rates(text, output):
    """MB/s of PaddleNLP's tokenizer alone, and of the original recipe with it."""
    from engines import startup

    startup.prepare()
    from paddlenlp.transformers import BertTokenizer

    tokenizer = BertTokenizer("data/vocabularies/bert_base_uncased.txt", do_lower_case=True)
    documents = [document.splitlines() for document in text.split("\n\n")]
    megabytes = len(text.encode("utf-8")) / 1e6
    start = time.perf_counter()
    for document in documents:
        for sentence in document:
            tokenizer.tokenize(sentence)
    tokenizer_seconds = time.perf_counter() - start
    start = time.perf_counter()
    plain_recipe(documents, tokenizer, output)
    return megabytes / tokenizer_seconds, megabytes / (time.perf_counter() - start)


def plain_recipe(documents, tokenizer, output, length=128, max_predictions=20, seed=12345):
    """Devlin et al. 2018, appendix A.1, as one plain loop: the work that peers' scripts do."""
    chance = random.Random(seed)
    tokenized = [[tokenizer.tokenize(sentence) for sentence in document]
                 for document in documents]
    tokenized = [[sentence for sentence in document if sentence] for document in tokenized]
    vocabulary = list(tokenizer.vocab.token_to_idx)
    with open(output, "w", encoding="utf-8") as stream:
        for number, document in enumerate(tokenized):
            for first, second, is_random in _pairs(document, number, tokenized, length, chance):
                instance = _masked(first, second, vocabulary, max_predictions, chance)
                instance["ids"] = tokenizer.convert_tokens_to_ids(instance.pop("tokens"))
                instance["labels"] = tokenizer.convert_tokens_to_ids(instance["labels"])
                stream.write(json.dumps({**instance, "is_random": is_random}) + "\n")


def _pairs(document, number, documents, length, chance):
    chunk, position = [], 0
    while position < len(document):
        chunk.append(document[position])
        is_last = position == len(document) - 1
        if is_last or sum(map(len, chunk)) >= length - 3:
            split = chance.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first = [token for sentence in chunk[:split] for token in sentence]
            is_random = len(chunk) == 1 or chance.random() < 0.5
            if is_random:
                other = documents[(number + chance.randint(1, len(documents) - 1))
                                  % len(documents)]
                start = chance.randrange(len(other)) if other else 0
                second = [token for sentence in other[start:start + 8] for token in sentence]
                second = second[:max(1, length - 3 - len(first))]
                position -= len(chunk) - split  # the unused sentences are used again
            else:
                second = [token for sentence in chunk[split:] for token in sentence]
            while len(first) + len(second) > length - 3:
                longer = first if len(first) > len(second) else second
                longer.pop(0 if chance.random() < 0.5 else -1)
            yield first, second, is_random
            chunk = []
        position += 1


def _masked(first, second, vocabulary, max_predictions, chance):
    tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    candidates = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    chance.shuffle(candidates)
    wanted = min(max_predictions, max(1, round(len(tokens) * 0.15)))
    positions = sorted(candidates[:wanted])
    labels = [tokens[position] for position in positions]
    for position in positions:
        draw = chance.random()
        if draw < 0.8:
            tokens[position] = "[MASK]"
        elif draw >= 0.9:
            tokens[position] = chance.choice(vocabulary)
    return {"tokens": tokens, "positions": positions, "labels": labels,
            "segments": [0] * (len(first) + 2) + [1] * (len(second) + 1)}


if __name__ == "__main__":
    sys.exit(run(main))
