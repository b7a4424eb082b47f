"""The update as PopART computes it from what the backend reads off a Program's operators."""

from typing import NamedTuple, Optional

import numpy as np

from engines.ipu.half import UPDATE
from engines.ipu.rounding import keep

KINDS = ("adam", "adamw", "lamb")


class Moments(NamedTuple):
    """Where the state of a parameter lies in the scope."""

    first: str
    second: str
    power: str
    """``beta1 ** (updates + 1)``, or the number of updates itself, see ``count_updates``"""
    weight_decay: float


class DeviceUpdate:
    """Adam with decoupled decay, or LAMB, with or without correction of the moments' start.

    As PopART's adaptive optimizers: the direction is ``m / (sqrt(v) + epsilon) + decay w``;
    LAMB scales it to the weight's norm (You et al. 2020, algorithm 2).
    """

    def __init__(self, program, options):
        """
        Args:
            program: legacy Program with update operators.
            options: of the strategy, by name.
        """
        operators = [op for op in program.global_block().ops if op.attr("op_role") & UPDATE]
        updates = [op for op in operators if op.type in KINDS]
        first = updates[0]
        self.kind, self.options = first.type, options
        self.beta1, self.beta2, self.epsilon = (first.attr(name)
                                                for name in ("beta1", "beta2", "epsilon"))
        self.max_gradient_norm = _clip_norm(operators)
        decay = _weight_decay(operators)
        self.places = {op.input("Param")[0]: Moments(
            op.input("Moment1")[0], op.input("Moment2")[0], op.input("Beta1Pow")[0],
            op.attr("weight_decay") if self.kind == "lamb" else decay) for op in updates}

    def load(self, read):
        """Take over moments and the number of updates; ``read`` gives an array by name."""
        self.moments = {name: [read(place.first).astype(np.float32),
                               read(place.second).astype(np.float32)]
                        for name, place in self.places.items()}
        power = read(next(iter(self.places.values())).power).ravel()[0]
        self.updates = count_updates(power, self.beta1)

    def store(self, write):
        """Hand moments and the number of updates out; ``write`` takes a name and an array.

        As on IPUs, the variable of the power holds the number of updates from now on.
        """
        for name, place in self.places.items():
            write(place.first, self.moments[name][0])
            write(place.second, self.moments[name][1])
            write(place.power, np.array([self.updates], np.float32))

    def apply(self, weights, gradients, learning_rate, round_weight=keep):
        """Move the weights, in place.

        Args:
            weights: float32 arrays by name.
            gradients: float32 arrays by name, of the loss itself, without its scale.
            learning_rate: of this update.
            round_weight: what becomes of each new weight.
        """
        self.updates += 1
        factor = self._clip_factor(gradients)
        for name, gradient in gradients.items():
            direction = self._direction(name, weights[name], gradient * factor)
            ratio = self._trust_ratio(weights[name], direction)
            weights[name] = round_weight(weights[name] - learning_rate * ratio * direction)

    def _clip_factor(self, gradients):
        if self.max_gradient_norm is None:
            return np.float32(1)
        norm = np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
        return np.float32(self.max_gradient_norm / max(norm, self.max_gradient_norm))

    def _direction(self, name, weight, gradient):
        first, second = self._blend(name, gradient)
        correction1 = correction2 = 1.0
        if not self.options["use_no_bias_optimizer"]:
            correction1, correction2 = (1 - beta ** self.updates
                                        for beta in (self.beta1, self.beta2))
        root = np.sqrt(second / np.float32(correction2)) + np.float32(self.epsilon)
        direction = first / np.float32(correction1) / root
        return direction + np.float32(self.places[name].weight_decay) * weight

    def _blend(self, name, gradient):
        """Move both moments; returns them in float32, before they are stored."""
        moved = []
        for number, (beta, value) in enumerate(((self.beta1, gradient),
                                                (self.beta2, np.square(gradient)))):
            scale = self._moment_scale() ** (number + 1)
            old = self.moments[name][number] / scale
            new = np.float32(beta) * old + np.float32(1 - beta) * value
            is_half = self.options[f"accl{number + 1}_type"] == "FLOAT16"
            stored = np.clip(new * scale, -65504, 65504) if is_half else new * scale
            self.moments[name][number] = stored.astype(np.float16 if is_half
                                                       else np.float32).astype(np.float32)
            moved.append(new)
        return moved

    def _moment_scale(self):
        is_scaled = self.options["scaled_optimizer_state"]
        return np.float32(self.options["loss_scaling"] if is_scaled else 1)

    def _trust_ratio(self, weight, direction):
        if self.kind != "lamb":
            return np.float32(1)
        norm = min(np.sqrt(float(np.vdot(weight, weight))), self.options["max_weight_norm"])
        length = np.sqrt(float(np.vdot(direction, direction)))
        return np.float32(norm / length if norm and length else 1)


def count_updates(power, beta):
    """What the backend makes of the variable of beta1's power before it compiles.

    A number inside (0, 1) is ``beta ** (updates + 1)`` to it, and any other is the number of
    updates (optimizer_state_align_pass.cc); it counts in float32, as here.
    """
    power, beta = np.float32(power), np.float32(beta)
    if not 0 < power < 1:
        return int(power)
    updates, reached = 0, beta
    while reached > power:
        reached, updates = np.float32(reached * beta), updates + 1
    return updates


def _clip_norm(operators) -> Optional[float]:
    """The limit is the first constant in the name scope of clipping."""
    return next((op.attr("value") for op in operators if op.type == "fill_constant"
                 and "gradient_clip" in op.attr("op_namescope")), None)


def _weight_decay(operators):
    """Adam's is the factor of the first regularizer, one for all parameters."""
    return next((op.attr("scale") for op in operators if op.type == "scale"
                 and "regularization" in op.attr("op_namescope")), 0.0)
