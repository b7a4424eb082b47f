"""ERNIE: BERT's blocks, with task-type embeddings where versions 2.0 and 3.0 have them."""

from paddle import nn

from models.bert import Bert
from models.embeddings import Embeddings


class ErnieEmbeddings(Embeddings):
    """BERT's sum with a vector for the pretraining task added (Sun et al. 2019, section 3)."""

    def __init__(self, config, sequences_per_row=1):
        super().__init__(config, sequences_per_row)
        self.task_type_embeddings = None
        if config.task_type_vocab_size:
            self.task_type_embeddings = nn.Embedding(config.task_type_vocab_size,
                                                     config.hidden_size)

    def sum_of_embeddings(self, inputs):
        """``[batch, sequence, hidden]`` before layer norm."""
        hidden = super().sum_of_embeddings(inputs)
        if self.task_type_embeddings is None:
            return hidden
        # Every task of this project is task 0, so one vector serves all tokens.
        return hidden + self.task_type_embeddings.weight[0]


class Ernie(Bert):
    """ERNIE 1.0 differs from BERT in its config alone, 2.0 and 3.0 in their first block too."""

    embeddings_type = ErnieEmbeddings
