"""A batch that gave no finite number, kept with its weights, and played again.

``python -m training.replay RUN/not_finite/step_NNNNNNNN`` computes it as the run did, on one
process, and tells which parts of the network put out what is not finite.
"""

import sys
from pathlib import Path

import numpy as np

from configs.command_line import Parser, run
from configs.errors import InputError
from configs.load import load_config, to_yaml


def save_batch(directory, config, network, batch, step):
    """Write batch, weights and config into a folder.

    Args:
        directory: to write into.
        config: the resolved ``Config``.
        network: with the weights that the batch was computed with.
        batch: the global batch.
        step: its number, which seeds dropout.
    """
    from models.weights.huggingface import save_pretrained

    directory = Path(directory)
    save_pretrained(directory, network, config.model, config.model.vocabulary)
    (directory / "config.yaml").write_text(to_yaml(config), "utf-8")
    np.savez(directory / "batch.npz", step=step, **batch.inputs,
             **{f"label.{name}": array for name, array in batch.labels.items()})


def read_batch(directory):
    """The batch of a folder that ``save_batch`` wrote, and its step."""
    from data.batch import Batch

    try:
        with np.load(Path(directory) / "batch.npz") as file:
            arrays = dict(file)
    except (OSError, ValueError):
        raise InputError(Path(directory) / "batch.npz", "is missing or damaged",
                         "name a folder under not_finite/ of a run") from None
    labels = {name[len("label."):]: array for name, array in arrays.items()
              if name.startswith("label.")}
    return Batch(**{name: arrays[name] for name in Batch.INPUTS}, labels=labels), \
        int(arrays["step"])


def replay(directory):
    """Compute a saved batch forward and backward.

    Returns:
        dict with ``loss`` and ``gradient_norm`` as floats, and lists of names: ``parts``
        whose output, ``gradients`` and ``parameters`` whose numbers are not all finite.
    """
    from engines.local import LocalEngine
    from training.optimizers import gradient_norm
    from training.run import open_network

    batch, step = read_batch(directory)
    config = load_config(Path(directory) / "config.yaml")
    network = open_network(config, directory)
    engine = LocalEngine(config)
    engine.build(network)
    with _Watch(network) as watch:
        loss = engine.accumulate(batch, step)["loss"]
    named = dict(network.named_parameters())
    return {"step": step, "loss": loss, "gradient_norm": gradient_norm(named.values()),
            "parts": watch.names,
            "gradients": [name for name, p in named.items()
                          if p.grad is not None and not _is_finite(p.grad)],
            "parameters": [name for name, p in named.items() if not _is_finite(p)]}


class _Watch:
    """While entered, notes the layers of a network that put out what is not finite."""

    def __init__(self, network):
        self.network, self.names = network, []

    def __enter__(self):
        self._hooks = [layer.register_forward_post_hook(self._note(name))
                       for name, layer in self.network.named_sublayers()
                       if not list(layer.children())]
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()

    def _note(self, name):
        def hook(layer, inputs, output):
            if name not in self.names and not _is_finite(output):
                self.names.append(name)
        return hook


def _is_finite(tensor):
    return bool(np.isfinite(tensor.numpy()).all())


def main(argv=None):
    """Replay a folder and print what was found."""
    from engines import startup

    parser = Parser(description=__doc__)
    parser.add_argument("folder", help="RUN/not_finite/step_NNNNNNNN")
    arguments = parser.parse_args(argv)
    startup.prepare()
    result = replay(arguments.folder)
    for key, value in result.items():
        print(f"{key}: {', '.join(value) or 'all finite' if isinstance(value, list) else value}")
    return result


if __name__ == "__main__":
    sys.exit(run(main))
