"""What lies in the memory of each IPU of a replica, and what lies off the chip.

A pipeline of stages 0 to L is run forward and back: a micro batch enters stage s at cycle s and
comes back to it at cycle 2L - s, so activations that stage s keeps are held for 2(L - s) + 1
micro batches at once (PopART, transforms/pipeline.cpp).
"""

from models.cost import HALVES

KINDS = {
    "weights": "weights",
    "accumulators": "gradient accumulators",
    "optimizer": "the optimizer's state",
    "stash": "activations kept for the backward pass",
    "working": "activations and gradients of what is computed just now",
    "products": "temporaries of matrix products",
    "code": "program code, exchange code and buffers",
}

DEFAULT_PRODUCT_SHARE = 0.6
"""PopLibs' availableMemoryProportion where none is asked for"""
CODE_SHARE = 0.18
"""Of a tile's memory, assumed: no list is published. Up to 0.21 every published configuration
fits (benchmarks/planner.py)."""

_BYTES = {"fp32": 4, "fp16": 2}


def memory_per_ipu(config, placement, costs, ipu):
    """Bytes on each IPU of a replica.

    Args:
        config: a whole ``Config``.
        placement: of its parts.
        costs: from ``part_costs``.
        ipu: an ``Ipu``.

    Returns:
        A list with, for each IPU, a dict of bytes by ``KINDS`` and ``off_chip``.
    """
    return [_memory(config, placement, number, costs, ipu)
            for number in range(placement.ipus_per_replica)]


def stash_per_ipu(config, placement, costs, recompute):
    """Bytes of kept activations on each IPU, if they were recomputed or not."""
    return [sum(_stash(config, placement, stage, costs, recompute)
                for stage in placement.stages if stage.ipu == number)
            for number in range(placement.ipus_per_replica)]


def _memory(config, placement, number, costs, ipu):
    run = config.run
    stages = [stage for stage in placement.stages if stage.ipu == number]
    parts = [costs[name] for stage in stages for name in stage.parts]
    size = _BYTES[run.precision]
    parameters = sum(part.parameters for part in parts)
    state = _optimizer_bytes(config, parameters)
    return {
        "weights": size * parameters,
        "accumulators": size * parameters if config.accumulation_steps > 1 else 0,
        "optimizer": state if run.optimizer_state_on_chip else 0,
        "stash": sum(_stash(config, placement, stage, costs, run.recompute) for stage in stages),
        "working": max(_working(config, placement, stage, costs) for stage in stages),
        "products": _product_bytes(config, number, parts, ipu),
        "code": int(CODE_SHARE * ipu.memory),
        "off_chip": 0 if run.optimizer_state_on_chip else state,
    }


def _optimizer_bytes(config, parameters):
    """Both moments; replicated tensor sharding leaves each replica its share."""
    train, run = config.train, config.run
    moments = _BYTES[train.first_moment_precision] + _BYTES[train.second_moment_precision]
    return moments * parameters // (run.replicas if run.shard_optimizer else 1)


def recomputes(config, placement, stage):
    """Whether a stage is computed anew in the backward pass.

    In a pipeline the last stage goes back at once, so nothing of it is stashed or recomputed.
    """
    return config.run.recompute and (len(placement.stages) == 1
                                     or stage.number < len(placement.stages) - 1)


def _stash(config, placement, stage, costs, recompute):
    """Bytes that a stage holds between the forward and the backward pass of a micro batch."""
    last = len(placement.stages) - 1
    if stage.number == last > 0:
        return 0
    held = 2 * (last - stage.number) + 1
    hidden = config.data.sequence_length * config.model.hidden_size
    if recompute:
        # The stage's input (ids, where it is the embeddings') and each layer's output but the
        # stage's own, which the next one holds.
        layers = sum(name.endswith(HALVES[-1]) for name in stage.parts[:-1])
        numbers = hidden * (layers + ("embeddings" not in stage.parts))
    else:
        numbers = sum(costs[name].kept for name in stage.parts)
    return held * config.run.micro_batch_size * numbers * _BYTES[config.run.precision]


def _working(config, placement, stage, costs):
    """Bytes of activations in work: a layer that is recomputed, or all of the last stage, and
    the gradients of its widest activation."""
    kept = 0  # it is in the stash
    if recomputes(config, placement, stage):
        kept = max(_kept_between_layer_ends(stage.parts, costs))
    elif stage.number == len(placement.stages) - 1 > 0:
        kept = sum(costs[name].kept for name in stage.parts)
    numbers = kept + 2 * max(costs[name].widest for name in stage.parts)
    return numbers * config.run.micro_batch_size * _BYTES[config.run.precision]


def _kept_between_layer_ends(parts, costs):
    sums = [0]
    for name in parts:
        sums[-1] += costs[name].kept
        if name.endswith(HALVES[-1]):
            sums.append(0)
    return sums


def _product_bytes(config, number, parts, ipu):
    """Rearranged operands and result of the largest matrix product, within the share that
    ``run.available_memory_proportion`` grants."""
    run = config.run
    shares = run.available_memory_proportion or [DEFAULT_PRODUCT_SHARE]
    share = shares[number] if len(shares) > 1 else shares[0]
    needed = max(run.micro_batch_size * part.product_activations + part.product_weight
                 for part in parts)
    return min(int(share * ipu.memory), needed * _BYTES[run.precision])
