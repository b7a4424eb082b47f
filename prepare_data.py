#!/usr/bin/env python3
"""Prepare pretraining data: raw text to shards of token ids."""

import sys
from pathlib import Path

from tqdm import tqdm

from configs.command_line import build_parser, run
from configs.errors import InputError
from configs.load import load_config


def main(argv=None):
    """Prepare the text that a recipe names; return the manifest of the prepared folder."""
    parser = build_parser(__doc__)
    parser.add_argument("--input", nargs="+", metavar="FILE",
                        help="text files or globs instead of the recipe's data.sources")
    arguments = parser.parse_args(argv)
    if not arguments.config:
        parser.error("--config is required: it names the vocabulary and the settings")
    config = load_config(arguments.config, arguments.overrides)
    return prepare(config, arguments.input or config.data.sources,
                   Path(arguments.output or config.data.directory))


def prepare(config, patterns, directory):
    """Write ``directory`` from the files that ``patterns`` match, or find it up to date."""
    from data import shards
    from data.corpus import find_sources
    from data.tokenizer import WordPieceTokenizer

    paths = find_sources(patterns)
    tokenizer = WordPieceTokenizer(config.model.vocabulary, config.model.lower_case)
    settings = {
        "sources": [{"file": str(path), "sha256": shards.file_hash(path)} for path in paths],
        "vocabulary": config.model.vocabulary,
        "vocabulary_sha256": shards.file_hash(config.model.vocabulary),
        "lower_case": config.model.lower_case,
        "held_out_share": config.data.held_out_share,
    }
    manifest = shards.read_manifest(directory)
    if manifest is None:
        if directory.exists():
            raise InputError(directory, "exists and is no prepared folder",
                             "choose another --output")
        documents = split_documents(paths, config.data.held_out_share)
        manifest = shards.write_prepared(directory, documents, tokenizer, settings)
    elif {key: manifest.get(key) for key in settings} != settings:
        raise InputError(directory, "was prepared from other text or with other settings",
                         "remove it or choose another --output")
    for split, counts in manifest["counts"].items():
        print(f"{directory}: {split}: {counts['documents']} documents, "
              f"{counts['sentences']} sentences, {counts['tokens']} tokens")
    return manifest


def split_documents(paths, held_out_share):
    """Yield ``(split, sentences)``; held-out documents are spread evenly over the text."""
    from data.corpus import read_documents

    number = 0
    for path in tqdm(paths, desc="reading", unit="file", disable=not sys.stderr.isatty()):
        for sentences in read_documents(path):
            number += 1
            is_held_out = int(number * held_out_share) > int((number - 1) * held_out_share)
            yield "held_out" if is_held_out else "train", sentences


if __name__ == "__main__":
    sys.exit(run(main))
