"""Random weights of a model as a Hugging Face folder, for measurements of speed."""

import sys

from configs.load import load_section
from engines import startup

MODELS = {"bert_base": "configs/models/bert_base_uncased.yaml",
          "tiny": "configs/models/bert_tiny_uncased.yaml"}


def main(name, folder):
    """Write the model ``name`` to ``folder``."""
    startup.prepare()
    from models.initialise import initialise
    from models.tasks import build_encoder
    from models.weights.huggingface import save_pretrained

    config = load_section("model", MODELS[name])
    network = build_encoder(config)
    initialise(network, 0, config.initializer_range)
    save_pretrained(folder, network, config, config.vocabulary)


if __name__ == "__main__":
    main(*sys.argv[1:])
