"""Raw text files to documents: found, cut into raw documents, and read as sentences."""

import glob
import itertools
import re
from pathlib import Path

from configs.errors import InputError
from data.sources.documents import (RawDocument, read_extracted, read_json, read_plain,
                                    split_documents)
from data.sources.dump import read_pages
from data.sources.sentences import is_prose, split_sentences
from data.sources.streams import BLOCK, COMPRESSED, read_blocks
from data.sources.wikitext import strip_wikitext

__all__ = ["RawDocument", "find_sources", "raw_documents", "parse_document"]

_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark and white space
# Format characters (zero-width and bidirectional marks, soft hyphens, a byte order mark) and
# the halves of characters that JSON can escape. BERT's tokenizer drops the former as well;
# in words they would mislead what splits sentences and Chinese words.
_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff]")

_READERS = {
    "text": read_plain,
    "json": read_json,
    "extracted": read_extracted,
    "wikitext": lambda document, settings: strip_wikitext(document.text),
}


def find_sources(patterns):
    """The files that names or globs stand for, sorted within each pattern.

    Raises:
        InputError: there is no pattern, or one that matches no file.
    """
    if not patterns:
        raise InputError("data.sources", "no text to prepare", "name files or globs")
    paths = []
    for pattern in patterns:
        # A name with brackets in it may be a file as it stands.
        names = [pattern] if Path(pattern).is_file() else glob.glob(str(pattern), recursive=True)
        matches = sorted(Path(name) for name in names)
        files = [match for match in matches if match.is_file()]
        if not files:
            raise InputError("data.sources", f"'{pattern}' matches no file", "check the path")
        paths.extend(path for path in files if path not in paths)
    return paths


def raw_documents(path, progress=None):
    """Stream the RawDocuments of a file; ``parse_document`` reads them, in any process.

    The suffix tells the compression (.gz .bz2 .xz .zst) and JSON lines; how the text begins
    tells a Wikipedia dump, WikiExtractor's output and plain text apart. A file without text
    has no documents.

    Args:
        path: the file.
        progress: called now and then with the bytes of the file that are read.

    Raises:
        InputError: the file cannot be read, is cut short, is not UTF-8 or no such format.
    """
    path = Path(path)
    blocks = read_blocks(path, progress)
    head = _head(blocks)
    kind, blocks = _kind(path, head), itertools.chain([head], blocks)
    return read_pages(path, blocks) if kind == "wikitext" else split_documents(path, blocks, kind)


def _head(blocks):
    """The first blocks, up to some text: a block may be of any size."""
    head = b""
    for block in blocks:
        head += block
        if len(head.lstrip(_BLANK)) > 16 or len(head) > BLOCK:
            break
    return head


def _kind(path, head):
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    suffix = suffixes[-1] if suffixes else ""
    begin = head.lstrip(_BLANK)
    if suffix in _JSON_SUFFIXES or begin.startswith(b'{"id":'):  # wiki_00 has no suffix
        return "json"
    # Dumps in parts have odd suffixes, such as .xml-p1p41242.
    if suffix == ".xml" or begin.startswith((b"<?xml", b"<mediawiki")):
        return "wikitext"
    return "extracted" if begin.startswith(b"<doc ") else "text"


def parse_document(document, settings):
    """The sentences of a RawDocument: tidy, none empty; a list that may itself be empty.

    Args:
        document: what ``raw_documents`` yields.
        settings: a DataConfig; ``text_field``, ``language`` and ``lines`` are used. Lines of
            other formats than plain text are always paragraphs.

    Raises:
        InputError: malformed JSON, a missing field, or a WikiExtractor document cut short.
    """
    text = _READERS[document.kind](document, settings)
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    if document.kind == "text" and settings.lines == "sentences":
        return [line for line in lines if line]
    sentences = [sentence for line in lines if line
                 for sentence in split_sentences(line, settings.language)]
    if document.kind == "wikitext":
        sentences = [sentence for sentence in sentences if is_prose(sentence)]
    return sentences
