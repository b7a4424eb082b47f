"""The exported model for IPUs: a legacy Program of one shape, held to what their backend takes.

Paddle Inference hands such a Program to the backend with options of its own
(inference_process_pass.cc, avg_shard_pass.cc); the same options are checked here, or emulated.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, NamedTuple

import numpy as np
import paddle
from paddle import static

from configs.errors import InputError
from configs.schema import RunConfig
from engines.ipu.contract import check_program
from engines.ipu.emulator import EmulatedExecutor, EmulatedProgram, EmulatedStrategy
from engines.ipu.half import convert_to_half, core
from engines.ipu.option_rules import facts
from engines.ipu.options import DEFAULTS
from engines.ipu.program import build_program, legacy_static_mode
from engines.ipu.weights import weights
from engines.placement import Placement, Stage
from inference.exported import ONNX_FILE, PROGRAM_FILES
from inference.graphs import INPUTS

ONNX_OPSET = 11
"""The newest that PopART reads"""


class Loaded(NamedTuple):
    """The Program of a folder."""

    program: static.Program
    feeds: List[str]
    fetches: List[str]
    scope: Any
    """Holds the weights"""


def write_program(graph, shape, folder):
    """Write a graph as a legacy Program for batches of one ``Shape``, made as in training."""
    arrays = {name: np.zeros([shape.rows, shape.slots], np.int32) for name in INPUTS}
    arrays.update({name: np.zeros([shape.rows * shape.masks], np.int32)
                   for name in graph.more_inputs})
    parts = tuple(part.name for part in graph.parts())
    built = build_program(graph, SimpleNamespace(inputs=arrays, labels={}),
                          Placement((Stage(0, 0, parts),)), RunConfig(shape.rows))
    block, scope = built.main.global_block(), core.Scope()
    for name, parameter in graph.named_parameters():
        scope.var(name).get_tensor().set(parameter.numpy(), paddle.CPUPlace())
    with legacy_static_mode(), static.scope_guard(scope):
        static.save_inference_model(
            str(Path(folder) / Path(PROGRAM_FILES[0]).stem), [block.var(name) for name in built.feeds],
            [block.var(built.fetches[name]) for name in graph.outputs],
            static.Executor(paddle.CPUPlace()), program=built.main)


def read_program(folder):
    """The ``Loaded`` Program of a folder.

    Raises:
        InputError: it is missing or damaged.
    """
    path, scope = Path(folder) / PROGRAM_FILES[0], core.Scope()
    if not path.is_file():
        raise InputError(path, "no such file", "export the checkpoint anew")
    try:
        with legacy_static_mode(), static.scope_guard(scope):
            program, feeds, fetches = static.load_inference_model(
                str(path.with_suffix("")), static.Executor(paddle.CPUPlace()))
    except (RuntimeError, ValueError) as error:
        raise InputError(path, f"cannot be loaded ({str(error).splitlines()[-1]})",
                         "export the checkpoint anew") from None
    _remove_ends(program.global_block())
    return Loaded(program, feeds, [variable.name for variable in fetches], scope)


def check_folder(folder, settings, shape):
    """Refuse a folder that IPUs would refuse with these settings.

    Args:
        folder: of an exported model.
        settings: ``InferenceConfig``.
        shape: the model's ``Shape``, None if it takes any.

    Returns:
        The ``Loaded`` Program and the options, by name.

    Raises:
        InputError: naming the operator, or the key, and the mend.
    """
    if shape is None:
        raise InputError(folder, "was exported for batches of any shape, but IPUs compute one",
                         "export it with --inference configs/inference/ipu.yaml")
    if (settings.rows_at_once, settings.fixed_length) != (shape.rows, shape.slots):
        together = settings.ipu_replicas * settings.ipu_batches_per_step
        raise InputError("inference.fixed_rows", f"a replica computes {settings.rows_at_once} rows "
                         f"of {settings.fixed_length} slots at once, but {folder} was exported for "
                         f"{shape.rows} of {shape.slots}", f"write fixed_rows: "
                         f"{shape.rows * together} and fixed_length: {shape.slots}, or export anew")
    loaded, options = read_program(folder), program_options(settings)
    if settings.ipus > 1:
        _share_out(loaded.program.global_block().ops, settings.ipus)
    check_program(loaded.program, {**DEFAULTS, **options}, loaded.feeds, loaded.fetches)
    return loaded, options


def program_options(settings):
    """The options that Paddle Inference hands to the backend, by name."""
    replicas, is_split = settings.ipu_replicas, settings.ipus > 1
    options = {
        "num_ipus": settings.ipus * replicas, "is_training": False,
        "micro_batch_size": settings.rows_at_once, "need_avg_shard": is_split,
        "enable_manual_shard": is_split, "enable_pipelining": settings.ipu_pipelining,
        "batches_per_step": settings.ipu_batches_per_step,
        "enable_replicated_graphs": replicas > 1, "replicated_graph_count": replicas,
        "enable_fp16": settings.precision == "fp16",
        "available_memory_proportion": float(settings.ipu_available_memory_proportion)}
    if settings.ipu_half_partials:
        options["partials_type_matmuls"] = "half"
    return options


def join_micro_batches(array, settings):
    """A fetch as rows in the order in which they were fed.

    The backend fills it in the order batches, replicas, rows, and puts an axis for each before
    that of the rows, whichever way round.
    """
    axes = (settings.ipu_replicas > 1) + (settings.ipu_batches_per_step > 1)
    return array.reshape([-1, *array.shape[axes + 1:]]).astype(np.float32)


class EmulatedRunner:
    """The Program of a folder on emulated IPUs; as ``inference.runners.PaddleRunner``."""

    rounded_to = 1

    def __init__(self, folder, outputs, settings, shape):
        """
        Raises:
            InputError: IPUs would refuse it.
        """
        loaded, options = check_folder(folder, settings, shape)
        self.settings, self.outputs, self.scope = settings, outputs, loaded.scope
        if settings.precision == "fp16":
            self._round_weights(loaded.program)
        strategy = EmulatedStrategy()
        strategy.set_options(options)
        with legacy_static_mode(), static.scope_guard(loaded.scope):
            self.program = EmulatedProgram(loaded.program, loaded.scope, strategy).compile(
                loaded.feeds, loaded.fetches)

    def run(self, arrays):
        """Takes a dict of arrays, returns the outputs by name."""
        feeds = {name: arrays[name] for name in self.program.feeds}
        with legacy_static_mode(), static.scope_guard(self.scope):
            found = EmulatedExecutor().run(self.program, feeds, self.program.fetches)
        return {name: join_micro_batches(array, self.settings)
                for name, array in zip(self.outputs, found)}

    def close(self):
        """Give the memory back."""
        self.program = self.scope = None

    def _round_weights(self, program):
        convert_to_half(program)
        for name in weights(program, is_training=False):
            tensor = self.scope.find_var(name).get_tensor()
            tensor.set(np.array(tensor).astype(np.float16), paddle.CPUPlace())


def fold_shapes(folder):
    """Replace in the ONNX model what follows from the fixed shapes by constants."""
    import onnx
    import onnxruntime

    path, options = Path(folder) / ONNX_FILE, onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path.with_suffix(".folded"))
    options.log_severity_level = 3
    # PopART computes no Gemm as such.
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"],
                                 disabled_optimizers=["MatMulAddFusion"])
    model = onnx.load(options.optimized_model_filepath)
    Path(options.optimized_model_filepath).unlink()
    versions = [version for version in model.opset_import if not version.domain]
    del model.opset_import[:]
    model.opset_import.extend(versions)
    onnx.save(model, str(path))


def check_onnx(folder):
    """Refuse a model that PopART would not import.

    Raises:
        InputError: naming the operator, the input or the version.
    """
    import onnx

    path, known = Path(folder) / ONNX_FILE, facts()["onnx"]
    model = onnx.load(str(path))
    for version in model.opset_import:
        if version.domain not in ("", "ai.onnx") or version.version > ONNX_OPSET:
            raise InputError(path, f"has operators of {version.domain or 'ONNX'} "
                             f"{version.version}", f"PopART reads ONNX up to {ONNX_OPSET}")
    for node in model.graph.node:
        if node.op_type not in known:
            raise InputError(path, f"has the operator {node.op_type}, which PopART lacks",
                             "write it with others")
    for one in model.graph.input:
        kind = one.type.tensor_type
        if kind.elem_type != onnx.TensorProto.INT32 or not all(
                size.dim_value > 0 for size in kind.shape.dim):
            raise InputError(path, f"has the input {one.name}, which is not int32 of a fixed shape",
                             "export the checkpoint anew")


def _remove_ends(block):
    """Take out what feeds and fetches, as Paddle does before it compiles."""
    for number in reversed(range(len(block.ops))):
        if block.ops[number].type in ("feed", "fetch"):
            block._remove_op(number)


def _share_out(operators, ipus):
    """Place operators as Paddle does, as many on each IPU, in their order."""
    each = max(len(operators) // ipus, 1)
    for number, operator in enumerate(operators):
        for name in ("ipu_index", "ipu_stage"):
            operator._set_attr(name, min(number // each, ipus - 1))
