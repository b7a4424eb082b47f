"""A network for each task: an encoder with the head that the task needs."""

from models.bert import Bert
from models.ernie import Ernie
from models.heads import (MultipleChoiceHead, PretrainingHeads, QuestionAnsweringHead,
                          SequenceClassificationHead, TokenClassificationHead)

ARCHITECTURES = {"bert": Bert, "ernie": Ernie}


def build_for_recipe(config):
    """The network of a whole resolved ``Config``, by its task."""
    data = config.data
    if data.task == "squad":
        return build_for_question_answering(config.model, data.sequences_per_row)
    if data.task == "classify":
        return build_for_classification(config.model, data.objective, data.labels,
                                        data.sequences_per_row)
    return build_for_pretraining(config.model, data.max_predictions, data.sequences_per_row,
                                 with_pairs=data.pair_objective != "none")


def build_encoder(config, **layout):
    """A network without heads; ``layout`` as in ``Bert``."""
    return ARCHITECTURES[config.architecture](config, **layout)


def build_for_pretraining(config, max_predictions, sequences_per_row=1, with_pairs=True):
    """Masked language model with (NSP or SOP) or without a pair objective.

    Args:
        config: the ``model`` section.
        max_predictions: the first slots of a row, which hold the masked tokens.
        sequences_per_row: packed sequences a row.
        with_pairs: whether there is a pair objective.
    """
    network = build_encoder(config, first_slot=max_predictions,
                            sequences_per_row=sequences_per_row, with_pooler=with_pairs)
    network.heads = PretrainingHeads(config, network.embeddings.word_embeddings,
                                     max_predictions, with_pairs)
    return network


def build_for_question_answering(config, sequences_per_row=1):
    """Start and end of an answer in each of a row's windows."""
    network = build_encoder(config, sequences_per_row=sequences_per_row, with_pooler=False)
    network.heads = QuestionAnsweringHead(config)
    return network


def build_for_classification(config, objective, labels, sequences_per_row=1):
    """The network of an objective.

    Args:
        config: the ``model`` section.
        objective: ``classification``, ``regression`` or ``tokens``.
        labels: their names; none in a regression.
        sequences_per_row: packed sequences a row.
    """
    if objective == "tokens":
        network = build_for_token_classification(config, len(labels), sequences_per_row)
    else:
        network = build_for_sequence_classification(config, len(labels) or 1, sequences_per_row)
    network.heads.label_names = list(labels) or None
    return network


def build_for_sequence_classification(config, num_labels, sequences_per_row=1):
    """A label (or, with one, a number) for each sequence."""
    network = build_encoder(config, sequences_per_row=sequences_per_row)
    network.heads = SequenceClassificationHead(config, num_labels)
    return network


def build_for_token_classification(config, num_labels, sequences_per_row=1):
    """A label for each token."""
    network = build_encoder(config, sequences_per_row=sequences_per_row, with_pooler=False)
    network.heads = TokenClassificationHead(config, num_labels)
    return network


def build_for_multiple_choice(config, num_choices):
    """One of several candidates."""
    network = build_encoder(config)
    network.heads = MultipleChoiceHead(config, num_choices)
    return network
