#!/usr/bin/env python3
"""Ask a checkpoint: fill-mask names the likeliest words in the place of [MASK]."""

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


def _parser():
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("fill-mask", help="guess the words behind [MASK]")
    command.set_defaults(command=fill_mask)
    command.add_argument("--checkpoint", required=True, metavar="DIR",
                         help="a run's checkpoints/step_NNNNNNNN, or a Hugging Face folder")
    command.add_argument("--text", required=True, help="text with one or more [MASK]")
    command.add_argument("--count", type=int, default=5, help="words for each mask (default 5)")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
