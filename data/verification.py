"""Checks of a prepared folder, and figures of the text in it."""

from pathlib import Path

import numpy as np

from configs.errors import InputError
from data import packing, pairs, shards

HISTOGRAM_STEPS = 8
PACKED = 3  # sequences a row, as Graphcore packs BERT
SHORT_SEQUENCE_PROBABILITY = 0.1
SPECIALS = pairs.special_tokens("nsp")


def verify(directory, sequence_lengths):
    """Check every file of a prepared folder and describe the training text.

    Hashes, sizes, offsets, ids and counts are checked; then come documents, sentences and
    tokens, bytes a token, a histogram of document lengths, and for each row length the
    padding of plain rows and what packing would gain.

    Args:
        directory: a prepared folder.
        sequence_lengths: slots of a row.

    Returns:
        dict of figures.

    Raises:
        InputError: naming the first file that is not as it was written.
    """
    directory = Path(directory)
    manifest = shards.read_manifest(directory)
    if manifest is None:
        raise InputError(directory, "no manifest.json in it",
                         "name a folder that prepare_data.py finished")
    folders = shards.shard_folders(directory)
    if len(folders) != manifest["shards"]:
        raise InputError(directory, f"has {len(folders)} shards, not {manifest['shards']}",
                         "copy the folder again")
    for folder in folders:
        _check_files(folder)
    _check_contents(directory, manifest)
    return _describe(directory, manifest, sequence_lengths)


def _check_files(folder):
    recorded = shards.read_json(folder / "shard.json")["files"]
    found = shards.hash_files(folder)
    found.pop("shard.json")
    for name in sorted({*recorded, *found}):
        if recorded.get(name) != found.get(name):
            raise InputError(folder / name, "is missing or differs from what was written",
                             "copy the folder again")


def _check_contents(directory, manifest):
    vocabulary = manifest["vocabulary_tokens"]
    for split, counts in manifest["counts"].items():
        total = dict.fromkeys(shards.COUNTS, 0)
        for folder, shard in zip(shards.shard_folders(directory),
                                 shards.open_shards(directory, split)):
            _check_shard(folder / split, shard, vocabulary)
            for name, count in shard.counts().items():
                total[name] += count
        if total != counts:
            raise InputError(directory, f"{split} holds {total}, but the manifest says {counts}",
                             "prepare it again")
    counted = shards.count_tokens(directory, vocabulary)
    if not np.array_equal(counted, np.load(directory / "token_counts.npy", allow_pickle=False)):
        raise InputError(directory / "token_counts.npy", "differs from the text",
                         "prepare it again")


def _check_shard(folder, shard, vocabulary):
    for name, ends in (("sentences", len(shard.tokens)), ("documents", len(shard.sentences) - 1)):
        offsets = getattr(shard, name).astype(np.int64)
        if offsets[0] != 0 or offsets[-1] != ends or (np.diff(offsets) <= 0).any():
            raise InputError(folder / f"{name}.bin", "its offsets do not rise from start to end",
                             "prepare it again")
    if len(shard.tokens) and int(shard.tokens.max()) >= 2 * vocabulary:
        raise InputError(folder / "tokens.bin", "holds a token outside the vocabulary",
                         "prepare it again")


def _describe(directory, manifest, sequence_lengths):
    sizes = np.concatenate([np.diff(shard.sentences[shard.documents].astype(np.int64))
                            for shard in shards.open_shards(directory, "train")])
    size_on_disk = sum(path.stat().st_size for path in directory.rglob("*.bin"))
    tokens = sum(counts["tokens"] for counts in manifest["counts"].values())
    figures = {f"{split}_{name}": count for split, counts in manifest["counts"].items()
               for name, count in counts.items()}
    figures["bytes_per_token"] = round(size_on_disk / tokens, 4)
    edges = np.unique(np.geomspace(1, sizes.max() + 1, HISTOGRAM_STEPS + 1).astype(np.int64))
    histogram = np.histogram(sizes, edges)[0]
    figures["documents_by_tokens"] = {f"{low}-{high - 1}": int(count) for low, high, count
                                      in zip(edges, edges[1:], histogram)}
    for length in sequence_lengths:
        figures[f"rows_of_{length}"] = _describe_rows(directory, length)
    return figures


def _describe_rows(directory, length):
    """Padding of plain rows of BERT's recipe, and what packing three to a row gains."""
    samples = pairs.gather_samples(shards.open_shards(directory, "train"), length - SPECIALS,
                                   SHORT_SEQUENCE_PROBABILITY, seed=0)
    samples = pairs.with_known_lengths(samples, "nsp", length - SPECIALS)
    histogram = packing.length_histogram(samples.target + SPECIALS, length)
    report = packing.packing_report(packing.pack(histogram, PACKED, directory), histogram,
                                    PACKED)
    padding = 1 - report.tokens / (report.sequences * length)
    return {"samples": report.sequences, "padding_share": round(padding, 4),
            "packed_rows": report.rows, "packing_gain": round(report.sequences / report.rows, 4),
            "packing_efficiency": round(report.efficiency, 4),
            "best_packing_efficiency": round(report.best_efficiency, 4)}
