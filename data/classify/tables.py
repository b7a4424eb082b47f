"""Tables of texts: tsv, csv, JSON lines and CoNLL files, of which no row is lost silently.

A tab-separated file may hold quotation marks that are text (GLUE, CLUE) or that enclose fields
(spreadsheets); reading the one as the other merges rows without an error. So both readings are
made, and what is read says which one holds.
"""

import csv
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping, Optional, Tuple

from configs.errors import InputError
from data.sources.streams import COMPRESSED, read_blocks, read_lines

_FORMATS = {".tsv": "tsv", ".csv": "csv", ".json": "jsonl", ".jsonl": "jsonl", ".conll": "conll",
            ".bio": "conll"}
_DELIMITERS = {"tsv": "\t", "csv": ","}
_QUOTINGS = {"plain": "quotation marks are text", "quoted": "quotation marks enclose fields",
             "none": "no quotation marks"}
_LONGEST_FIELD = 1 << 24
_DOCUMENT_MARK = "-DOCSTART-"


@dataclass(frozen=True)
class Table:
    """Columns of a file, all of one length."""

    path: str
    columns: Mapping[str, list]
    """Cells by the name of the column: text, or what JSON holds, or a sentence's words"""
    lines: Tuple[int, ...]
    """The line that each row begins in"""
    notes: Tuple[str, ...] = ()
    """What a user should know of how the file was read"""

    def __len__(self):
        return len(self.lines)

    def column(self, name, key):
        """The cells of a column.

        Args:
            name: of the column.
            key: that names it in the recipe, for the error.

        Raises:
            InputError: there is no such column.
        """
        if name not in self.columns:
            raise InputError(self.path, f"has no column '{name}', but {_listed(self.columns)}",
                             f"write data.{key}: NAME, or data.columns if the file has no line "
                             "of names")
        return self.columns[name]

    def place(self, row):
        """Where a row is, for an error."""
        return f"{self.path}:{self.lines[row]}"

    def description(self):
        """A line for a reader."""
        return f"{self.path}: {', '.join([f'{len(self):,} rows', *self.notes])}"


def read_table(path, options):
    """Read a file as its name and the options say.

    Args:
        path: UTF-8 with or without byte order mark; ``.gz``, ``.bz2``, ``.xz`` and ``.zst`` are
            unpacked.
        options: a ``ClassifyConfig``.

    Returns:
        Table.

    Raises:
        InputError: the file cannot be read, is empty, or a row has another number of fields.
    """
    kind = options.format if options.format != "auto" else _format_of(path)
    text = "".join(piece for _, piece in read_lines(path, read_blocks(Path(path))))
    if kind == "jsonl":
        used = options.text_column, options.pair_column, options.label_column
        table = _read_json_lines(str(path), text, used)
    elif kind == "conll":
        table = _read_conll(str(path), text, options)
    else:
        table = _read_fields(str(path), text, kind, options)
    if not len(table):
        raise InputError(path, "has no row", "give a file with rows")
    return table


def _format_of(path):
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    if not suffixes or suffixes[-1].lower() not in _FORMATS:
        raise InputError(path, "its name tells no format",
                         f"name it {', '.join(_FORMATS)}, or write data.format")
    return _FORMATS[suffixes[-1].lower()]


def _read_json_lines(path, text, used):
    rows, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}", f"broken JSON ({error})",
                             "give an object a line") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}", "is no JSON object", "give an object a line")
        rows.append(row)
        lines.append(number)
    columns = {name: [] for name in (rows[0] if rows else ())}
    for number, row in zip(lines, rows):
        for name in list(columns):
            if name in row:
                columns[name].append(row[name])
            elif name in used:
                raise InputError(f"{path}:{number}", f"has no '{name}', but {_listed(row)}",
                                 f"the first row has {_listed(columns)}")
            else:
                del columns[name]
    return Table(path, columns, tuple(lines), ("JSON lines",))


def _read_conll(path, text, options):
    """Sentences of a word a line, its columns between white space, a blank line after each."""
    sentences, starts, lines, width = [], [], text.split("\n"), len(options.columns)
    is_open = False
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or fields[0] == _DOCUMENT_MARK:
            is_open = False
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise InputError(f"{path}:{number}", f"has {len(fields)} columns where {width} are due",
                             "give every word all columns")
        if not is_open:
            sentences.append([])
            starts.append(number)
            is_open = True
        sentences[-1].append(fields)
    names = options.columns or [options.text_column, *map(str, range(2, width)),
                                options.label_column][:width]
    columns = {name: [[word[place] for word in sentence] for sentence in sentences]
               for place, name in enumerate(names)}
    words = sum(map(len, sentences))
    return Table(path, columns, tuple(starts), (f"{words:,} words, a word a line",))


