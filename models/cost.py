"""What a network costs, part by part, from its config alone."""

HALVES = ("attention", "feed_forward")


def part_names(config, with_pooler=True):
    """Names of the parts of a network in order, as ``Bert.parts`` gives them.

    Args:
        config: the ``model`` section.
        with_pooler: whether the task has a vector for each sequence.
    """
    layers = [f"layer.{number}.{half}" for number in range(config.num_hidden_layers)
              for half in HALVES]
    return ("embeddings", *layers, *(["pooler"] if with_pooler else []), "heads")


def parameters_by_part(config, with_pairs=True, with_masked_lm=True):
    """Numbers in the parameters of each part of a network, by name.

    Args:
        config: the ``model`` section.
        with_pairs: whether the heads have a pair objective.
        with_masked_lm: whether they predict masked tokens; without, they are two scores a
            token, as in reading comprehension.

    The word embedding counts in ``embeddings``; the heads use the same.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    norm, square = 2 * hidden, hidden * hidden + hidden
    rows = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size
            + config.task_type_vocab_size)
    masked_lm, two_scores = square + norm + config.vocab_size, 2 * hidden + 2
    costs = {"attention": 4 * square + norm,
             "feed_forward": 2 * hidden * inner + inner + hidden + norm,
             "embeddings": rows * hidden + norm, "pooler": square,
             "heads": (masked_lm * with_masked_lm
                       + two_scores * (with_pairs or not with_masked_lm))}
    return {name: costs[name.rpartition(".")[2]] for name in part_names(config)}


def forward_flops_by_part(config, sequence_length, max_predictions):
    """Floating-point operations of the matrix products of one row's forward pass, by part.

    A product of ``[m, k]`` and ``[k, n]`` counts ``2 m k n``; elementwise work is left out,
    as in Chowdhery et al. 2022 (PaLM), appendix B.
    """
    hidden, length = config.hidden_size, sequence_length
    costs = {"attention": 2 * length * 4 * hidden * hidden + 2 * 2 * length * length * hidden,
             "feed_forward": 2 * length * 2 * hidden * config.intermediate_size,
             "embeddings": 0, "pooler": 2 * hidden * hidden,
             "heads": 2 * max_predictions * hidden * (hidden + config.vocab_size)}
    return {name: costs[name.rpartition(".")[2]] for name in part_names(config)}


def forward_flops(config, sequence_length, max_predictions):
    """The sum of ``forward_flops_by_part``."""
    return sum(forward_flops_by_part(config, sequence_length, max_predictions).values())


def training_flops(config, sequence_length, max_predictions):
    """Forward and backward of one row; the backward pass takes two products for each."""
    return 3 * forward_flops(config, sequence_length, max_predictions)


def training_memory(config, parameters, micro_batch_size, sequence_length, max_predictions):
    """Estimated bytes of training in float32.

    Args:
        config: the ``model`` section.
        parameters: numbers in all parameters.
        micro_batch_size: rows computed at once.
        sequence_length, max_predictions: slots of a row, and those that the head reads.

    Returns:
        dict of bytes: ``weights_and_optimizer`` (weight, gradient and two moments) and
        ``activations`` (what a forward pass keeps for the backward pass).
    """
    tokens = micro_batch_size * sequence_length
    # Kept of each layer: inputs and outputs of its products, norms, dropouts and residuals,
    # and the attention probabilities before and after dropout.
    per_token = 20 * config.hidden_size + 2 * config.intermediate_size
    per_token += 2 * config.num_attention_heads * sequence_length
    layers = config.num_hidden_layers * tokens * per_token
    # Logits and their softmax.
    head = 2 * micro_batch_size * max_predictions * config.vocab_size
    return {"weights_and_optimizer": 16 * parameters, "activations": 4 * (layers + head)}
