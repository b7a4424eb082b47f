"""These tests build legacy Programs, so they have a process of their own:

    python -m pytest --confcutdir tests/ipu tests/ipu
"""

import pytest

from engines import startup

startup.prepare(threads=1, on_ipus=True)  # what is computed is tiny

from engines.ipu.options import DEFAULTS  # noqa: E402  (nothing may import Paddle before)

OPTIONS = {**DEFAULTS, "num_ipus": 4, "replicated_graph_count": 2, "enable_manual_shard": True,
           "enable_replicated_graphs": True, "enable_pipelining": True, "accumulation_factor": 5,
           "enable_gradient_accumulation": True, "weight_decay_mode": "decay"}


class Small:
    """A Program of three stages on two IPUs, with what the contract is asked about it."""

    def __init__(self, optimizer=None, is_training=True):
        import paddle
        from paddle import static
        from paddle.utils import unique_name

        from engines.ipu.program import legacy_static_mode
        from models.operators import gelu, linear, total

        self.program, self.options = static.Program(), {**OPTIONS, "is_training": is_training}
        with legacy_static_mode(), unique_name.guard(), \
                static.program_guard(self.program, static.Program()):
            self.block = self.program.global_block()
            ids = static.data("ids", [2, 6], "int32")
            table, bias, weight = (self.block.create_parameter(name=name, shape=shape,
                                                               dtype="float32")
                                   for name, shape in (("table", [10, 4]), ("bias", [10]),
                                                       ("weight", [4, 4])))
            with static.ipu_shard_guard(index=0, stage=0):
                hidden = paddle.nn.functional.embedding(ids, table)
            with static.ipu_shard_guard(index=1, stage=1):
                hidden = gelu(hidden @ weight)
                self.marked = self.block.ops[-1]
            with static.ipu_shard_guard(index=0, stage=2):
                loss = total(linear(hidden, table, bias, transpose_weight=True))
            self.label(("embeddings", "layer.0.attention", "heads"))
            if is_training:
                (optimizer or paddle.optimizer.Lamb)(0.1).minimize(loss)
        self.loss, self.feeds, self.fetches = loss.name, ["ids"], [loss.name]

    def label(self, names):
        for operator in self.block.ops:
            operator._set_attr("op_namescope", f"/{names[operator.attr('ipu_stage')]}/")

    def operator(self, kind):
        """The first operator of a kind."""
        return next(op for op in self.block.ops if op.type == kind)

    def turn_into(self, kind, attributes=(), inputs=()):
        """Make another operator of the one in stage 1."""
        description = self.marked.desc
        description.set_type(kind)
        for name, value in dict(attributes).items():
            description._set_attr(name, value)
        for slot, name in dict(inputs).items():
            description.set_input(slot, [name])

    def add_buffer(self, name, shape):
        """A persistable variable that is no parameter."""
        from engines.ipu.program import legacy_static_mode

        with legacy_static_mode():
            self.block.create_var(name=name, shape=shape, dtype="float32", persistable=True)

    def check(self):
        from engines.ipu.contract import check_program

        return check_program(self.program, self.options, self.feeds, self.fetches)


@pytest.fixture
def small():
    """Makes a ``Small``."""
    return Small