@dataclass(frozen=True)
class _Reading:
    """A file's fields in one of the two ways, up to the first fault."""

    quoting: str
    rows: list
    lines: list
    blank_lines: int
    fault: Optional[Tuple[int, str]] = None
    """Line and what is wrong there"""

    @property
    def reach(self):
        """How far it went, to compare readings by."""
        return self.fault[0] if self.fault else float("inf")


def _read_fields(path, text, kind, options):
    """A file of a row a line, or with quotation marks of a row in some lines."""
    if kind != "spaces":
        reading = _read_delimited(text, _DELIMITERS[kind], options)
    elif options.columns:
        parts = len(options.columns) - 1
        reading = replace(_read_plain(text, lambda line: line.split(" ", parts), parts + 1),
                          quoting="none")
    else:
        raise InputError(path, "fields between spaces have no names",
                         "write data.columns, e.g. [label, text]")
    if reading.fault:
        line, problem = reading.fault
        read_as = "" if reading.quoting == "none" else f" (read as data.quoting: {reading.quoting})"
        raise InputError(f"{path}:{line}", problem, "give every row all fields" + read_as)
    return _as_table(path, reading, kind, options)


def _as_table(path, reading, kind, options):
    """The rows by the names of their columns, and what is to be said of the reading."""
    rows, lines = reading.rows, reading.lines
    if options.columns:
        if rows and rows[0] == list(options.columns):
            raise InputError(f"{path}:{lines[0]}", "is the line of names that data.columns has",
                             "remove data.columns")
        names = options.columns
    else:
        names = [cell.strip() for cell in rows[0]] if rows else []
        rows, lines = rows[1:], lines[1:]
    if len(set(names)) < len(names):
        raise InputError(f"{path}:1", f"a column stands twice in {_listed(names)}",
                         "name each once, or write data.columns if this is a row")
    notes = [kind] if kind == "spaces" else [kind, _QUOTINGS[reading.quoting]]
    if reading.blank_lines:
        notes.append(f"{reading.blank_lines:,} blank lines left out")
    columns = {column: [row[place] for row in rows] for place, column in enumerate(names)}
    return Table(path, columns, tuple(lines), tuple(notes))


def _read_delimited(text, delimiter, options):
    """The reading that holds: that of ``data.quoting``, or the one that fits the file.

    Where only one of them gives every row the same number of fields, it is that one; where none
    does, the one that goes further, for its fault is the file's. Where both do, see
    ``_encloses``.
    """
    width = len(options.columns) or None
    plain = _read_plain(text, lambda line: line.split(delimiter), width)
    if '"' not in text:
        return replace(plain, quoting="none")
    if options.quoting == "plain":
        return plain
    quoted = _read_quoted(text, delimiter, width)
    if options.quoting == "quoted":
        return quoted
    if plain.fault or quoted.fault:
        if plain.reach == quoted.reach:
            return quoted if delimiter == "," else plain
        return max(plain, quoted, key=lambda reading: reading.reach)
    return quoted if _encloses(plain, quoted, delimiter) else plain


def _encloses(plain, quoted, delimiter):
    """Whether quotation marks enclose fields, where both readings are without fault.

    In csv they do. Between tabs they do where a mark inside is written twice, or where every
    field of some column is enclosed; else a few texts happen to begin and end with one.
    """
    if plain.rows == quoted.rows:
        return False
    if delimiter == ",":
        return True
    body = plain.rows[1:] or plain.rows
    is_enclosed = [[len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in row] for row in body]
    if any(all(column) for column in zip(*is_enclosed)):
        return True
    return any('""' in cell[1:-1] for row in body for cell in row
               if len(cell) > 1 and cell[0] == cell[-1] == '"')


def _read_plain(text, split, width):
    rows, lines, blank = [], [], 0
    split_lines = text.split("\n")
    if not split_lines[-1]:
        split_lines.pop()
    for number, line in enumerate(split_lines, 1):
        if not line.strip():
            blank += 1
            continue
        fields = split(line)
        width = width or len(fields)
        if len(fields) != width:
            return _Reading("plain", rows, lines, blank, (number, _fields_problem(fields, width)))
        rows.append(fields)
        lines.append(number)
    return _Reading("plain", rows, lines, blank)


def _read_quoted(text, delimiter, width):
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    rows, lines, blank = [], [], 0
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return _Reading("quoted", rows, lines, blank)
        except csv.Error as error:
            problem = (f"cannot be read ({error})" if "field limit" in str(error) else
                       "has a quotation mark that encloses no field")
            return _Reading("quoted", rows, lines, blank, (line, problem))
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            blank += 1
            continue
        width = width or len(fields)
        if len(fields) != width:
            return _Reading("quoted", rows, lines, blank, (line, _fields_problem(fields, width)))
        rows.append(fields)
        lines.append(line)


def _fields_problem(fields, width):
    return f"has {len(fields)} fields where {width} are due"


def _listed(names):
    return ", ".join(f"'{name}'" for name in names)
