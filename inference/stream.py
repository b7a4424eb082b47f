"""Lines in, JSON lines out: in order, in bounded memory, with progress."""

import json
import sys
import time

import numpy as np
from tqdm import tqdm

from configs.errors import InputError

CHUNK = 2048
"""Records, at most, that are read, sorted by length and answered together"""
SECONDS_BETWEEN_LINES = 30
"""Of progress, where there is no terminal"""
LONGEST_LINE = 1 << 20
"""Bytes; a longer line is refused, not read"""


def answer_lines(predictor, lines, out, is_json, total=None):
    """Answer every line.

    Args:
        predictor: a ``Predictor``.
        lines: iterable of bytes, as ``read_lines`` gives them.
        out: text stream; a JSON object a line, in the order of the input.
        is_json: whether a line is a JSON record; else it is a text.
        total: bytes of the input, for the progress bar; None if unknown.

    Returns:
        ``(answered, refused)``: counts of lines. A refused line's answer holds ``error``.
    """
    answered = refused = 0
    told = time.monotonic()
    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr,
              disable=not sys.stderr.isatty()) as bar:
        for chunk in _chunks(lines, predictor.task.bytes_at_once):
            records = [_record(line, is_json) for line in chunk]
            for answer in _answers(predictor, records):
                refused += "error" in answer
                out.write(to_json(answer) + "\n")
            answered += len(chunk)
            out.flush()
            bar.update(sum(map(len, chunk)))
            if bar.disable and time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                print(f"{answered:,} lines answered", file=sys.stderr, flush=True)
    return answered, refused


def to_json(answer):
    """An answer as one line of JSON, without its end."""
    return json.dumps(answer, ensure_ascii=False, default=np.ndarray.tolist)


def _chunks(lines, most_bytes):
    """Lists of lines, as many as are answered together."""
    chunk, size = [], 0
    for line in lines:
        if chunk and (len(chunk) == CHUNK or size + len(line) > most_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def read_lines(stream):
    """Lines of a binary stream, of which one longer than LONGEST_LINE is cut short by a byte.

    The rest of such a line is skipped, so that memory stays bounded.
    """
    while True:
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            rest = b"-"
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST_LINE)
        yield line


def _record(line, is_json):
    """A record, or the InputError that tells why the line is none."""
    if len(line) > LONGEST_LINE:
        return InputError("line", f"is longer than {LONGEST_LINE} bytes", "cut it")
    try:
        text = line.decode("utf-8").rstrip("\r\n")
        return json.loads(text) if is_json else {"text": text}
    except UnicodeDecodeError:
        return InputError("line", "is not UTF-8", "save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        return InputError("line", f"is no JSON ({error})", "write an object a line")


def _answers(predictor, records):
    good = iter(predictor.answers([record for record in records
                                   if not isinstance(record, InputError)]))
    return [{"error": str(record)} if isinstance(record, InputError) else next(good)
            for record in records]
