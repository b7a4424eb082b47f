"""The update as Paddle's optimizer operators, from which the IPU backend reads PopART's.

The backend throws away the backward and update operators of the Program and keeps of the
latter what kind they are and with which numbers. ``adam`` with a regularizer becomes Adam with
decoupled decay through the option ``weight_decay_mode``; ``adamw`` would lose its decay.
"""

import paddle
from paddle.common_ops_import import LayerHelper

from models.parameters import is_decayed


def append_update(loss, train):
    """Append backward and update operators for a loss.

    Args:
        loss: scalar variable.
        train: the ``train`` section.

    Returns:
        The name of the variable that holds the learning rate.
    """
    numbers = dict(learning_rate=train.learning_rate, beta1=train.beta1, beta2=train.beta2,
                   epsilon=train.epsilon)
    if train.max_gradient_norm:
        numbers["grad_clip"] = _ClipByGlobalNorm(train.max_gradient_norm)
    if train.optimizer == "lamb":
        optimizer = paddle.optimizer.Lamb(
            lamb_weight_decay=train.weight_decay, **numbers,
            exclude_from_weight_decay_fn=lambda parameter: not is_decayed(
                parameter.name, train.decay_all_parameters))
    else:
        optimizer = paddle.optimizer.Adam(weight_decay=train.weight_decay or None, **numbers)
    optimizer.minimize(loss)
    return optimizer._global_learning_rate().name


class _ClipByGlobalNorm(paddle.nn.ClipGradByGlobalNorm):
    """Paddle's operators for it, which its own class cannot append to a legacy Program in 3.x.

    The backend reads the limit from the constant in the name scope.
    """

    def _static_clip(self, params_grads):
        block = params_grads[0][0].block
        with paddle.static.name_scope("gradient_clip"), \
                block.program._optimized_guard(params_grads[0]):
            squares = [_append("squared_l2_norm", X=[gradient]) for _, gradient in params_grads]
            norm = _append("sqrt", X=[_append("sum", X=squares)])
            limit = _append("fill_constant", {"shape": [1], "value": self.clip_norm, "dtype": 5})
            factor = _append("elementwise_div", X=[limit],
                             Y=[_append("elementwise_max", X=[norm], Y=[limit])])
            return [(parameter, _append("elementwise_mul", X=[gradient], Y=[factor]))
                    for parameter, gradient in params_grads]


def _append(kind, attributes=None, **inputs):
    helper = LayerHelper(kind)
    output = helper.create_variable_for_type_inference("float32")
    helper.append_op(type=kind, inputs=inputs, outputs={"Out": [output]}, attrs=attributes or {})
    return output
