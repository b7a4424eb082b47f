"""What every training entry point shares: from a recipe and its rows to a run folder."""

from pathlib import Path

from configs.errors import InputError
from configs.files import write_json
from data.tokenizer import check_vocabulary
from engines.open import open_engine
from models.cost import training_flops, training_memory
from models.initialise import initialise
from models.tasks import build_for_recipe
from models.weights.files import check_case
from models.weights.huggingface import read_pretrained
from models.weights.load import check_unseen, load_weights
from training.loop import Trainer, count_parameters
from training.metrics import show_metrics
from training.optimizers import build_optimizer
from training.run_folder import RunFolder


def train(config, output, data, evaluate=None, resume=False, better=min, measure="loss"):
    """Train into a run folder, from the start or from its newest checkpoint.

    Args:
        config: the resolved ``Config``.
        output: the folder.
        data: has ``batch(consumed, count)``.
        evaluate: called with the engine, returns a dict of floats; or None.
        resume: go on from the newest whole checkpoint, if there is one.
        better, measure: which evaluation is the best: ``min`` or ``max`` of which value.

    Returns:
        The result, as ``Trainer.run``, of the main process in every one.
    """
    folder = RunFolder(output)
    checkpoint = folder.find_checkpoint(config, resume)
    network = open_network(config, checkpoint)
    with open_engine(config) as engine:
        engine.build(network, lambda network: build_optimizer(config.train, network))
        if engine.is_main:
            print("\n".join(engine.describe()), flush=True)
            folder.open(config, checkpoint)
        trainer = Trainer(config, engine, data, evaluate and (lambda: evaluate(engine)), folder,
                          row_flops(config), better, measure)
        if checkpoint:
            trainer.resume(checkpoint)
        return engine.share(trainer.run())


def evaluate_weights(config, output, evaluate):
    """Score ``train.initial_weights`` as they are.

    Args:
        config: the resolved ``Config``.
        output: folder that ``evaluate`` writes to; made here.
        evaluate: called with the engine, returns a dict of floats.

    Returns:
        The scores, which ``scores.json`` there holds too.
    """
    with open_engine(config) as engine:
        engine.build(open_network(config))
        Path(output).mkdir(parents=True, exist_ok=True)
        scores = evaluate(engine)
        if engine.is_main:
            print("  ".join(show_metrics(scores)), flush=True)
            write_json(Path(output) / "scores.json", scores)
    return scores


def open_network(config, checkpoint=None):
    """The network of a recipe, with its first weights or those of a checkpoint of it.

    Args:
        config: the resolved ``Config``; ``train.initial_weights`` may lack heads and pooler.
        checkpoint: of this very recipe, which lacks nothing and has no more; or None.

    Raises:
        InputError: the weights do not fit, or were trained with another vocabulary.
    """
    network = build_for_recipe(config)
    initialise(network, config.train.seed, config.model.initializer_range)
    place = checkpoint or config.train.initial_weights
    if not place:
        return network
    arrays, values = read_pretrained(place)
    check_unseen(values, config.model, place)
    check_vocabulary(values.get("vocabulary"), config.model.vocabulary)
    check_case(place, config.model)
    report = load_weights(network, arrays)
    if checkpoint and report.missing + report.unexpected:
        raise InputError(place, "is a checkpoint of another network: "
                         + "; ".join(report.lines()[1:]), "take a checkpoint of this recipe")
    print("\n".join(report.lines()), flush=True)
    return network


def describe_run(config, data=None, output=None):
    """Build a recipe's network on its engine, print and return what a run would cost.

    Args:
        config: the resolved ``Config``.
        data: the training rows, of which one micro batch is made; None where nothing is trained.
        output: folder for what the engine has to show of it; None shows nothing.
    """
    network, lines = open_network(config), []
    with open_engine(config, is_dry=True) as engine:
        engine.build(network, lambda network: build_optimizer(config.train, network))
        print("\n".join(engine.describe()), flush=True)
        if data is not None and output is not None:
            lines = engine.check(data.batch(0, config.run.micro_batch_size), output)
    parameters = count_parameters(network)
    description = {
        "parameters": parameters,
        "flops_per_sequence": row_flops(config),
        "memory_bytes": training_memory(config.model, parameters, config.run.micro_batch_size,
                                        config.data.sequence_length, config.data.max_predictions),
    }
    if data is not None:
        batch = data.batch(0, config.run.micro_batch_size)
        description.update({
            "rows_per_epoch": len(data),
            "epochs": config.train.steps * config.train.global_batch_size / len(data),
            "tokens_per_row": batch.token_count / len(batch)})
    for name, block in network.blocks():
        own = sum(parameter.size for parameter in block.parameters())
        print(f"  {name}: {own:,} parameters")
    for key, value in description.items():
        print(f"{key}: {value}")
    for line in lines:
        print(line)
    report = getattr(data, "packing_report", None)
    print("\n".join(report.lines()) if report else "packing: none, a sequence a row")
    return description


def row_flops(config):
    """Floating-point operations of a row, forward and backward."""
    return training_flops(config.model, config.data.sequence_length, config.data.max_predictions)
