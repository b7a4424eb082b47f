"""Raw text files to documents: a sentence a line, a blank line between documents."""

import glob
import gzip
import zlib
from pathlib import Path

from configs.errors import InputError


def find_sources(patterns):
    """The files that names or globs stand for, sorted within each pattern.

    Raises:
        InputError: there is no pattern, or one that matches no file.
    """
    if not patterns:
        raise InputError("data.sources", "no text to prepare", "name files or globs")
    paths = []
    for pattern in patterns:
        matches = sorted(Path(match) for match in glob.glob(str(pattern), recursive=True))
        files = [match for match in matches if match.is_file()]
        if not files:
            raise InputError("data.sources", f"'{pattern}' matches no file", "check the path")
        paths.extend(path for path in files if path not in paths)
    return paths


def read_documents(path):
    """Yield the documents of a file, each a list of its sentences, without blank lines.

    Raises:
        InputError: the file cannot be read, is cut short or is not UTF-8.
    """
    sentences = []
    for line in _lines(path):
        sentence = line.strip()
        if sentence:
            sentences.append(sentence)
        elif sentences:
            yield sentences
            sentences = []
    if sentences:
        yield sentences


def _lines(path):
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    # Only a newline ends a line: U+2028 and the like are text.
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(f"{path}:{number}", f"byte {error.start} of the line is not "
                                     "UTF-8", "convert the file to UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(path, f"cannot be read ({error})", "copy the file again") from None
