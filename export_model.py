#!/usr/bin/env python3
"""Export a checkpoint as a folder that answers text: for Paddle Inference and as ONNX.

The exported model is compared with the trained one on real text of many shapes, and not kept
where they differ by more than the tolerance.
"""

import sys

from configs.command_line import Parser, run
from configs.errors import InputError
from configs.inference_schema import load_inference
from engines import startup

TASKS = ("fill_mask", "answer", "classify", "embed", "encode")


def main(argv=None):
    """Export, print the largest difference, and return what export.json holds."""
    arguments = _parser().parse_args(argv)
    inference = _read_inference(arguments)
    startup.prepare(on_ipus=inference is not None)

    from inference.export import FORMATS, export_model
    from inference.tasks import asked_as

    exported = export_model(arguments.checkpoint, arguments.task, arguments.output,
                            arguments.formats or FORMATS, arguments.max_tokens,
                            inference=inference)
    for name, difference in exported.largest_difference.items():
        print(f"{name}: largest difference from the trained model {difference:.2e}")
    print(f"written to {arguments.output}; try: python predict.py "
          f"{asked_as(exported.task).replace('_', '-')} --model {arguments.output}")
    return exported


def _read_inference(arguments):
    """The settings of IPUs; None for a model that any other device takes."""
    if arguments.inference is None and not arguments.overrides:
        return None
    settings = load_inference(arguments.inference, arguments.overrides)
    if not settings.on_ipus:
        raise InputError("inference.device", f"{settings.device}, but CPUs and GPUs take the model "
                         "that is exported without --inference", "leave it out, or write ipu")
    return settings


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
    parser.add_argument("--inference", metavar="FILE",
                        help="export for IPUs with these settings, e.g. configs/inference/"
                             "ipu.yaml, and check that IPUs take the model")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        dest="overrides", help="override one of them, e.g. fixed_rows=16")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
