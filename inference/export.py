"""A checkpoint as a folder that answers text without this project's network code.

The exported model is run beside the trained one on real text of many shapes, and kept only
where both tell the same.
"""

import dataclasses
import shutil
from pathlib import Path

import paddle

from configs.errors import InputError
from inference.batching import Shape, make_arrays, run_in_parts
from inference.exported import ONNX_FILE, PADDLE_FILES, PROGRAM_FILES, Exported
from inference.graphs import largest_difference, open_graph, resolve_task
from inference.runners import RUNNERS
from inference.tasks import Piece

FORMATS = ("paddle", "onnx")
TOLERANCE = 1e-4
OPSET = 17
TEXTS = ("data/samples/wikipedia_en.txt", "data/samples/wikipedia_zh.txt")
# Rows and longest row of each batch of the self-check; None is the longest of the model.
SHAPES = ((1, 3), (1, 17), (2, 64), (3, 5), (7, 40), (16, 24), (4, 128), (1, None), (2, 200))


def export_model(checkpoint, task, output, formats=FORMATS, max_tokens=None,
                 tolerance=TOLERANCE, inference=None):
    """Export a checkpoint and compare it with itself.

    Args:
        checkpoint: a folder, ours or Hugging Face's.
        task: of ``inference.tasks.TASKS``.
        output: folder to make; it may not be there yet.
        formats: of ``FORMATS``; onnx is made from paddle, which is written too.
        max_tokens: that longer texts are cut to; None is what the model has positions for.
        tolerance: largest difference that is let through.
        inference: ``InferenceConfig`` of IPUs, for a model of one shape that they take; None
            exports one for CPUs and GPUs, for any shape.

    Returns:
        Exported.

    Raises:
        InputError: the checkpoint cannot be read, ``output`` is there, or the exported model
            tells something else than the trained one. Nothing is left behind then.
    """
    output = Path(output)
    if output.exists():
        raise InputError(output, "is there already", "name another folder")
    formats = [name for name in FORMATS if name in ("paddle", *formats)]
    task = resolve_task(checkpoint, task)
    graph, tokenizer, settings = open_graph(checkpoint, task)
    shape = _shape(graph, inference) if inference else None
    max_tokens = _longest(graph, max_tokens, shape)
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        batches = check_batches(graph, tokenizer, settings, shape,
                                inference and inference.fixed_rows)
        expected = [(arrays, _run_trained(graph, arrays, shape)) for arrays in batches]
        if shape:
            write_for_ipus(graph, partial, formats, inference, shape)
        else:
            write_graph(graph, partial, formats)
        write_texts(checkpoint, partial)
        differences = compare(expected, graph.outputs, partial, formats, inference, shape)
        for name, difference in differences.items():
            if not difference <= tolerance:
                raise InputError(output, f"the {name} model and the trained one differ by "
                                 f"{difference:.2g}, more than {tolerance:g}",
                                 "nothing was written")
        exported = Exported(task, max_tokens, settings, graph.outputs, differences, shape)
        exported.write(partial)
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return exported


def _shape(graph, inference):
    positions = graph.network.embeddings.max_positions
    if not 8 <= inference.fixed_length <= positions:
        raise InputError("inference.fixed_length", f"{inference.fixed_length} is not between 8 and "
                         f"the model's {positions} positions", "choose another")
    return Shape(inference.rows_at_once, inference.fixed_length,
                 inference.fixed_masks if graph.more_inputs else None)


def _longest(graph, max_tokens, shape):
    """Tokens that longer texts are cut to."""
    positions = shape.slots if shape else graph.network.embeddings.max_positions
    longest = positions if max_tokens is None else max_tokens
    if not 8 <= longest <= positions:
        what = "slots of a row" if shape else "positions"
        raise InputError("--max-tokens", f"{max_tokens} is not between 8 and the model's "
                         f"{positions} {what}", "choose another")
    return longest


def _run_trained(graph, arrays, shape):
    return run_in_parts(graph.run, arrays, shape) if shape else graph.run(arrays)


