"""Tables: the reading that fits a file, and no row lost silently."""

import csv
import gzip
import os
import random
import subprocess
import sys
import xml.etree.ElementTree
import zipfile
from pathlib import Path

import pytest

from configs.data_schema import ClassifyConfig
from configs.errors import InputError
from data.classify import tables
from data.classify.examples import find_label_names, make_examples
from data.classify.tables import read_table

REAL = Path("../shared/data/cls")
ORDINARY = ClassifyConfig()


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(tmp_path, name, text, **options):
    return read_table(write(tmp_path, name, text), ClassifyConfig(**options))


def refusal(tmp_path, name, text, **options):
    with pytest.raises(InputError) as caught:
        read(tmp_path, name, text, **options)
    return str(caught.value).replace(str(tmp_path), "")


def test_tabs_with_quotation_marks_that_are_text(tmp_path):
    """As in ChnSentiCorp and MRPC: Python's csv reader would merge the rows 2 to 4."""
    text = 'label\ttext\n1\t"So he says\n0\tplain\n1\t"quoted" and more\n0\tends here"\n'
    table = read(tmp_path, "a.tsv", text)
    assert table.columns["text"] == ['"So he says', "plain", '"quoted" and more', 'ends here"']
    assert table.lines == (2, 3, 4, 5)
    assert "quotation marks are text" in table.description() and "4 rows" in table.description()
    assert len(list(csv.reader(text.splitlines(), delimiter="\t"))) - 1 == 2


def test_commas_with_quotation_marks_that_enclose_fields(tmp_path):
    """As in the STS benchmark, with CRLF; marks inside twice, a line end inside."""
    text = 'text,label\r\n"one, two",1\r\n"say ""yes""\r\nand go",0\r\nplain,1\r\n'
    table = read(tmp_path, "a.csv", text)
    assert table.columns["text"] == ["one, two", 'say "yes"\nand go', "plain"]
    assert table.lines == (2, 3, 5)
    assert "quotation marks enclose fields" in table.description()


@pytest.mark.parametrize("writing, count", [
    (csv.QUOTE_MINIMAL, 60), (csv.QUOTE_ALL, 60), (csv.QUOTE_NONNUMERIC, 1)])
@pytest.mark.parametrize("name, delimiter", [("a.csv", ","), ("a.tsv", "\t")])
def test_what_a_csv_writer_writes_comes_back(tmp_path, name, delimiter, writing, count):
    draw = random.Random(1)
    rows = [["".join(draw.choices('ab ,\t"\n，', k=12)).strip() + "x", str(n % 2)]
            for n in range(count)]
    with open(tmp_path / name, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, delimiter=delimiter, quoting=writing).writerows(
            [["text", "label"], *rows])
    table = read_table(tmp_path / name, ORDINARY)
    assert [[*pair] for pair in zip(table.columns["text"], table.columns["label"])] == rows


@pytest.mark.parametrize("text, found", [
    # A few texts that begin and end with a mark are texts;
    ('label\ttext\n1\t"Go"\n0\tstay\n', ['"Go"', "stay"]),
    # all of them, or one with a mark written twice inside, are what a program wrote.
    ('label\ttext\n1\t"Go"\n0\t"stay"\n', ["Go", "stay"]),
    ('label\ttext\n1\t"Go ""on"""\n0\tstay\n', ['Go "on"', "stay"])])
def test_tabs_where_both_readings_fit(tmp_path, text, found):
    assert read(tmp_path, "a.tsv", text).columns["text"] == found


def test_quoting_can_be_stated(tmp_path):
    text = 'label\ttext\n1\t"Go"\n0\tstay\n'
    assert read(tmp_path, "a.tsv", text, quoting="quoted").columns["text"] == ["Go", "stay"]
    text = 'label,text\n1,"Go"\n'
    assert read(tmp_path, "a.csv", text, quoting="plain").columns["text"] == ['"Go"']
    assert refusal(tmp_path, "b.tsv", 'label\ttext\n1\tx\n0\t"a"b\n', quoting="quoted") == (
        "/b.tsv:3: has a quotation mark that encloses no field; give every row all fields "
        "(read as data.quoting: quoted)")


def test_a_field_without_end_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_LONGEST_FIELD", 100)
    assert refusal(tmp_path, "a.tsv", f'label\ttext\n1\t"{"a" * 200}"\n', quoting="quoted") == (
        "/a.tsv:2: cannot be read (field larger than field limit (100)); give every row all fields "
        "(read as data.quoting: quoted)")


