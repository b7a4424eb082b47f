"""Text files to raw documents, still unread: plain text, JSON lines, WikiExtractor's output."""

import html
import json
import re
from typing import NamedTuple

from configs.errors import InputError
from data.sources.streams import check_size, read_lines


class RawDocument(NamedTuple):
    """One document as its source holds it; small and picklable, to be read in a worker."""

    kind: str  # "text", "json", "extracted" or "wikitext"
    place: str  # file:line where it begins (a dump: file and title), for error messages
    text: str


# What stands between two documents. Each begins with a newline, which makes the search fast.
_SEPARATORS = {
    "text": re.compile(r"\n(?:[^\S\n]*\n)+"),
    "json": re.compile(r"\n"),
    "extracted": re.compile(r"\n(?=<doc )"),
}


def split_documents(path, blocks, kind):
    """Yield the RawDocuments of a text file, from its blocks of bytes.

    Raises:
        InputError: as ``read_lines`` does, or a document that is too large to be one.
    """
    parts, start = [], 1
    for number, lines in read_lines(path, blocks):
        # The newline before the first line lets a separator begin at a block's edge.
        lines, begin = "\n" + lines, 1
        for separator in _SEPARATORS[kind].finditer(lines):
            parts.append(lines[begin:separator.start()])
            yield from _document(kind, path, start, parts)
            number += lines.count("\n", begin, separator.end())
            parts, start, begin = [], number, separator.end()
        parts.append(lines[begin:])
        check_size(f"{path}:{start}", sum(map(len, parts)))
    yield from _document(kind, path, start, parts)


def _document(kind, path, line, parts):
    text = "".join(parts)
    if text and not text.isspace():
        yield RawDocument(kind, f"{path}:{line}", text)


def read_plain(document, settings):
    """The document as it is."""
    return document.text


def read_json(document, settings):
    """The text of a JSON line, from its field ``settings.text_field``.

    Raises:
        InputError: the line is no JSON object, or the field is missing or holds no text.
    """
    try:
        row = json.loads(document.text)
    except (ValueError, RecursionError) as error:
        raise InputError(document.place, f"is not JSON ({getattr(error, 'msg', error)})",
                         "write one JSON object a line") from None
    if not isinstance(row, dict):
        raise InputError(document.place, f"holds a JSON {type(row).__name__}, not an object",
                         "write one JSON object a line, e.g. with jq -c '.[]'")
    text = row.get(settings.text_field)
    if not isinstance(text, str):
        problem = "holds no text" if settings.text_field in row else "is missing"
        others = [name for name, value in row.items() if isinstance(value, str)][:8]
        raise InputError(document.place, f"the field '{settings.text_field}' {problem}",
                         f"set data.text_field, perhaps to one of: {', '.join(others)}"
                         if others else "remove the line")
    # With "revid" it is WikiExtractor's --json output, which is escaped and may begin with
    # the title.
    return _untitled(html.unescape(text), row.get("title")) if "revid" in row else text


def read_extracted(document, settings):
    """The paragraphs of a ``<doc>`` of WikiExtractor.

    Raises:
        InputError: the ``<doc>`` is not closed.
    """
    header, _, body = document.text.rstrip().partition("\n")
    if not body.endswith("</doc>"):
        raise InputError(document.place, "the <doc> is not closed by </doc>",
                         "the file was cut short or is damaged: extract it again")
    title = re.search(r'title="(.*)">', header)
    body = html.unescape(body[:-len("</doc>")])
    return _untitled(body, title and html.unescape(title[1]))


def _untitled(text, title):
    first, _, rest = text.partition("\n")
    return rest if first == title else text
