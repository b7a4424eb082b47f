"""What a network costs, from its config: parameters come from the network itself."""


def forward_flops(config, sequence_length, max_predictions):
    """Floating-point operations of the matrix products of one row's forward pass.

    A product of ``[m, k]`` and ``[k, n]`` counts ``2 m k n``; elementwise work is left out,
    as in Chowdhery et al. 2022 (PaLM), appendix B.
    """
    hidden, length = config.hidden_size, sequence_length
    projections = 2 * length * 4 * hidden * hidden
    attention = 2 * 2 * length * length * hidden
    feed_forward = 2 * length * 2 * hidden * config.intermediate_size
    layers = config.num_hidden_layers * (projections + attention + feed_forward)
    masked_lm = 2 * max_predictions * hidden * (hidden + config.vocab_size)
    pooler = 2 * hidden * hidden
    return layers + masked_lm + pooler


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
