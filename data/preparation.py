"""Raw text to a prepared folder: in parallel, in bounded memory, going on after a stop.

The sources are cut into blocks of documents. Worker processes parse and tokenise blocks,
the main process reads ahead a few of them, takes the results in order and writes a shard
whenever enough tokens are gathered. So the bytes do not depend on the number of workers,
and after a kill the finished shards say at which block to go on.
"""

import itertools
import shutil
import sys
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tqdm import tqdm

from configs.errors import InputError
from configs.files import write_json
from data import shards
from data.corpus import parse_document, raw_documents
from data.tokenizer import open_tokenizer

BLOCK_CHARACTERS = 1 << 19
SHARD_TOKENS = 1 << 26
BLOCKS_AHEAD = 2  # for each worker


def prepare(paths, config, directory, workers=1, part=(1, 1)):
    """Write a prepared folder, go on with one that was begun, or find it complete.

    Args:
        paths: source files.
        config: the resolved ``Config``; ``model`` and ``data`` are read.
        directory: the folder's final name.
        workers: processes that parse and tokenise.
        part: ``(i, n)``: of the blocks, every n-th from the i-th on.

    Returns:
        The manifest, a dict.

    Raises:
        InputError: bad text, no text, or the folder holds something else.
    """
    directory = Path(directory)
    settings = _settings(paths, config, part)
    manifest = shards.read_manifest(directory)
    if manifest:
        _check_same(manifest, settings, directory)
        return manifest
    if directory.exists():
        raise InputError(directory, "exists and is no prepared folder", "choose another --output")
    partial = directory.with_name(directory.name + ".partial")
    vocabulary_size = len(open_tokenizer(config.model))
    _begin(partial, settings)
    try:
        _write_shards(paths, config, partial, shards.code_dtype(vocabulary_size), workers, part)
        return _finish(partial, directory, settings, vocabulary_size)
    except OSError as error:
        raise InputError(partial, f"cannot be written ({error.strerror})",
                         "make room and run the same command again") from None
    finally:
        if partial.is_dir() and not shards.shard_folders(partial):
            shutil.rmtree(partial)


def _settings(paths, config, part):
    """What decides the folder's bytes; the manifest records it."""
    data = config.data
    return {
        "sources": [{"file": str(path), "bytes": path.stat().st_size,
                     "sha256": shards.file_hash(path)} for path in paths],
        "part": list(part),
        "vocabulary": config.model.vocabulary,
        "vocabulary_sha256": shards.file_hash(config.model.vocabulary),
        "lower_case": config.model.lower_case,
        "held_out_share": data.held_out_share,
        "text_field": data.text_field, "language": data.language, "lines": data.lines,
        # Another version may split another way.
        "libraries": {name: metadata.version(name)
                      for name in ("tokenizers", "sentencex", "mwparserfromhell", "rjieba")},
    }


def _check_same(found, settings, directory):
    for key, value in settings.items():
        if found.get(key) != value:
            raise InputError(directory, "was prepared from other text or with other settings "
                             f"({key} differs)", "remove it or choose another --output")


def _begin(partial, settings):
    """Make the unfinished folder, or keep the shards of one that was begun the same way."""
    begun = partial / "settings.json"
    if begun.is_file() and shards.read_json(begun) == settings:
        print(f"going on with {partial}, {len(shards.shard_folders(partial))} shards are there",
              flush=True)
        return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_json(begun, settings)


def _blocks(paths, part, done, bar):
    """Yield ``(number, first document, raw documents)`` of the blocks left to do.

    Args:
        paths, part: as in ``prepare``.
        done: blocks that finished shards hold.
        bar: is moved to the bytes of the sources that are read.
    """
    block, size, number, first = [], 0, 0, 0
    for document in _documents(paths, bar):
        block.append(document)
        size += len(document.text)
        if size >= BLOCK_CHARACTERS:
            if number >= done and number % part[1] == part[0] - 1:
                yield number, first, block
            number, first, block, size = number + 1, first + len(block), [], 0
    if block and number >= done and number % part[1] == part[0] - 1:
        yield number, first, block


def _documents(paths, bar):
    before = 0
    for path in paths:
        documents = raw_documents(path, lambda read, before=before: bar.update(
            before + read - bar.n))
        first = next(documents, None)
        if first is None:
            raise InputError(path, "no text in it", "leave it out of the sources")
        yield from itertools.chain([first], documents)
        before += path.stat().st_size


