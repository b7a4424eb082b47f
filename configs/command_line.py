"""What every entry point shares: its options, its errors, its exit codes."""

import argparse
import sys

from configs.errors import InputError
from configs.load import describe_keys

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Tells a wrong option as every other bad input is told: in one line."""

    def error(self, message):
        raise InputError(self.prog, message, "see --help")


def build_parser(description, config_default=None, with_keys=True):
    """An argument parser with --config, --set, --output and --debug."""
    parser = _Parser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="keys of the YAML file, for --set:\n" + describe_keys() if with_keys else None)
    add_common_options(parser, config_default)
    return parser


def add_common_options(parser, config_default=None):
    """The options that every entry point (and each of its commands) takes."""
    parser.add_argument("--config", metavar="FILE", default=config_default,
                        help="recipe in YAML, e.g. configs/pretrain/quickstart.yaml")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        dest="overrides", help="override one key, e.g. train.steps=20; repeatable")
    parser.add_argument("--output", metavar="DIR", help="folder to write to")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run(main, argv=None):
    """Call ``main(argv)``; print an InputError as one line and return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        main(argv)
    except InputError as error:
        if "--debug" in argv:
            raise
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
