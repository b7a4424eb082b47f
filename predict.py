#!/usr/bin/env python3
"""Ask a checkpoint: fill-mask names the likeliest words in the place of [MASK], classify tells
the label of a text, a pair, or each word, or a number.
"""

import json
import sys

from configs.command_line import Parser, run
from engines import startup


def main(argv=None):
    """Answer as the command line asks; return the answers."""
    arguments = _parser().parse_args(argv)
    startup.prepare()
    return arguments.command(arguments)


def fill_mask(arguments):
    """Print and return candidates for every [MASK] of ``--text``."""
    from inference.fill_mask import MaskFiller

    answers = MaskFiller(arguments.checkpoint).fill(arguments.text, arguments.count)
    print(arguments.text)
    for number, candidates in enumerate(answers, 1):
        print(f"[MASK] {number}")
        for token, probability in candidates:
            print(f"  {probability:8.4f}  {token}")
    return answers


def classify(arguments):
    """Print and return what is told of ``--text``, or of each row of ``--input``."""
    from configs.files import write_whole
    from inference.classify import Classifier

    classifier = Classifier(arguments.checkpoint)
    if arguments.text is not None:
        answer = classifier.classify_text(arguments.text, arguments.pair)
        print(json.dumps(answer, ensure_ascii=False, indent=1))
        return answer
    answers = classifier.classify_file(
        arguments.input, text_column=arguments.text_column, pair_column=arguments.pair_column,
        columns=arguments.columns.split(",") if arguments.columns else [],
        format=arguments.format, quoting=arguments.quoting)
    lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    if arguments.output:
        write_whole(arguments.output, lines)
    else:
        print(lines, end="")
    return answers


def _parser():
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("fill-mask", help="guess the words behind [MASK]")
    command.set_defaults(command=fill_mask)
    command.add_argument("--checkpoint", required=True, metavar="DIR",
                         help="a run's checkpoints/step_NNNNNNNN, or a Hugging Face folder")
    command.add_argument("--text", required=True, help="text with one or more [MASK]")
    command.add_argument("--count", type=int, default=5, help="words for each mask (default 5)")
    _add_classify(commands)
    return parser


def _add_classify(commands):
    command = commands.add_parser("classify", help="label a text, or each row of a file")
    command.set_defaults(command=classify)
    command.add_argument("--checkpoint", required=True, metavar="DIR",
                         help="a checkpoint of run_classify.py, or a Hugging Face folder")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", help="the text")
    what.add_argument("--input", metavar="FILE", help="tsv, csv, JSON lines or CoNLL")
    command.add_argument("--pair", help="the second text of a pair, with --text")
    command.add_argument("--text-column", default="text", help="of --input (default text)")
    command.add_argument("--pair-column", help="of --input, for pairs")
    command.add_argument("--columns", metavar="NAME,NAME",
                         help="of an --input without a line of names")
    command.add_argument("--format", default="auto", help="of --input, as data.format",
                         choices=["auto", "tsv", "csv", "jsonl", "spaces", "conll"])
    command.add_argument("--quoting", default="auto", help="of --input, as data.quoting",
                         choices=["auto", "quoted", "plain"])
    command.add_argument("--output", metavar="FILE", help="JSON lines instead of printing them")


if __name__ == "__main__":
    sys.exit(run(main))