def _write_shards(paths, config, directory, dtype, workers, part):
    """Write the shards that are not there yet."""
    records = shards.read_records(directory)
    done = records[-1]["blocks_done"] if records else 0
    number, writer = len(records), None
    try:
        with tqdm(total=sum(path.stat().st_size for path in paths), unit="B", unit_scale=True,
                  desc="preparing", disable=not sys.stderr.isatty()) as bar:
            blocks = _blocks(paths, part, done, bar)
            for block, result in _results(blocks, config, workers):
                writer = writer or shards.ShardWriter(directory, number, dtype)
                for split, part_of_shard in result.items():
                    writer.append(split, part_of_shard)
                if writer.counts["train"]["tokens"] >= SHARD_TOKENS:
                    writer.close({"blocks_done": block + 1})
                    number, writer = number + 1, None
            if writer:
                writer.close({"blocks_done": block + 1})
    except BaseException:
        if writer:
            writer.abandon()
        raise


def _results(blocks, config, workers):
    if workers == 1:
        worker = _BlockWorker(config)
        for number, first, documents in blocks:
            yield number, worker(first, documents)
        return
    # Spawned, for a forked process would share the state of whatever threads run here.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (config,)) as pool:
        waiting = deque()
        try:
            for number, first, documents in blocks:
                waiting.append((number, pool.submit(_run_worker, first, documents)))
                if len(waiting) > workers * BLOCKS_AHEAD:
                    number, result = waiting.popleft()
                    yield number, result.result()
            while waiting:
                number, result = waiting.popleft()
                yield number, result.result()
        except BrokenProcessPool:
            raise InputError("prepare_data.py", "a worker process was killed, perhaps for memory",
                             "run the same command again with fewer --workers") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker(config):
    global _worker
    _worker = _BlockWorker(config)


def _run_worker(first, documents):
    return _worker(first, documents)


class _BlockWorker:
    """Parses and tokenises a block of raw documents."""

    def __init__(self, config):
        self.data = config.data
        self.tokenizer = open_tokenizer(config.model)
        self.segment = None
        if config.data.language == "zh":
            import rjieba  # slow to load, and for Chinese alone
            self.segment = rjieba.cut

    def __call__(self, first, documents):
        """A ``Shard`` for each split, by name."""
        parsed = {split: [] for split in shards.SPLITS}
        for number, document in enumerate(documents, first):
            sentences = parse_document(document, self.data)
            if sentences:
                parsed[split_of(number, self.data.held_out_share)].append(sentences)
        return {split: self._encode(documents) for split, documents in parsed.items()}

    def _encode(self, documents):
        dtype = shards.code_dtype(len(self.tokenizer))
        if not documents:
            return shards.make_shard(np.zeros(0, dtype), [], [], dtype)
        sentences = [sentence for document in documents for sentence in document]
        tokens, sizes, continues = self.tokenizer.encode_sentences(sentences, self.segment)
        codes = shards.encode_continuations(tokens, continues, len(self.tokenizer))
        document = np.repeat(np.arange(len(documents)), [len(d) for d in documents])
        # A sentence of mere control characters has no token, and a document may be left empty.
        document_sizes = np.bincount(document[sizes > 0], minlength=len(documents))
        return shards.make_shard(codes, sizes[sizes > 0], document_sizes[document_sizes > 0],
                                 dtype)


def split_of(number, held_out_share):
    """The split of the n-th document; held-out ones are spread evenly over the text."""
    is_held_out = int((number + 1) * held_out_share) > int(number * held_out_share)
    return "held_out" if is_held_out else "train"


def _finish(partial, directory, settings, vocabulary_size):
    records = shards.read_records(partial)
    counts = {split: {name: sum(record["counts"][split][name] for record in records)
                      for name in shards.COUNTS} for split in shards.SPLITS}
    if not counts["train"]["tokens"]:
        shutil.rmtree(partial)
        raise InputError("data.sources", "no text in any file", "check the files")
    np.save(partial / "token_counts.npy", shards.count_tokens(partial, vocabulary_size))
    manifest = {**settings, "vocabulary_tokens": vocabulary_size, "counts": counts,
                "shards": len(records)}
    (partial / "settings.json").unlink()
    write_json(partial / "manifest.json", manifest)
    partial.rename(directory)
    return manifest
