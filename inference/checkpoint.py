"""A checkpoint folder, ours or Hugging Face's, as a network and its tokenizer."""

from configs.errors import InputError
from configs.schema import ModelConfig
from data.tokenizer import open_tokenizer
from models.initialise import initialise
from models.weights.huggingface import read_pretrained
from models.weights.load import load_weights


def open_checkpoint(directory, build):
    """Load a folder for inference.

    Args:
        directory: with weights, ``config.json`` and ``vocab.txt``.
        build: called with the ``ModelConfig``, returns the network.

    Returns:
        The network in evaluation mode, its tokenizer, and the load ``Report``.

    Raises:
        InputError: a file is missing or damaged, or the weights do not fit.
    """
    arrays, values = read_pretrained(directory)
    for key, file in (("vocab_size", "config.json"), ("vocabulary", "vocab.txt")):
        if key not in values:
            raise InputError(directory, f"has no {file}", "take a whole checkpoint folder")
    config = ModelConfig(**values)
    config.check()
    network = build(config)
    initialise(network, 0, config.initializer_range)
    report = load_weights(network, arrays)
    network.eval()
    return network, open_tokenizer(config), report
