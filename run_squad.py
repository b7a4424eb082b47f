#!/usr/bin/env python3
"""Fine-tune BERT or ERNIE on reading comprehension, score it, and write its answers.

SQuAD v1.1 and v2.0, CMRC 2018, DRCD and what else has their layout. Without data.train_file the
weights of train.initial_weights are evaluated as they are.
"""

import sys

from configs.command_line import run
from training.start import fine_tune_or_evaluate, read_command_line


def main(argv=None):
    """Train, evaluate, or with --dry-run describe the run, and return the result."""
    arguments = read_command_line(__doc__, "squad", argv, with_seeds=True)
    return fine_tune_or_evaluate(arguments, fine_tune, evaluate, describe)


def fine_tune(config, output, resume=False):
    """Train ``config`` into the folder ``output``; the answers of the last evaluation lie there."""
    from training.run import train

    data = open_training(config)
    if data.packing_report:
        print("\n".join(data.packing_report.lines()), flush=True)
    config = config.with_steps(len(data))
    return train(config, output, data, open_evaluation(config, output), resume, better=max,
                 measure="f1")


def evaluate(config, output):
    """Score ``train.initial_weights`` as they are; returns the scores."""
    from training.run import evaluate_weights

    return evaluate_weights(config, output, open_evaluation(config, output))


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
