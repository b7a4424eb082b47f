"""Networks in tests: what they are fed, weights without any default, their gradients."""

import zlib

import numpy as np
import paddle


def make_inputs(input_ids, attention_mask, token_type_ids):
    """Ordinary rows, the tokens in order and padding behind them, as a network takes them.

    Args:
        input_ids, attention_mask, token_type_ids: int arrays ``[batch, sequence]``; the mask
            is 1 for a token and 0 for padding.
    """
    positions = np.tile(np.arange(input_ids.shape[1]), (len(input_ids), 1))
    arrays = {"input_ids": input_ids, "token_type_ids": token_type_ids,
              "position_ids": positions, "sequence_id": attention_mask}
    return {name: paddle.to_tensor(array, "int32") for name, array in arrays.items()}


def random_rows(vocab_size, batch, length, seed=0, type_vocab_size=2):
    """Random input ids (none 0), attention mask and token types; later rows are shorter."""
    random = np.random.default_rng(seed)
    mask = np.ones([batch, length], "int64")
    for row in range(1, batch):
        mask[row, length - length * row // (2 * batch) - 1:] = 0
    ids = random.integers(1, vocab_size, [batch, length]) * mask
    types = np.sort(random.integers(0, type_vocab_size, [batch, length])) * mask
    return ids, mask, types


def randomise(network, seed, scale=0.05):
    """Random values for all parameters, biases and layer norms too, so that none can hide."""
    for name, parameter in network.named_parameters():
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        value = random.normal(1.0 if name.endswith("norm.weight") else 0.0, scale,
                              parameter.shape)
        parameter.set_value(value.astype("float32"))


def tensors(arrays):
    """Arrays by name as tensors."""
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def sums_and_gradients(network, batch):
    """What the heads' ``loss`` sums of a batch, as floats, and its gradients."""
    sums = network.heads.loss(network(tensors(batch.inputs)), tensors(batch.labels))
    sums["loss"].backward()
    return {name: float(value) for name, value in sums.items()}, gradients(network)


def gradients(network):
    """Parameter names to the arrays of their gradients, which are cleared."""
    result = {name: parameter.grad.numpy() for name, parameter in network.named_parameters()
              if parameter.grad is not None}
    network.clear_gradients()
    return result
