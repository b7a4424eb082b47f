#!/usr/bin/env python3
"""Pretrain BERT or ERNIE from prepared text, as a YAML recipe says."""

import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.load import load_config
from engines import placement, startup


def main(argv=None):
    """Pretrain (or, with --dry-run, describe the run) and return the result."""
    parser = build_parser(__doc__)
    parser.add_argument("--resume", action="store_true",
                        help="go on from the newest whole checkpoint in --output, if there is one")
    parser.add_argument("--dry-run", action="store_true",
                        help="build everything, take one batch, describe the run and stop")
    arguments = parser.parse_args(argv)
    if not arguments.config:
        parser.error("--config is required, e.g. configs/pretrain/quickstart.yaml")
    config = load_config(arguments.config, arguments.overrides, placement.resolve,
                         task="pretrain")
    output = Path(arguments.output or Path("runs") / Path(arguments.config).stem)
    startup.prepare(config.run.threads, config.run.on_ipus)
    return pretrain(config, output, arguments.resume, arguments.dry_run)


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
