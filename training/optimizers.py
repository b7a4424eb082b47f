"""AdamW and LAMB over named parameters, with a state that does not depend on the engine."""

import math

import numpy as np
import paddle

from configs.errors import InputError
from models.parameters import is_decayed


def build_optimizer(train, network):
    """The optimizer that the recipe names.

    Args:
        train: the ``train`` section.
        network: whose parameters are updated.
    """
    kinds = {"adamw": AdamW, "lamb": Lamb}
    return kinds[train.optimizer](train, dict(network.named_parameters()))


def gradient_norm(parameters):
    """L2 norm of all gradients together."""
    return _squared_gradient_norm(parameters) ** 0.5


def _squared_gradient_norm(parameters):
    return sum(_squared_norm(p.grad) for p in parameters if p.grad is not None)


def _squared_norm(tensor):
    # dot runs in BLAS; paddle.linalg.norm takes ten times as long on a CPU.
    flat = tensor.flatten()
    return float(paddle.dot(flat, flat))


class Optimizer:
    """Clips, updates and clears; subclasses say how a parameter moves."""

    def __init__(self, train, parameters):
        self.train, self.parameters = train, parameters
        self.add_up = float
        """Sums a number over the processes that update the other parameters, if any do"""

    def step(self, learning_rate, loss_scale=1.0):
        """Update every parameter from its gradient, or none where one is not finite.

        Args:
            learning_rate: of this update.
            loss_scale: what the loss was multiplied by before the backward pass.

        Returns:
            The global gradient norm before clipping, without the scale; inf or nan tells
            that the update was skipped.
        """
        squares = _squared_gradient_norm(self.parameters.values())
        norm = self.add_up(squares) ** 0.5 / loss_scale
        if math.isfinite(norm):
            limit = self.train.max_gradient_norm
            clip = limit / norm if limit and norm > limit else 1.0
            self._scale_gradients(clip / loss_scale)
            self._update(learning_rate)
        self.clear_gradients()
        return norm

    def clear_gradients(self):
        """Forget the gradients, for the next update or instead of this one."""
        for parameter in self.parameters.values():
            parameter.clear_gradient(set_to_zero=False)

    @paddle.no_grad()
    def _scale_gradients(self, factor):
        if factor == 1.0:
            return
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.scale_(factor)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), Paddle's own.

    With ``bias_correction`` false as Google's BERT has it (google-research/bert, optimization.py).
    """

    MOMENTS = ("moment1", "moment2")
    POWERS = ("beta1_pow_acc", "beta2_pow_acc")

    def __init__(self, train, parameters):
        super().__init__(train, parameters)
        decayed = {p.name for name, p in parameters.items()
                   if is_decayed(name, train.decay_all_parameters)}
        kind = paddle.optimizer.AdamW if train.bias_correction else _AdamWithoutCorrection
        self._optimizer = kind(
            beta1=train.beta1, beta2=train.beta2, epsilon=train.epsilon,
            parameters=list(parameters.values()), weight_decay=train.weight_decay,
            apply_decay_param_fun=decayed.__contains__)
        self.rate_factor = 1.0 if train.bias_correction else _rate_factor(train)

    def _update(self, learning_rate):
        self._optimizer.set_lr(learning_rate * self.rate_factor)
        self._optimizer.step()

    def state(self):
        """Arrays by ``parameter/slot``."""
        values = self._optimizer.state_dict()
        return {f"{name}/{slot}": values[f"{p.name}_{slot}_0"].numpy()
                for name, p in self.parameters.items() for slot in self.MOMENTS + self.POWERS
                if f"{p.name}_{slot}_0" in values}

    def load_state(self, arrays):
        """Take over what ``state`` returned.

        Raises:
            InputError: an array is missing, left over, or not of its parameter's size.
        """
        # Before the first update there is no state.
        if arrays:
            powers = {f"{name}/{slot}": ([1], np.float32)
                      for name in self.parameters for slot in self.POWERS}
            _check_arrays(arrays, {**powers, **_slots(self.parameters, moment1=np.float32,
                                                      moment2=np.float32)})
        names = {name: p.name for name, p in self.parameters.items()}
        values = {}
        for key, array in arrays.items():
            name, slot = key.rsplit("/", 1)
            if slot in self.POWERS and not self.train.bias_correction:
                array = np.zeros_like(array)  # IPUs count updates all the same
            values[f"{names[name]}_{slot}_0"] = paddle.to_tensor(array)
        self._optimizer.set_state_dict(values)


class _AdamWithoutCorrection(paddle.optimizer.AdamW):
    """Where it keeps powers of the betas it keeps 0, which stays 0 and corrects nothing."""

    def _add_accumulator(self, name, *arguments, **options):
        if name in AdamW.POWERS:
            options["fill_value"] = 0.0
        return super()._add_accumulator(name, *arguments, **options)


class Lamb(Optimizer):
    """Layer-wise adaptive moments (You et al. 2020, algorithm 2).

    Each parameter tensor moves by Adam's direction, scaled to the tensor's own norm. With
    ``bias_correction`` false the moments are used as they are, as Graphcore's recipes do.
    """

    def __init__(self, train, parameters):
        super().__init__(train, parameters)
        self.updates = 0
        self.moments = {
            name: (_Moment(p, train.first_moment_precision, train.moment_scale),
                   _Moment(p, train.second_moment_precision, train.moment_scale ** 2))
            for name, p in parameters.items()}

    @paddle.no_grad()
    def _update(self, learning_rate):
        self.updates += 1
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self._update_one(name, parameter, learning_rate)

    def _update_one(self, name, parameter, learning_rate):
        train, moments = self.train, self.moments[name]
        moment1 = moments[0].blend(parameter.grad, 1 - train.beta1)
        moment2 = moments[1].blend(paddle.square(parameter.grad), 1 - train.beta2)
        correction1 = 1 - train.beta1 ** self.updates if train.bias_correction else 1.0
        correction2 = 1 - train.beta2 ** self.updates if train.bias_correction else 1.0
        root = paddle.sqrt(moment2).scale_(correction2 ** -0.5).add_(
            paddle.full([1], train.epsilon))
        direction = (moment1 / root).scale_(1 / correction1)
        if is_decayed(name, train.decay_all_parameters):
            direction.add_(parameter * train.weight_decay)
        ratio = self._trust_ratio(parameter, direction)
        parameter.subtract_(direction.scale_(learning_rate * ratio))

    def _trust_ratio(self, parameter, direction):
        """``|w| / |direction|``, or 1 where either is 0; ``|w|`` capped where the recipe says."""
        weight_norm = _squared_norm(parameter) ** 0.5
        if self.train.max_weight_norm is not None:
            weight_norm = min(weight_norm, self.train.max_weight_norm)
        direction_norm = _squared_norm(direction) ** 0.5
        return weight_norm / direction_norm if weight_norm and direction_norm else 1.0

    def state(self):
        """Arrays by ``parameter/slot``, and the number of updates."""
        arrays = {"updates": np.array([self.updates], np.int64)}
        for name, (moment1, moment2) in self.moments.items():
            arrays[f"{name}/moment1"] = moment1.stored.numpy()
            arrays[f"{name}/moment2"] = moment2.stored.numpy()
        return arrays

    def load_state(self, arrays):
        """Take over what ``state`` returned.

        Raises:
            InputError: an array is missing, left over, or not of its parameter's size.
        """
        kinds = {"fp32": np.float32, "fp16": np.float16}
        moments = _slots(self.parameters, moment1=kinds[self.train.first_moment_precision],
                         moment2=kinds[self.train.second_moment_precision])
        _check_arrays(arrays, {"updates": ([1], np.int64), **moments})
        self.updates = int(arrays["updates"][0])
        for name, (moment1, moment2) in self.moments.items():
            moment1.stored.set_value(arrays[f"{name}/moment1"])
            moment2.stored.set_value(arrays[f"{name}/moment2"])


class _Moment:
    """A moving average, kept in float32, or rounded to a scaled float16 between updates."""

    LARGEST = 65504.0  # of float16; a larger average stays there instead of becoming inf

    def __init__(self, parameter, precision, scale):
        self.is_half, self.scale = precision == "fp16", scale
        self.stored = paddle.zeros(parameter.shape, "float16" if self.is_half else "float32")

    def blend(self, value, share):
        """Move by ``share`` towards ``value``; the new average in float32."""
        if not self.is_half:
            return self.stored.lerp_(value, share)
        average = self.stored.astype("float32").scale_(1 / self.scale).lerp_(value, share)
        scaled = (average * self.scale).clip(-self.LARGEST, self.LARGEST)
        self.stored = scaled.astype("float16")
        return average


def _rate_factor(train):
    """What makes up for Paddle's 1 - beta in float32, of which 0.999 leaves five digits.

    Correction takes the error out again, for it has the same betas.
    """
    share1, share2 = ((1 - beta) / float(np.float32(1) - np.float32(beta))
                      for beta in (train.beta1, train.beta2))
    return share1 / share2 ** 0.5


def _slots(parameters, **kinds):
    """What a state holds: name to shape and type, for slots as large as their parameter."""
    return {f"{name}/{slot}": (list(parameter.shape), kind)
            for name, parameter in parameters.items() for slot, kind in kinds.items()}


def _check_arrays(arrays, wanted):
    """Refuse a loaded state that is not just what is wanted: ``{name: (shape, type)}``."""
    mend = "take a checkpoint of the same model and optimizer"
    for name in sorted(wanted.keys() ^ arrays.keys()):
        what = "is missing in" if name in wanted else "has no place in"
        raise InputError(name, f"{what} the optimizer state", mend)
    for name, (shape, kind) in wanted.items():
        array = arrays[name]
        if (list(array.shape), array.dtype) != (shape, kind):
            raise InputError(name, f"is {array.dtype} {list(array.shape)} in the optimizer "
                             f"state, not {np.dtype(kind)} {shape}", mend)
