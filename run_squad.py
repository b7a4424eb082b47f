#!/usr/bin/env python3
"""Fine-tune BERT or ERNIE on reading comprehension, score it, and write its answers.

SQuAD v1.1 and v2.0, CMRC 2018, DRCD and what else has their layout. Without data.train_file the
weights of train.initial_weights are evaluated as they are.
"""

import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.errors import InputError
from configs.load import load_config
from engines import placement, startup


def main(argv=None):
    """Train, evaluate, or with --dry-run describe the run, and return the result."""
    parser = build_parser(__doc__, task="squad")
    parser.add_argument("--resume", action="store_true",
                        help="go on from the newest whole checkpoint in --output, if there is one")
    parser.add_argument("--dry-run", action="store_true",
                        help="build everything, describe the run and stop")
    parser.add_argument("--seeds", metavar="N,N,…",
                        help="run once for each seed and tell mean, deviation and best")
    arguments = parser.parse_args(argv)
    config = load_config(arguments.config, arguments.overrides, placement.resolve, task="squad")
    output = Path(arguments.output or Path("runs") / Path(arguments.config).stem)
    startup.prepare(config.run.threads, config.run.on_ipus)

    from training.seeds import read_seeds, run_seeds

    seeds = read_seeds(arguments.seeds)
    if arguments.dry_run:
        return describe(config, output)
    if not config.data.train_file:
        return evaluate_weights(config, output)
    if seeds:
        return run_seeds(seeds, config, output, lambda config, folder:
                         fine_tune(config, folder, arguments.resume))
    return fine_tune(config, output, arguments.resume)


def fine_tune(config, output, resume=False):
    """Train ``config`` into the folder ``output``; the answers of the last evaluation lie there."""
    from training.run import train

    data = open_training(config)
    if data.packing_report:
        print("\n".join(data.packing_report.lines()), flush=True)
    config = config.with_steps(len(data))
    return train(config, output, data, open_evaluation(config, output), resume, better=max,
                 measure="f1")


def evaluate_weights(config, output):
    """Score ``train.initial_weights`` as they are; returns the scores."""
    from engines.local import LocalEngine
    from training.run import open_network

    if not (config.data.evaluation_file and config.train.initial_weights):
        raise InputError("data.train_file", "is null, and there is nothing to evaluate",
                         "name it, or data.evaluation_file and train.initial_weights")
    engine = LocalEngine(config)
    engine.build(open_network(config))
    output.mkdir(parents=True, exist_ok=True)
    scores = open_evaluation(config, output)(engine)
    print(scores, flush=True)
    return scores


def open_training(config):
    """The training rows."""
    from data.squad.rows import SquadData

    questions, features, tokenizer = open_questions(config, config.data.train_file)
    questions.check_answers()
    return SquadData(features, tokenizer, config.data, config.train.seed)


def open_evaluation(config, output):
    """A function of the engine that scores the evaluation file, or None where none is named."""
    from training.squad_evaluation import SquadEvaluation

    if not config.data.evaluation_file:
        return None
    return SquadEvaluation(config, *open_questions(config, config.data.evaluation_file), output)


def open_questions(config, path):
    """A file's questions, their features and the tokenizer; prints what a user should know."""
    from data.squad.features import open_features
    from data.squad.questions import read_questions
    from data.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(config.model)
    questions = read_questions(path)
    questions.check_version(config.data.has_impossible)
    features = open_features(questions, config.model.vocabulary, config.model.lower_case,
                             config.data)
    print("\n".join(features.lines(questions)), flush=True)
    return questions, features, tokenizer


def describe(config, output):
    """Print and return what a run would cost."""
    from training.run import describe_run

    if config.data.evaluation_file:
        open_questions(config, config.data.evaluation_file)
    if not config.data.train_file:
        return describe_run(config)
    data = open_training(config)
    return describe_run(config.with_steps(len(data)), data, output)


if __name__ == "__main__":
    sys.exit(run(main))
