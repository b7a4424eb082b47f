#!/usr/bin/env python3
"""Pretrain BERT or ERNIE from prepared text, as a YAML recipe says."""

import sys

from configs.command_line import run
from training.start import read_command_line


def main(argv=None):
    """Pretrain (or, with --dry-run, describe the run) and return the result."""
    arguments = read_command_line(__doc__, "pretrain", argv)
    return pretrain(arguments.config, arguments.output, arguments.resume, arguments.dry_run)


def pretrain(config, output, resume=False, dry_run=False):
    """Train ``config`` into the folder ``output``; see the README for what lies there."""
    from data.batch import word_frequency_loss
    from data.open import open_pretraining_data
    from data.prefetch import PrefetchedData
    from training.run import describe_run, train

    workers = 0 if dry_run else config.run.data_workers
    data = PrefetchedData(config, "train", workers) if workers else open_pretraining_data(config)
    config = config.with_steps(len(data))
    if dry_run:
        return describe_run(config, data, output)
    evaluation = read_evaluation(config)

    def evaluate(engine):
        return {**engine.evaluate(evaluation),
                "word_frequency_loss": word_frequency_loss(data.token_counts, evaluation)}

    try:
        return train(config, output, data, evaluate if evaluation else None, resume)
    finally:
        if workers:
            data.close()


def read_evaluation(config):
    """The held-out rows of every evaluation, or None where no text is held out."""
    from data.open import open_pretraining_data

    if not config.data.held_out_share:
        return None
    return open_pretraining_data(config, "held_out").batch(0, config.train.evaluation_rows)


if __name__ == "__main__":
    sys.exit(run(main))
