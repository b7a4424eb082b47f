#!/usr/bin/env python3
"""Prepare pretraining data: raw text to shards of token ids. ``verify DIR`` checks a folder."""

import argparse
import os
import sys
from pathlib import Path

from configs.command_line import Parser, build_parser, run
from configs.errors import InputError
from configs.load import load_config


def main(argv=None):
    """Prepare the text that a recipe names, or verify a prepared folder.

    Returns:
        The manifest of the prepared folder, or what was found in the verified one.
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["verify"]:
        return verify_folder(argv[1:])
    parser = build_parser(__doc__)
    parser.add_argument("--input", nargs="+", metavar="FILE",
                        help="text files or globs instead of the recipe's data.sources")
    parser.add_argument("--workers", type=int, metavar="N", default=len(os.sched_getaffinity(0)),
                        help="processes that parse and tokenise (default: one a core)")
    parser.add_argument("--part", type=read_part, default=(1, 1), metavar="I/N",
                        help="prepare the I-th of N parts, e.g. in a cluster's array job")
    arguments = parser.parse_args(argv)
    if not arguments.config:
        parser.error("--config is required: it names the vocabulary and the settings")
    if arguments.workers < 1:
        raise InputError("--workers", f"{arguments.workers} is not positive", "write 1 or more")
    config = load_config(arguments.config, arguments.overrides, task="pretrain")
    return prepare_text(config, arguments.input or config.data.sources,
                        Path(arguments.output or config.data.directory), arguments.workers,
                        arguments.part)


def prepare_text(config, patterns, directory, workers, part):
    """Write ``directory`` from the files that ``patterns`` match, or find it complete."""
    from data.corpus import find_sources
    from data.preparation import prepare

    manifest = prepare(find_sources(patterns), config, directory, workers, part)
    for split, counts in manifest["counts"].items():
        print(f"{directory}: {split}: {counts['documents']} documents, "
              f"{counts['sentences']} sentences, {counts['tokens']} tokens")
    return manifest


def verify_folder(argv):
    """Check every file of a prepared folder, print and return its statistics."""
    from data.verification import verify

    parser = Parser(prog="prepare_data.py verify", description=verify.__doc__)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--sequence-length", type=int, nargs="+", default=[128, 512],
                        help="row lengths to tell padding and packing for (default: 128 512)")
    arguments = parser.parse_args(argv)
    statistics = verify(arguments.directory, arguments.sequence_length)
    for key, value in statistics.items():
        print(f"{key}: {value}")
    return statistics


def read_part(text):
    """``I/N`` as two integers with 1 <= I <= N."""
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
        raise argparse.ArgumentTypeError(f"'{text}' is no part: write I/N, e.g. 1/4")
    return int(first), int(second)


if __name__ == "__main__":
    sys.exit(run(main))
