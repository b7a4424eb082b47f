"""Small checkpoints of every head, as the weights of a run are saved."""

from pathlib import Path

import numpy as np

from configs.schema import ModelConfig
from models import tasks
from models.initialise import initialise
from models.weights.huggingface import save_pretrained

VOCABULARIES = {"bert": "data/vocabularies/bert_base_uncased.txt",
                "ernie": "data/vocabularies/ernie_1.0_zh.txt"}
BUILDERS = {
    "fill_mask": lambda config: tasks.build_for_pretraining(config, 4),
    "answer": tasks.build_for_question_answering,
    "classify": lambda config: tasks.build_for_sequence_classification(config, 3),
    "embed": lambda config: tasks.build_encoder(config),
}
# Tasks that tell something of every token.
BUILDERS_FOR_TOKENS = {
    "label_words": lambda config: tasks.build_for_token_classification(config, 3),
    "encode": lambda config: tasks.build_encoder(config),
}


def tiny_config(architecture="bert", **changes):
    vocabulary = VOCABULARIES[architecture]
    size = len(Path(vocabulary).read_bytes().rstrip(b"\n").split(b"\n"))
    values = dict(architecture=architecture, vocabulary=vocabulary, vocab_size=size + 2,
                  hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                  intermediate_size=64, max_position_embeddings=96, initializer_range=0.2,
                  task_type_vocab_size=3 if architecture == "ernie" else 0)
    return ModelConfig(**{**values, **changes})


def save_checkpoint(folder, task, architecture="bert", labels=("bad", "fine", "good"), **changes):
    """Write a checkpoint of random weights, large enough that answers differ."""
    config = tiny_config(architecture, **changes)
    network = {**BUILDERS, **BUILDERS_FOR_TOKENS}[task](config)
    initialise(network, 1, config.initializer_range)
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):  # which start as 0, and would not be seen to be lost
            random = np.random.default_rng(len(name))
            parameter.set_value(random.normal(0, 0.1, parameter.shape).astype("float32"))
    if task in ("classify", "label_words"):
        network.heads.label_names = list(labels)
    save_pretrained(folder, network, config, config.vocabulary)
    return str(folder)
