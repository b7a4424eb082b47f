"""Time of an update with LAMB against one with AdamW, on the parameters of a whole model.

``python -m benchmarks.optimizers --output FILE`` takes BERT-Base's parameters with random
gradients and runs the project's AdamW and LAMB and Paddle's own LAMB in turn, in one process.
"""

import statistics
import sys
import time

import numpy as np

from configs.command_line import Parser, run, tell
from configs.load import load_config
from engines import startup

RECIPE = "configs/pretrain/bert_base_128.yaml"


def main(argv=None):
    """Measure and return the figures."""
    parser = Parser(prog="python -m benchmarks.optimizers", description=__doc__)
    parser.add_argument("--output", metavar="FILE", help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=7, help="updates of each (default 7)")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                        dest="overrides", help="change the recipe, e.g. its model")
    arguments = parser.parse_args(argv)
    startup.prepare()
    result = measure(arguments.overrides, arguments.rounds)
    tell(result, arguments.output)
    return result


def measure(overrides, rounds):
    """Median seconds of an update, the optimizers taking turns in every round."""
    updates = {name: make(overrides) for name, make in OPTIMIZERS.items()}
    seconds = {name: [] for name in updates}
    for name, update in updates.items():
        update()  # the first one makes the moments
    for _ in range(rounds):
        for name, update in updates.items():
            seconds[name].append(update())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"seconds": medians, "rounds": rounds,
            "lamb_over_adamw": medians["lamb"] / medians["adamw"],
            "paddle_lamb_over_adamw": medians["paddle_lamb"] / medians["adamw"]}


def make_parameters(overrides):
    """The model's parameters with their first weights, and a gradient for each."""
    import paddle

    from models.tasks import build_for_pretraining

    config = load_config(RECIPE, overrides)
    network = build_for_pretraining(config.model, config.data.max_predictions)
    random = np.random.default_rng(0)
    gradients = [paddle.to_tensor(random.normal(0, 1e-3, p.shape).astype("float32"))
                 for p in network.parameters()]
    return network, gradients


def set_gradients(network, gradients):
    """Give each parameter its gradient, as a backward pass does."""
    for parameter, gradient in zip(network.parameters(), gradients):
        parameter.grad = gradient.clone()


def make_ours(kind):
    """The project's optimizer as a function that makes an update and returns its seconds."""
    def make(overrides):
        from training.optimizers import build_optimizer

        network, gradients = make_parameters(overrides)
        train = load_config(RECIPE, [*overrides, f"train.optimizer={kind}",
                                     "train.bias_correction=true"]).train
        optimizer = build_optimizer(train, network)

        def update():
            set_gradients(network, gradients)
            start = time.perf_counter()
            optimizer.step(1e-4)
            return time.perf_counter() - start
        return update
    return make


def make_paddle_lamb(overrides):
    """The same for Paddle's LAMB, with Paddle's clipping."""
    import paddle

    network, gradients = make_parameters(overrides)
    optimizer = paddle.optimizer.Lamb(1e-4, parameters=network.parameters(),
                                      grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

    def update():
        set_gradients(network, gradients)
        start = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - start
    return update


OPTIMIZERS = {"adamw": make_ours("adamw"), "lamb": make_ours("lamb"),
              "paddle_lamb": make_paddle_lamb}


if __name__ == "__main__":
    sys.exit(run(main))
