#!/usr/bin/env python3
"""Pretrain BERT or ERNIE from prepared text, as a YAML recipe says."""

import sys
from pathlib import Path

from configs.command_line import build_parser, run
from configs.errors import InputError
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
    startup.prepare(config.run.threads)
    return pretrain(config, output, arguments.resume, arguments.dry_run)


def pretrain(config, output, resume=False, dry_run=False):
    """Train ``config`` into the folder ``output``; see the README for what lies there."""
    from data.batch import word_frequency_loss
    from data.open import open_pretraining_data
    from data.prefetch import PrefetchedData
    from engines.open import open_engine
    from models.cost import training_flops
    from training.loop import Trainer
    from training.optimizers import build_optimizer
    from training.run_folder import RunFolder

    workers = 0 if dry_run else config.run.data_workers
    data = PrefetchedData(config, "train", workers) if workers else open_pretraining_data(config)
    config = config.with_steps(len(data))
    evaluation = read_evaluation(config)
    folder = RunFolder(output)
    checkpoint = None if dry_run else folder.find_checkpoint(config, resume)
    network = (build_network(config, checkpoint, whole=True) if checkpoint
               else build_network(config, config.train.initial_weights))
    with open_engine(config) as engine:
        engine.build(network, lambda network: build_optimizer(config.train, network))
        if engine.is_main:
            print("\n".join(engine.describe()), flush=True)
        if dry_run:
            return describe_run(config, network, data)
        if engine.is_main:
            folder.open(config, checkpoint)

        def evaluate():
            return {**engine.evaluate(evaluation),
                    "word_frequency_loss": word_frequency_loss(data.token_counts, evaluation)}

        trainer = Trainer(config, engine, data, evaluate if evaluation else None, folder,
                          training_flops(config.model, config.data.sequence_length,
                                         config.data.max_predictions))
        if checkpoint:
            trainer.resume(checkpoint)
        try:
            return trainer.run()
        finally:
            if workers:
                data.close()


def read_evaluation(config):
    """The held-out rows of every evaluation, or None where no text is held out."""
    from data.open import open_pretraining_data

    if not config.data.held_out_share:
        return None
    return open_pretraining_data(config, "held_out").batch(0, config.train.evaluation_rows)


def build_network(config, initial_weights=None, whole=False):
    """The network of a recipe, with its first weights or those of a checkpoint folder.

    Args:
        config: the resolved ``Config``.
        initial_weights: the folder; None starts anew.
        whole: refuse a folder that lacks a parameter, as a head, or has one more.
    """
    from data.tokenizer import check_vocabulary
    from models.initialise import initialise
    from models.tasks import build_for_pretraining
    from models.weights.huggingface import read_pretrained
    from models.weights.load import check_unseen, load_weights

    network = build_for_pretraining(config.model, config.data.max_predictions,
                                    config.data.sequences_per_row,
                                    with_pairs=config.data.pair_objective != "none")
    initialise(network, config.train.seed, config.model.initializer_range)
    if initial_weights:
        arrays, values = read_pretrained(initial_weights)
        check_unseen(values, config.model, initial_weights)
        check_vocabulary(values.get("vocabulary"), config.model.vocabulary)
        report = load_weights(network, arrays)
        if whole and report.missing + report.unexpected:
            raise InputError(initial_weights, "is a checkpoint of another network: "
                             + "; ".join(report.lines()[1:]), "take a checkpoint of this recipe")
        print("\n".join(report.lines()), flush=True)
    return network


def describe_run(config, network, data):
    """Print and return what a run would cost."""
    from models.cost import training_flops, training_memory
    from training.loop import count_parameters

    batch, parameters = data.batch(0, config.run.micro_batch_size), count_parameters(network)
    memory = training_memory(config.model, parameters, config.run.micro_batch_size,
                             config.data.sequence_length, config.data.max_predictions)
    description = {
        "parameters": parameters,
        "flops_per_sequence": training_flops(config.model, config.data.sequence_length,
                                             config.data.max_predictions),
        "memory_bytes": memory,
        "rows_per_epoch": len(data),
        "epochs": config.train.steps * config.train.global_batch_size / len(data),
        "tokens_per_row": batch.token_count / len(batch),
    }
    for name, block in network.blocks():
        own = sum(parameter.size for parameter in block.parameters())
        print(f"  {name}: {own:,} parameters")
    for key, value in description.items():
        print(f"{key}: {value}")
    report = getattr(data, "packing_report", None)
    print("\n".join(report.lines()) if report else "packing: none, a sequence a row")
    return description


if __name__ == "__main__":
    sys.exit(run(main))
