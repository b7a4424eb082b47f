"""AdamW and LAMB over named parameters, with a state that does not depend on the engine."""

import numpy as np
import paddle


def build_optimizer(train, network):
    """The optimizer that the recipe names.

    Args:
        train: the ``train`` section.
        network: whose parameters are updated.
    """
    kinds = {"adamw": AdamW, "lamb": Lamb}
    return kinds[train.optimizer](train, dict(network.named_parameters()))


def is_decayed(name, decay_all_parameters):
    """Whether weight decay pulls at a parameter: not at biases and layer norms (BERT)."""
    return decay_all_parameters or not (name.endswith("bias") or "norm." in name)


def gradient_norm(parameters):
    """L2 norm of all gradients together."""
    total = sum(_squared_norm(p.grad) for p in parameters if p.grad is not None)
    return total ** 0.5


def _squared_norm(tensor):
    # dot runs in BLAS; paddle.linalg.norm takes ten times as long on a CPU.
    flat = tensor.flatten()
    return float(paddle.dot(flat, flat))


class Optimizer:
    """Clips, updates and clears; subclasses say how a parameter moves."""

    def __init__(self, train, parameters):
        self.train, self.parameters = train, parameters

    def step(self, learning_rate):
        """Update every parameter from its gradient.

        Returns:
            The global gradient norm before clipping.
        """
        norm = gradient_norm(self.parameters.values())
        limit = self.train.max_gradient_norm
        if limit and norm > limit:
            self._scale_gradients(limit / norm)
        self._update(learning_rate)
        for parameter in self.parameters.values():
            parameter.clear_gradient(set_to_zero=False)
        return norm

    @paddle.no_grad()
    def _scale_gradients(self, factor):
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.scale_(factor)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), Paddle's own."""

    MOMENTS = ("moment1", "moment2")
    POWERS = ("beta1_pow_acc", "beta2_pow_acc")

    def __init__(self, train, parameters):
        super().__init__(train, parameters)
        decayed = {p.name for name, p in parameters.items()
                   if is_decayed(name, train.decay_all_parameters)}
        self._optimizer = paddle.optimizer.AdamW(
            beta1=train.beta1, beta2=train.beta2, epsilon=train.epsilon,
            parameters=list(parameters.values()), weight_decay=train.weight_decay,
            apply_decay_param_fun=decayed.__contains__)

    def _update(self, learning_rate):
        self._optimizer.set_lr(learning_rate)
        self._optimizer.step()

    def state(self):
        """Arrays by ``parameter/slot``."""
        values = self._optimizer.state_dict()
        return {f"{name}/{slot}": values[f"{p.name}_{slot}_0"].numpy()
                for name, p in self.parameters.items() for slot in self.MOMENTS + self.POWERS
                if f"{p.name}_{slot}_0" in values}

    def load_state(self, arrays):
        """Take over what ``state`` returned."""
        names = {name: p.name for name, p in self.parameters.items()}
        values = {}
        for key, array in arrays.items():
            name, slot = key.rsplit("/", 1)
            values[f"{names[name]}_{slot}_0"] = paddle.to_tensor(array)
        self._optimizer.set_state_dict(values)


class Lamb(Optimizer):
    """Layer-wise adaptive moments (You et al. 2020, algorithm 2).

    Each parameter tensor moves by Adam's direction, scaled to the tensor's own norm. With
    ``bias_correction`` false the moments are used as they are, as Graphcore's recipes do.
    """

    def __init__(self, train, parameters):
        super().__init__(train, parameters)
        self.updates = 0
        self.moments = {name: (paddle.zeros_like(p), paddle.zeros_like(p))
                        for name, p in parameters.items()}

    @paddle.no_grad()
    def _update(self, learning_rate):
        self.updates += 1
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self._update_one(name, parameter, learning_rate)

    def _update_one(self, name, parameter, learning_rate):
        train, (moment1, moment2) = self.train, self.moments[name]
        moment1.lerp_(parameter.grad, 1 - train.beta1)
        moment2.lerp_(paddle.square(parameter.grad), 1 - train.beta2)
        correction1 = 1 - train.beta1 ** self.updates if train.bias_correction else 1.0
        correction2 = 1 - train.beta2 ** self.updates if train.bias_correction else 1.0
        root = paddle.sqrt(moment2).scale_(correction2 ** -0.5).add_(
            paddle.full([1], train.epsilon))
        direction = (moment1 / root).scale_(1 / correction1)
        if is_decayed(name, train.decay_all_parameters):
            direction.add_(parameter * train.weight_decay)
        ratio = self._trust_ratio(parameter, direction)
        parameter.subtract_(direction.scale_(learning_rate * ratio))

    @staticmethod
    def _trust_ratio(parameter, direction):
        """``|w| / |direction|``, or 1 where either is 0."""
        weight_norm = _squared_norm(parameter) ** 0.5
        direction_norm = _squared_norm(direction) ** 0.5
        return weight_norm / direction_norm if weight_norm and direction_norm else 1.0

    def state(self):
        """Arrays by ``parameter/slot``, and the number of updates."""
        arrays = {"updates": np.array([self.updates], np.int64)}
        for name, (moment1, moment2) in self.moments.items():
            arrays[f"{name}/moment1"] = moment1.numpy()
            arrays[f"{name}/moment2"] = moment2.numpy()
        return arrays

    def load_state(self, arrays):
        """Take over what ``state`` returned."""
        self.updates = int(arrays["updates"][0])
        for name, (moment1, moment2) in self.moments.items():
            moment1.set_value(arrays[f"{name}/moment1"])
            moment2.set_value(arrays[f"{name}/moment2"])
