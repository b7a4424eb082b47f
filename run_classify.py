#!/usr/bin/env python3
"""Fine-tune BERT or ERNIE to label texts, pairs of texts or words, and score it.

The tasks of GLUE and CLUE, and any tsv, csv, JSON lines or CoNLL file by the names of its
columns. Without data.train_file the weights of train.initial_weights are evaluated as they are.
"""

import dataclasses
import sys
from pathlib import Path

from configs.command_line import run
from configs.errors import InputError
from training.start import fine_tune_or_evaluate, read_command_line


def main(argv=None):
    """Train, evaluate, or with --dry-run describe the run, and return the result."""
    arguments = read_command_line(__doc__, "classify", argv, with_seeds=True)
    return fine_tune_or_evaluate(arguments, fine_tune, evaluate, describe)


def fine_tune(config, output, resume=False):
    """Train ``config`` into the folder ``output``; the last evaluation's predictions lie there."""
    from training.run import train

    config, data = open_training(config)
    if data.packing_report:
        print("\n".join(data.packing_report.lines()), flush=True)
    return train(config, output, data, open_evaluation(config, output), resume, better=max,
                 measure=config.data.measure)


def evaluate(config, output):
    """Score ``train.initial_weights`` as they are, by the labels they name; returns the scores."""
    from training.run import evaluate_weights

    config = take_labels_of_weights(config)
    return evaluate_weights(config, output, open_evaluation(config, output))


def open_training(config):
    """The config with the labels' names and ``train.steps``, and the training rows."""
    from data.classify.examples import find_label_names
    from data.classify.rows import ClassifyData
    from data.classify.tables import read_table

    table = read_table(config.data.train_file, config.data)
    if not config.data.labels and config.data.objective != "regression":
        config = with_labels(config, find_label_names(table, config.data))
    features, tokenizer = open_features(config, table)
    data = ClassifyData(features, tokenizer, config.data, config.train.seed)
    return config.with_steps(len(data)), data


def open_evaluation(config, output):
    """A function of the engine that scores the evaluation file, or None where none is named."""
    from data.classify.tables import read_table
    from training.classify_evaluation import ClassifyEvaluation

    if not config.data.evaluation_file:
        return None
    table = read_table(config.data.evaluation_file, config.data)
    return ClassifyEvaluation(config, *open_features(config, table), output)


def open_features(config, table):
    """A table's features and the tokenizer; prints what a user should know."""
    from data.classify.examples import make_examples
    from data.classify.features import make_features
    from data.tokenizer import open_tokenizer

    tokenizer = open_tokenizer(config.model)
    examples = make_examples(table, config.data, config.data.labels)
    features = make_features(examples, tokenizer, config.data)
    print("\n".join([table.description(), *features.notices]), flush=True)
    return features, tokenizer


def with_labels(config, names):
    """The config with the names of its labels, checked and told."""
    print(f"labels: {', '.join(names)}", flush=True)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data,
                                                                  labels=list(names)))
    config.check()
    return config


def take_labels_of_weights(config):
    """The config with the labels that ``train.initial_weights`` were trained with.

    Raises:
        InputError: they name no labels and the recipe does not either, or both do and differ.
    """
    from models.weights.files import read_json
    from models.weights.model_configs import label_names

    place = Path(config.train.initial_weights) / "config.json"
    listed = config.data.labels
    named = label_names(read_json(place)) if place.is_file() else None
    if config.data.objective == "regression":
        return config
    if not (named or listed):
        raise InputError(place, "does not name the labels", "list them in data.labels")
    if named and listed and named != list(listed):
        raise InputError(place, f"the weights' labels are {', '.join(named)}, not "
                         f"{', '.join(listed)}", "leave data.labels out")
    return with_labels(config, named or listed)


def describe(config, output):
    """Print and return what a run would cost."""
    from training.run import describe_run

    if not config.data.train_file:
        return describe_run(take_labels_of_weights(config))
    config, data = open_training(config)
    if config.data.evaluation_file:
        open_evaluation(config, output)
    return describe_run(config, data, output)


if __name__ == "__main__":
    sys.exit(run(main))
