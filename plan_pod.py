#!/usr/bin/env python3
"""Plan a recipe on a pod of IPUs: whether it fits, how fast it is, what would be better."""

import json
import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.errors import InputError
from configs.files import write_json
from configs.load import load_config
from engines.planner.hardware import IPUS
from engines.planner.plan import check_for_ipus, make_plan
from engines.planner.report import as_dict, as_text
from engines.planner.search import scale, search

PICTURES = (".png", ".svg", ".pdf")


def main(argv=None):
    """Print the plan, write what was asked for, and return it as a dict."""
    parser = build_parser(__doc__)
    parser.add_argument("--hardware", choices=sorted(IPUS), default="mk2",
                        help="generation of the IPUs (default mk2)")
    parser.add_argument("--sequences-per-row", type=float, metavar="MEAN",
                        help="mean sequences of a packed row (default: what was published for "
                             "English Wikipedia)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--draw", metavar="FILE", help="picture to write: .png, .svg or .pdf")
    arguments = parser.parse_args(argv)
    if not arguments.config:
        parser.error("--config is required, e.g. configs/pretrain/bert_base_128.yaml")
    config = load_config(arguments.config, arguments.overrides, check_for_ipus)
    check(arguments, config)
    plan = make_plan(config, IPUS[arguments.hardware], arguments.sequences_per_row)
    changes, pods = search(plan), scale(plan)
    facts = as_dict(plan, changes, pods)
    write(arguments, plan, pods, facts)
    print(json.dumps(facts, indent=2) if arguments.json
          else "\n".join(as_text(plan, changes, pods)))
    return facts


def check(arguments, config):
    """Refuse a picture of an unknown kind or in no folder, and packing that is not done."""
    if arguments.draw:
        picture = Path(arguments.draw)
        if picture.suffix.lower() not in PICTURES:
            raise InputError(f"--draw {picture}", "is no kind of picture that is drawn here",
                             f"end it in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
        if not picture.absolute().parent.is_dir():
            raise InputError(f"--draw {picture}", "its folder is not there", "make it first")
    most = config.data.sequences_per_row
    mean = arguments.sequences_per_row
    if mean is not None and not 1 <= mean <= most:
        raise InputError(f"--sequences-per-row {mean}", f"is not between 1 and "
                         f"data.sequences_per_row {most}", "state the mean of the packed rows")


def write(arguments, plan, pods, facts):
    """Write the picture to ``--draw``, and plan.json and plan.png into ``--output``."""
    pictures = [arguments.draw] if arguments.draw else []
    if arguments.output:
        folder = make_folder(arguments.output)
        write_json(folder / "plan.json", facts)
        pictures.append(folder / "plan.png")
    if pictures:
        # Its import is slow.
        from engines.planner.drawing import draw

        for picture in pictures:
            draw(plan, pods, picture)


def make_folder(path):
    """The folder ``--output``, made if need be."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {path}", f"cannot be made ({error.strerror})",
                         "choose another folder") from None
    return folder


if __name__ == "__main__":
    sys.exit(run(main))
