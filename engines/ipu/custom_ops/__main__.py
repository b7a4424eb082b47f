"""Compile the operators into a folder and tell the library."""

import sys

from configs.command_line import Parser, run
from engines import startup
from engines.ipu.custom_ops import build


def main(argv=None):
    """Compile; returns the path of the library."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="where the library is written")
    folder = parser.parse_args(argv).folder
    startup.prepare(on_ipus=True)
    library = build(folder)
    print(f"write run.ipu_operators: {library}")
    return library


if __name__ == "__main__":
    sys.exit(run(main))