def write_for_ipus(graph, folder, formats, inference, shape):
    """Write a model of one shape: a legacy Program, which is held to what Paddle's IPU backend
    takes, and as ONNX for PopART: of its newest version, with int32 inputs of fixed shapes."""
    from inference.ipu import ONNX_OPSET, check_folder, check_onnx, fold_shapes, write_program

    write_program(graph, shape, folder)
    check_folder(folder, inference, shape)
    if "onnx" in formats:
        write_onnx(folder, PROGRAM_FILES, ONNX_OPSET)
        fold_shapes(folder)
        check_onnx(folder)


def write_graph(graph, folder, formats):
    """Write the graph in each format; it cannot run as it is from then on.

    The ONNX model takes any shape and is of a version that PopART cannot read; see
    ``write_for_ipus``.
    """
    static = paddle.jit.to_static(graph, input_spec=graph.specs(), full_graph=True)
    paddle.jit.save(static, str(folder / "model"))
    if "onnx" in formats:
        write_onnx(folder, PADDLE_FILES, OPSET)


def write_onnx(folder, files, opset):
    """Make ONNX of the model in ``files``."""
    import paddle2onnx

    # Its default optimizer would install packages on the way.
    paddle2onnx.export(*(str(folder / name) for name in files), str(folder / ONNX_FILE),
                       opset_version=opset, optimize_tool="none")


def write_texts(checkpoint, folder):
    """Copy the vocabulary and the small files beside the weights."""
    for name in ("vocab.txt", "tokenizer_config.json", "config.json"):
        if (Path(checkpoint) / name).is_file():
            shutil.copy(Path(checkpoint) / name, folder / name)


def compare(expected, outputs, folder, formats, inference=None, shape=None):
    """Run an exported model on the batches of the self-check.

    Args:
        expected: pairs of inputs and the trained model's outputs.
        outputs: their names, in the graph's order.
        folder: where the exported model lies.
        formats: that were written.
        inference, shape: of a model for IPUs, which are emulated too, in fp32.

    Returns:
        dict of format to the largest difference, infinite where a number is not finite.
    """
    runners = dict(RUNNERS)
    if shape:
        from inference.ipu import EmulatedRunner

        exact = dataclasses.replace(inference, precision="fp32", ipu_half_partials=False)
        runners["ipu_model"] = lambda *where, shape: EmulatedRunner(*where, exact, shape)
        formats = [*formats, "ipu_model"]
    differences = {}
    for name in formats:
        runner = runners[name](folder, outputs, shape=shape)
        differences[name] = max(largest_difference(found, runner.run(arrays))
                                for arrays, found in expected)
        runner.close()
    return differences


def check_batches(graph, tokenizer, settings, shape=None, rows=None):
    """Batches of real text, short and long rows mixed, pairs and masks among them: in SHAPES, or
    two of ``rows`` rows in parts of one ``Shape``."""
    root = Path(__file__).resolve().parent.parent
    lines = [line for name in TEXTS for line in (root / name).read_text("utf-8").splitlines()[:300]]
    ids = [number for text in tokenizer.encode([line for line in lines if line]) for number in text]
    has_pairs = settings.get("segments") != 1
    sizes = ((rows, None), (rows, shape.slots // 2)) if shape else SHAPES
    positions = shape.slots if shape else graph.network.embeddings.max_positions
    for number, (count, longest) in enumerate(sizes):
        longest = min(longest or positions, positions)
        pieces = []
        for row in range(count):
            size = max(3, longest * (count - row) // count)
            begin = (number * 1000 + row * 100) % max(1, len(ids) - size)
            inner = ids[begin:begin + size - 2]
            tokens = [tokenizer.cls, *inner, tokenizer.sep]
            tokens[1] = tokenizer.mask
            pieces.append(Piece(tuple(tokens), size // 2 if row % 2 and has_pairs else size, (1,)))
        slots = positions if shape else max(len(piece.tokens) for piece in pieces)
        yield make_arrays(pieces, slots, tokenizer.pad, rows, shape)