def test_what_ends_a_line_and_what_does_not(tmp_path):
    """Byte order mark, CRLF, a line and a paragraph separator, no line end at the end."""
    text = "\ufefflabel\ttext\r\n1\ta\u2028b\x85c\u2029\r\n\r\n0\td"
    table = read(tmp_path, "a.tsv", text)
    assert table.columns == {"label": ["1", "0"], "text": ["a\u2028b\x85c\u2029", "d"]}
    assert "1 blank lines left out" in table.description()
    quoted = read(tmp_path, "a.csv", 'label,text\r\n1,a\u2028b\r\n0,"c, d"\r\n')
    assert quoted.columns["text"] == ["a\u2028b", "c, d"]
    packed = write(tmp_path, "a.tsv.gz", gzip.compress(text.encode()))
    assert read_table(packed, ORDINARY).columns == table.columns


@pytest.mark.parametrize("text", ["label\ttext_a\n1\t好\n", "qid\tlabel\ttext_a\n7\t1\t好\n",
                                  "text_a\tlabel\n好\t1\n"])
def test_columns_are_found_by_their_names(tmp_path, text):
    """ChnSentiCorp goes about in several layouts."""
    options = ClassifyConfig(text_column="text_a")
    examples = make_examples(read(tmp_path, "dev.tsv", text), options, ("0", "1"))
    assert (examples.texts, examples.labels.tolist()) == (("好",), [1])


