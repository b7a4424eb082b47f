"""Sentence vectors: the mean over a text's tokens, normalised (Reimers and Gurevych 2019)."""

import numpy as np
import paddle

from data.rows import plain_inputs


@paddle.no_grad()
def embed(network, tokenizer, texts, max_tokens=256, batch_size=32):
    """Unit vectors of texts.

    Args:
        network: from ``build_encoder``, in evaluation mode.
        tokenizer: its tokenizer.
        texts: list of strings.
        max_tokens: longer texts are cut, special tokens included.
        batch_size: texts computed at once; texts of like length go together.

    Returns:
        float32 ``[texts, hidden]``.
    """
    sequences = [[tokenizer.cls, *ids[:max_tokens - 2], tokenizer.sep]
                 for ids in tokenizer.encode(texts)]
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
    vectors = [None] * len(sequences)
    for start in range(0, len(order), batch_size):
        chosen = order[start:start + batch_size]
        for number, vector in zip(chosen, _embed_batch(network, tokenizer,
                                                       [sequences[i] for i in chosen])):
            vectors[number] = vector
    return np.array(vectors, np.float32)


def _embed_batch(network, tokenizer, sequences):
    inputs = plain_inputs(sequences, tokenizer.pad)
    hidden = network.encode({name: paddle.to_tensor(array) for name, array in inputs.items()})
    is_token = inputs["sequence_id"][:, :, None]
    mean = (hidden["hidden"].numpy() * is_token).sum(axis=1) / is_token.sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)
