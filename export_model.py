#!/usr/bin/env python3
"""Export a checkpoint as a folder that answers text: for Paddle Inference and as ONNX.

The exported model is compared with the trained one on real text of many shapes, and not kept
where they differ by more than the tolerance.
"""

import sys

from configs.command_line import Parser, run
from engines import startup

TASKS = ("fill_mask", "answer", "classify", "embed")


def main(argv=None):
    """Export, print the largest difference, and return what export.json holds."""
    arguments = _parser().parse_args(argv)
    startup.prepare()

    from inference.export import FORMATS, export_model

    exported = export_model(arguments.checkpoint, arguments.task, arguments.output,
                            arguments.formats or FORMATS, arguments.max_tokens)
    for name, difference in exported.largest_difference.items():
        print(f"{name}: largest difference from the trained model {difference:.2e}")
    print(f"written to {arguments.output}; try: python predict.py "
          f"{exported.task.replace('_', '-')} --model {arguments.output}")
    return exported


def _parser():
    parser = Parser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, metavar="DIR",
                        help="a run's checkpoints/step_NNNNNNNN, or a Hugging Face folder")
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--formats", nargs="+", choices=("paddle", "onnx"),
                        help="what to write (default both); onnx is made from paddle")
    parser.add_argument("--max-tokens", type=int, metavar="N",
                        help="cut longer texts to N tokens (default: the model's positions)")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
