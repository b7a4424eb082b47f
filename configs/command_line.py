"""What every entry point shares: its options, its errors, its exit codes."""

import argparse
import errno
import json
import sys

from configs.errors import InputError, Stopped
from configs.files import write_json
from configs.load import describe_keys

_DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

EXIT_BAD_INPUT = 2
EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: run the same again
EXIT_INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """A parser with --debug, which tells a wrong option in one line, as other bad input."""

    def __init__(self, **options):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def error(self, message):
        raise InputError(self.prog, message, "see --help")


def build_parser(description, task="pretrain"):
    """A parser for a task's recipe: --config, --set and --output, and every key in --help."""
    parser = Parser(description=description,
                    epilog="keys of the YAML file, for --set:\n" + describe_keys(task))
    parser.add_argument("--config", metavar="FILE",
                        help="recipe in YAML, e.g. configs/pretrain/quickstart.yaml")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        dest="overrides", help="override one key, e.g. train.steps=20; repeatable")
    parser.add_argument("--output", metavar="DIR", help="folder to write to")
    return parser


def tell(figures, output=None):
    """Print figures as JSON, and write them to a file too if one is named."""
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    if output:
        write_json(output, figures)


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
    except OSError as error:
        if "--debug" in argv or error.errno not in _DISK_REFUSES:
            raise
        print(f"error: {error.filename or 'the disk'}: cannot be written ({error.strerror}); "
              "make room or choose another folder", file=sys.stderr)
        return EXIT_BAD_INPUT
    except Stopped as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        return EXIT_STOPPED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
