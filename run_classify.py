#!/usr/bin/env python3
"""Fine-tune BERT or ERNIE to label texts, pairs of texts or words, and score it.

The tasks of GLUE and CLUE, and any tsv, csv, JSON lines or CoNLL file by the names of its
columns. Without data.train_file the weights of train.initial_weights are evaluated as they are.
"""

import dataclasses
import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.errors import InputError
from configs.load import load_config
from engines import placement, startup


def main(argv=None):
    """Train, evaluate, or with --dry-run describe the run, and return the result."""
    parser = build_parser(__doc__, task="classify")
    parser.add_argument("--resume", action="store_true",
                        help="go on from the newest whole checkpoint in --output, if there is one")
    parser.add_argument("--dry-run", action="store_true",
                        help="build everything, describe the run and stop")
    parser.add_argument("--seeds", metavar="N,N,…",
                        help="run once for each seed and tell mean, deviation and best")
    arguments = parser.parse_args(argv)
    config = load_config(arguments.config, arguments.overrides, placement.resolve,
                         task="classify")
    output = Path(arguments.output or Path("runs") / Path(arguments.config).stem)
    startup.prepare(config.run.threads, config.run.on_ipus)

    from training.seeds import read_seeds, run_seeds

    seeds = read_seeds(arguments.seeds)
    if arguments.dry_run:
        return describe(config)
    if not config.data.train_file:
        return evaluate_weights(config, output)
    if seeds:
        if not config.data.evaluation_file:
            raise InputError("--seeds", "there is no data.evaluation_file to compare runs by",
                             "name it")
        return run_seeds(seeds, config, output, lambda config, folder:
                         fine_tune(config, folder, arguments.resume))
    return fine_tune(config, output, arguments.resume)


def fine_tune(config, output, resume=False):
    """Train ``config`` into the folder ``output``; the last evaluation's predictions lie there."""
    from training.run import train

    config, data = open_training(config)
    return train(config, output, data, open_evaluation(config, output), resume, better=max,
                 measure=config.data.measure)


def evaluate_weights(config, output):
    """Score ``train.initial_weights`` as they are, by the labels they name; returns the scores."""
    from engines.open import open_engine
    from training.run import open_network

    config = take_labels_of_weights(config)
    output.mkdir(parents=True, exist_ok=True)
    evaluate = open_evaluation(config, output)
    with open_engine(config) as engine:
        engine.build(open_network(config))
        scores = evaluate(engine)
        if engine.is_main:
            print("  ".join(f"{name} {value:.4f}" for name, value in scores.items()), flush=True)
    return scores


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
    if data.packing_report:
        print("\n".join(data.packing_report.lines()), flush=True)
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
        InputError: there are no such weights or no file to score; or they name no labels and the
            recipe does not either, or both do and differ.
    """
    from models.weights.files import read_json
    from models.weights.model_configs import label_names

    if not (config.data.evaluation_file and config.train.initial_weights):
        raise InputError("data.train_file", "is null, and there is nothing to evaluate",
                         "name it, or data.evaluation_file and train.initial_weights")
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


def describe(config):
    """Print and return what a run would cost."""
    from training.run import describe_run

    if not config.data.train_file:
        return describe_run(take_labels_of_weights(config))
    config, data = open_training(config)
    if config.data.evaluation_file:
        open_evaluation(config, ".")
    return describe_run(config, data)


if __name__ == "__main__":
    sys.exit(run(main))
