"""A checkpoint as a folder that answers text without this project's network code.

The exported model is run beside the trained one on real text of many shapes, and kept only
where both tell the same.
"""

import shutil
from pathlib import Path

import paddle

from configs.errors import InputError
from inference.batching import make_arrays
from inference.exported import ONNX_FILE, PADDLE_FILES, Exported
from inference.graphs import largest_difference, open_graph
from inference.runners import RUNNERS
from inference.tasks import Piece

FORMATS = ("paddle", "onnx")
TOLERANCE = 1e-4
OPSET = 17
TEXTS = ("data/samples/wikipedia_en.txt", "data/samples/wikipedia_zh.txt")
# Rows and longest row of each batch of the self-check; None is the longest of the model.
SHAPES = ((1, 3), (1, 17), (2, 64), (3, 5), (7, 40), (16, 24), (4, 128), (1, None), (2, 200))


def export_model(checkpoint, task, output, formats=FORMATS, max_tokens=None,
                 tolerance=TOLERANCE):
    """Export a checkpoint and compare it with itself.

    Args:
        checkpoint: a folder, ours or Hugging Face's.
        task: of ``inference.tasks.TASKS``.
        output: folder to make; it may not be there yet.
        formats: of ``FORMATS``; onnx is made from paddle, which is written too.
        max_tokens: that longer texts are cut to; None is what the model has positions for.
        tolerance: largest difference that is let through.

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
    graph, tokenizer, settings = open_graph(checkpoint, task)
    positions = graph.network.embeddings.max_positions
    if not 8 <= (max_tokens or positions) <= positions:
        raise InputError("--max-tokens", f"{max_tokens} is not between 8 and the model's "
                         f"{positions} positions", "choose another")
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        expected = [(arrays, graph.run(arrays)) for arrays in check_batches(graph, tokenizer,
                                                                        settings)]
        write_graph(graph, partial, formats)
        write_texts(checkpoint, partial)
        differences = compare(expected, graph.outputs, partial, formats)
        for name, difference in differences.items():
            if not difference <= tolerance:
                raise InputError(output, f"the {name} model and the trained one differ by "
                                 f"{difference:.2g}, more than {tolerance:g}",
                                 "nothing was written")
        exported = Exported(task, max_tokens or positions, settings, graph.outputs, differences)
        exported.write(partial)
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return exported


def write_graph(graph, folder, formats):
    """Write the graph in each format; it cannot run as it is from then on."""
    static = paddle.jit.to_static(graph, input_spec=graph.specs(), full_graph=True)
    paddle.jit.save(static, str(folder / "model"))
    if "onnx" in formats:
        import paddle2onnx

        # Its default optimizer would install packages on the way.
        paddle2onnx.export(*(str(folder / name) for name in PADDLE_FILES), str(folder / ONNX_FILE),
                           opset_version=OPSET, optimize_tool="none")


def write_texts(checkpoint, folder):
    """Copy the vocabulary and the small files beside the weights."""
    for name in ("vocab.txt", "tokenizer_config.json", "config.json"):
        if (Path(checkpoint) / name).is_file():
            shutil.copy(Path(checkpoint) / name, folder / name)


def compare(expected, outputs, folder, formats):
    """Run an exported model on the batches of the self-check.

    Args:
        expected: pairs of inputs and the trained model's outputs.
        outputs: their names, in the graph's order.
        folder: where the exported model lies.
        formats: that were written.

    Returns:
        dict of format to the largest difference, infinite where a number is not finite.
    """
    differences = {}
    for name in formats:
        runner = RUNNERS[name](folder, outputs)
        differences[name] = max(largest_difference(found, runner.run(arrays))
                                for arrays, found in expected)
        runner.close()
    return differences


def check_batches(graph, tokenizer, settings):
    """Batches of real text in SHAPES, short and long rows mixed, pairs and masks among them."""
    root = Path(__file__).resolve().parent.parent
    lines = [line for name in TEXTS for line in (root / name).read_text("utf-8").splitlines()[:300]]
    ids = [number for text in tokenizer.encode([line for line in lines if line]) for number in text]
    has_pairs = settings.get("segments") != 1
    for number, (rows, longest) in enumerate(SHAPES):
        longest = min(longest or graph.network.embeddings.max_positions,
                      graph.network.embeddings.max_positions)
        pieces = []
        for row in range(rows):
            size = max(3, longest * (rows - row) // rows)
            begin = (number * 1000 + row * 100) % max(1, len(ids) - size)
            inner = ids[begin:begin + size - 2]
            tokens = [tokenizer.cls, *inner, tokenizer.sep]
            tokens[1] = tokenizer.mask
            pieces.append(Piece(tuple(tokens), size // 2 if row % 2 and has_pairs else size, (1,)))
        yield make_arrays(pieces, max(len(piece.tokens) for piece in pieces), tokenizer.pad)
