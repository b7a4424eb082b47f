"""The likeliest words in the place of [MASK]."""

import numpy as np
import paddle
import paddle.nn.functional as F

from configs.errors import InputError
from data.rows import plain_inputs
from inference.checkpoint import open_checkpoint
from models.tasks import build_for_pretraining

MASK = "[MASK]"


class MaskFiller:
    """A checkpoint with a masked-language-model head."""

    def __init__(self, directory):
        """
        Raises:
            InputError: the checkpoint cannot be read or has no such head.
        """
        self.network, self.tokenizer, report = open_checkpoint(
            directory, lambda config: build_for_pretraining(config, 1, with_pairs=False))
        if report.missing:
            raise InputError(directory, f"lacks {', '.join(report.missing)}",
                             "take a pretraining checkpoint")

    @paddle.no_grad()
    def fill(self, text, count=5):
        """Candidates for every [MASK] of a text.

        Args:
            text: with one or more ``[MASK]``.
            count: candidates for each.

        Returns:
            A list for each mask of ``(token, probability)``, likeliest first.

        Raises:
            InputError: no mask in the text, or more tokens than the model has positions.
        """
        tokens = self._tokens(text)
        inputs = plain_inputs([tokens], self.tokenizer.pad)
        stream = self.network.encode({name: paddle.to_tensor(array)
                                      for name, array in inputs.items()})
        masked = np.flatnonzero(np.array(tokens) == self.tokenizer.mask)
        logits = self.network.heads.masked_lm(stream["hidden"][0].index_select(
            paddle.to_tensor(masked)))
        # Rows beyond the vocabulary are padding of the table, not words.
        probabilities = F.softmax(logits[:, :len(self.tokenizer)]).numpy()
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
        return [[(self.tokenizer.tokens[token], float(row[token])) for token in chosen]
                for row, chosen in zip(probabilities, best)]

    def _tokens(self, text):
        parts = self.tokenizer.encode(text.split(MASK))
        if len(parts) == 1:
            raise InputError("--text", f"no {MASK} in it", f"write {MASK} for the word to guess")
        tokens = [self.tokenizer.cls, *parts[0]]
        for part in parts[1:]:
            tokens += [self.tokenizer.mask, *part]
        tokens.append(self.tokenizer.sep)
        positions = self.network.embeddings.max_positions
        if len(tokens) > positions:
            raise InputError("--text", f"{len(tokens)} tokens, but the model has {positions} "
                             "positions", "shorten the text")
        return tokens
