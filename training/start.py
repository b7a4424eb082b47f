"""The command line that the training entry points share, up to the start of Paddle."""

from pathlib import Path

from configs.command_line import build_parser
from configs.errors import InputError
from configs.load import load_config
from engines import placement, startup


def read_command_line(description, task, argv, with_seeds=False):
    """Read arguments and recipe, and set the process up for Paddle.

    Args:
        description: of the entry point.
        task: that the recipe must be for.
        argv: words, or None for the process's own.
        with_seeds: whether there is ``--seeds``.

    Returns:
        The arguments, with ``config`` resolved and ``output`` a path.
    """
    parser = build_parser(description, task)
    parser.add_argument("--resume", action="store_true",
                        help="go on from the newest whole checkpoint in --output, if there is one")
    parser.add_argument("--dry-run", action="store_true",
                        help="build everything, take one batch, describe the run and stop")
    if with_seeds:
        parser.add_argument("--seeds", metavar="N,N,…",
                            help="run once for each seed and tell mean, deviation and best")
    arguments = parser.parse_args(argv)
    name = arguments.config
    arguments.config = load_config(name, arguments.overrides, placement.resolve, task=task)
    arguments.output = Path(arguments.output or Path("runs") / Path(name).stem)
    startup.prepare(arguments.config.run.threads, arguments.config.run.on_ipus)
    return arguments


def fine_tune_or_evaluate(arguments, fine_tune, evaluate, describe):
    """What the command line of a fine-tuning entry point asks for.

    Args:
        arguments: of ``read_command_line`` with seeds.
        fine_tune: called with config, folder and whether to resume, trains; returns a result.
        evaluate: called with config and folder, where there is no ``data.train_file``.
        describe: called with config and folder, for ``--dry-run``.

    Returns:
        What the chosen one returned, or the figures of several seeds.
    """
    from training.seeds import read_seeds, run_seeds

    config, output, data = arguments.config, arguments.output, arguments.config.data
    seeds = read_seeds(arguments.seeds)
    if not (data.train_file or data.evaluation_file and config.train.initial_weights):
        raise InputError("data.train_file", "is null, and there is nothing to evaluate",
                         "name it, or data.evaluation_file and train.initial_weights")
    for key in ("train_file", "evaluation_file") if seeds else ():
        if not getattr(data, key):
            raise InputError("--seeds", f"there is no data.{key} to compare runs by", "name it")
    if arguments.dry_run:
        return describe(config, output)
    if not data.train_file:
        return evaluate(config, output)
    if seeds:
        return run_seeds(seeds, config, output, lambda config, folder:
                         fine_tune(config, folder, arguments.resume))
    return fine_tune(config, output, arguments.resume)