def test_the_locale_does_not_matter(tmp_path):
    path = write(tmp_path, "a.tsv", "\ufefflabel\ttext\r\n1\t好 é\r\n0\tx\r\n")
    code = ("from configs.data_schema import ClassifyConfig\n"
            "from data.classify.tables import read_table\n"
            f"print(ascii(read_table({str(path)!r}, ClassifyConfig()).columns))")
    done = subprocess.run([sys.executable, "-X", "utf8=0", "-c", code], capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"})
    assert done.stdout.strip() == r"{'label': ['1', '0'], 'text': ['\u597d \xe9', 'x']}"


def test_fields_between_spaces(tmp_path):
    table = read(tmp_path, "stsa.binary.train", "1 a stirring , funny film\n0 bad\n",
                 format="spaces", columns=["label", "text"])
    assert table.columns == {"label": ["1", "0"], "text": ["a stirring , funny film", "bad"]}


def test_words_a_line(tmp_path):
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP I B-PER\n"
    table = read(tmp_path, "eng.conll", text)
    assert table.columns["text"] == [["EU", "rejects"], ["Peter"]]
    assert table.columns["label"] == [["B-ORG", "O"], ["B-PER"]]
    assert table.lines == (3, 7) and "3 words" in table.description()
    table = read(tmp_path, "eng.train", text, format="conll",
                 columns=["text", "part", "label", "entity"])
    assert table.columns["label"] == [["B-NP", "B-VP"], ["I"]]
    assert refusal(tmp_path, "a.conll", "EU B-ORG\nrejects\n") == (
        "/a.conll:2: has 1 columns where 2 are due; give every word all columns")


def test_json_lines(tmp_path):
    table = read(tmp_path, "a.json", '{"text": "a\\nb", "label": 100}\n\n{"label": 3, "text": ""}')
    assert table.columns == {"text": ["a\nb", ""], "label": [100, 3]}
    assert table.lines == (1, 3)
    assert refusal(tmp_path, "a.jsonl", '{"text": 1, "label": 2}\n{"text": 1}\n') == (
        "/a.jsonl:2: has no 'label', but 'text'; the first row has 'text', 'label'")
    table = read(tmp_path, "a.jsonl", '{"text": "x", "label": 2, "keywords": ""}\n'
                                      '{"text": "y", "label": 1, "more": 3}\n')
    assert table.columns == {"text": ["x", "y"], "label": [2, 1]}  # what no recipe reads may lack
    assert refusal(tmp_path, "a.jsonl", '[1]\n') == (
        "/a.jsonl:1: is no JSON object; give an object a line")
    assert refusal(tmp_path, "a.jsonl", '{}\n{"a"\n').startswith("/a.jsonl:2: broken JSON")


@pytest.mark.parametrize("name, text, says", [
    ("a.tsv", "", "/a.tsv: has no row; give a file with rows"),
    ("a.tsv", "label\ttext\n", "/a.tsv: has no row; give a file with rows"),
    ("a.jsonl", "\n\n", "/a.jsonl: has no row; give a file with rows"),
    ("a.conll", "\n", "/a.conll: has no row; give a file with rows"),
    ("a.tsv", "label\ttext\n1\tx\n0\n",
     "/a.tsv:3: has 1 fields where 2 are due; give every row all fields"),
    ("a.tsv", "label\ttext\n1\tx\ty\n",
     "/a.tsv:2: has 3 fields where 2 are due; give every row all fields"),
    # Whose fault it is: the reading that goes further tells it.
    ("a.tsv", 'label\ttext\n1\t"x\n0\ty"\n1\t"z" w\n0\n',
     "/a.tsv:5: has 1 fields where 2 are due; give every row all fields "
     "(read as data.quoting: plain)"),
    ("a.csv", 'text,label\n"a, b",1\n"c",0\n"d"\n',
     "/a.csv:4: has 1 fields where 2 are due; give every row all fields "
     "(read as data.quoting: quoted)"),
    ("a.tsv", "text\ttext\n1\t2\n", "/a.tsv:1: a column stands twice in 'text', 'text'; name each "
                                    "once, or write data.columns if this is a row"),
    ("a.txt", "x\n", "/a.txt: its name tells no format; name it .tsv, .csv, .json, .jsonl, .conll, "
                     ".bio, or write data.format"),
    ("a.tsv", b"label\ttext\n1\t\xff\n",
     "/a.tsv:2: byte 2 of the line is not UTF-8; convert the file to UTF-8")])
def test_refusals(tmp_path, name, text, says):
    assert refusal(tmp_path, name, text) == says


def test_missing_file_and_names(tmp_path):
    with pytest.raises(InputError, match="nowhere.tsv: cannot be read"):
        read_table(tmp_path / "nowhere.tsv", ORDINARY)
    assert refusal(tmp_path, "a.txt", "1 x\n", format="spaces") == (
        "/a.txt: fields between spaces have no names; write data.columns, e.g. [label, text]")
    assert refusal(tmp_path, "a.tsv", "label\ttext\n1\tx\n", columns=["label", "text"]) == (
        "/a.tsv:1: is the line of names that data.columns has; remove data.columns")
    table = read(tmp_path, "a.tsv", "Label\tText a\n1\tx\n")
    with pytest.raises(InputError) as caught:
        table.column("text", "text_column")
    assert str(caught.value) == (f"{tmp_path}/a.tsv: has no column 'text', but 'Label', 'Text a'; "
                                 "write data.text_column: NAME, or data.columns if the file has "
                                 "no line of names")


MRPC = {"text_column": "#1 String", "pair_column": "#2 String", "label_column": "Quality"}
STSB = {"columns": ["sentence1", "sentence2", "label"], "text_column": "sentence1",
        "pair_column": "sentence2", "objective": "regression"}
SST2 = {"columns": ["label", "text"], "format": "spaces"}
LCQMC = {"columns": ["text_a", "text_b", "label"], "text_column": "text_a",
         "pair_column": "text_b"}
TNEWS = {"text_column": "sentence", "label_column": "label_desc"}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the files of GLUE and CLUE")
@pytest.mark.parametrize("name, rows, labels, options", [
    ("chnsenticorp/train.tsv", 9600, 2, {"text_column": "text_a"}),
    ("chnsenticorp/dev.tsv", 1200, 2, {"text_column": "text_a"}),
    ("msr/msr-para-train.tsv", 3576, 2, MRPC), ("msr/msr-para-val.tsv", 500, 2, MRPC),
    ("msr/msr-para-test.tsv", 1725, 2, MRPC),
    ("stsb/stsb-en-train.csv", 5749, 0, STSB), ("stsb/stsb-zh-dev.csv", 1500, 0, STSB),
    ("stsb/stsb-en-test.csv", 1379, 0, STSB),
    ("sst2/stsa.binary.train", 6920, 2, SST2), ("sst2/stsa.binary.dev", 872, 2, SST2),
    ("lcqmc/dev.tsv", 8802, 2, LCQMC), ("fewclue/tnews/train_few_all.json", 1185, 15, TNEWS)])
def test_every_row_of_the_real_files(name, rows, labels, options):
    options = ClassifyConfig(**options)
    table = read_table(REAL / name, options)
    names = find_label_names(table, options) if labels else ()
    assert (len(table), len(names)) == (rows, labels)
    examples = make_examples(table, options, names)
    assert len(examples.texts) == len(examples.labels) == rows and all(examples.texts)
    assert not any("\t" in text or "\n" in text for text in examples.texts)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the files of GLUE and CLUE")
@pytest.mark.parametrize("year, rows, others", [(1, 567, 284), (2, 400, 190), (3, 800, 388)])
def test_every_row_of_rte(tmp_path, year, rows, others):
    """The challenges' XML, laid out as GLUE does: tabs, and quotation marks that are text."""
    with zipfile.ZipFile(REAL / "nltk/rte.zip") as archive:
        root = xml.etree.ElementTree.fromstring(archive.read(f"rte/rte{year}_dev.xml"))
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for pair in root:
        label = pair.get("value") or pair.get("entailment")
        texts = [" ".join(part.text.split()) for part in pair]
        lines.append("\t".join([pair.get("id"), *texts, "entailment" if label in ("TRUE", "YES")
                                else "not_entailment"]))
    options = ClassifyConfig(text_column="sentence1", pair_column="sentence2")
    table = read(tmp_path, "dev.tsv", "\n".join(lines) + "\n", text_column="sentence1")
    assert find_label_names(table, options) == ("entailment", "not_entailment")
    examples = make_examples(table, options, ("entailment", "not_entailment"))
    assert len(examples.texts) == rows and examples.labels.sum() == others
    assert "quotation marks are text" in table.description()
