"""What each part of a network asks of an IPU, for one row, from the config alone."""

from typing import NamedTuple

from models.cost import forward_flops_by_part, parameters_by_part


class PartCost(NamedTuple):
    """Costs of a part; activations are counted in numbers a row, not in bytes."""

    parameters: int
    flops: int
    """Of the forward pass"""
    kept: int
    """Numbers that the backward pass needs, the part's input left out"""
    widest: int
    """Numbers in the largest activation"""
    product_activations: int
    """Numbers of a row in the operand and the result of the largest matrix product"""
    product_weight: int
    """Numbers in that product's weight"""


def part_costs(config):
    """The costs of every part by name.

    Args:
        config: a whole ``Config``.
    """
    model, data = config.model, config.data
    with_masked_lm = data.max_predictions > 0
    with_pairs = with_masked_lm and data.pair_objective != "none"
    parameters = parameters_by_part(model, with_pairs, with_masked_lm)
    flops = forward_flops_by_part(model, data.sequence_length, data.max_predictions)
    if not with_masked_lm:  # start and end scores of each token
        flops["heads"] = 2 * data.sequence_length * model.hidden_size * 2
    shapes = _shapes(config)
    return {name: PartCost(parameters[name], flops[name], *shapes[name.rpartition(".")[2]])
            for name in parameters}


def _shapes(config):
    """``kept``, ``widest``, ``product_activations`` and ``product_weight`` of each kind of part."""
    model, data = config.model, config.data
    hidden, inner, length = model.hidden_size, model.intermediate_size, data.sequence_length
    pieces = config.run.embedding_serialization_factor
    scores = model.num_attention_heads * length * length
    copies = 1 + (model.attention_probs_dropout_prob > 0)
    logits = data.max_predictions * model.vocab_size // pieces
    # Transform, activation and norm; logits and their softmax.
    heads = (data.max_predictions * (3 * hidden + 2 * model.vocab_size), logits,
             data.max_predictions * hidden + logits, hidden * model.vocab_size // pieces)
    if not data.max_predictions:
        heads = (2 * length, 2 * length, length * (hidden + 2), 2 * hidden)
    return {
        # Sum and norm.
        "embeddings": (2 * length * hidden, length * hidden, 0, 0),
        # Query, key, value, context, sum and norm; the probabilities before and after dropout.
        "attention": (6 * length * hidden + copies * scores, max(scores, length * hidden),
                      max(2 * length * hidden, scores + 2 * length * hidden), hidden * hidden),
        # Before and after the activation, sum and norm.
        "feed_forward": (2 * length * (inner + hidden), length * inner,
                         length * (hidden + inner), hidden * inner),
        "pooler": (hidden, hidden, 2 * hidden, hidden * hidden),
        "heads": heads,
    }
