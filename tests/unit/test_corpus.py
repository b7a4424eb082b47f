"""Raw text of every format and compression to sentences, and what bad text is answered."""

import bz2
import gzip
import json
import lzma
import pickle
import random
import tracemalloc
from importlib import metadata
from pathlib import Path

import pytest
import zstandard

from configs.errors import InputError
from configs.schema import DataConfig
from data.corpus import RawDocument, parse_document, raw_documents
from data.sources import streams
from data.sources.wikitext import strip_wikitext

SAMPLE = Path("../shared/data/raw/enwiki-latest-pages-articles1-shortened.xml.bz2")
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
            ".zst": zstandard.ZstdCompressor().compress}
# Python 3.9 has only sentencex 0.6, which does not end a sentence at a closing quotation mark.
needs_sentencex_1 = pytest.mark.skipif(metadata.version("sentencex").startswith("0."),
                                       reason="sentencex 0.6 splits otherwise")
MARKUP = ("[[", "]]", "{{", "}}", "{|", "|}", "<ref", "</", "''", "&nbsp;", "==")

DOCUMENTS = [["Dr. Smith went to Washington.", "He stayed – for a week."],
             ["A second text begins here & now.", "It ends."]]
PAGE = """<page><title>{title}</title><ns>{ns}</ns><id>1</id>{redirect}<revision><id>2</id>
<model>wikitext</model><text xml:space="preserve">{text}</text></revision></page>\n"""
FORMATS = {
    "plain.txt": "\n\n".join("\n".join(document) for document in DOCUMENTS),
    "lines.jsonl": "\n".join(json.dumps({"text": " ".join(d)}) for d in DOCUMENTS),
    "lines.json": "\n".join(json.dumps({"text": " ".join(d)}, ensure_ascii=False)
                            for d in DOCUMENTS),
    "wiki_00": "".join(f'<doc id="{n}" url="?curid={n}" title="T {n}">\nT {n}\n\n'
                       f'{" ".join(d).replace("&", "&amp;")}\n\n</doc>\n'
                       for n, d in enumerate(DOCUMENTS)),
    "wiki_01": "".join(json.dumps({
        "id": str(n), "revid": "9", "url": "", "title": "T",
        "text": "T\n" + " ".join(d).replace("&", "&amp;")}) + "\n"
        for n, d in enumerate(DOCUMENTS)),
    "articles.xml": "<mediawiki>" + "".join(
        PAGE.format(title="T", ns=0, redirect="", text=" ".join(d).replace("&", "&amp;amp;"))
        for d in DOCUMENTS) + "</mediawiki>",
}


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, **settings):
    """The documents of a file, each a list of sentences."""
    settings = DataConfig(**settings)
    return [parse_document(document, settings) for document in raw_documents(path)]


def split(text, language="en"):
    """The sentences of a paragraph."""
    return parse_document(RawDocument("text", "t:1", text),
                          DataConfig(language=language, lines="paragraphs"))


# Formats

@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_and_compression_gives_the_same_documents(tmp_path, name, suffix):
    content = COMPRESS[suffix](FORMATS[name].encode())
    assert read(write(tmp_path, name + suffix, content)) == DOCUMENTS


def test_archives_of_several_parts_are_read_to_the_end(tmp_path):
    for suffix in (".gz", ".bz2", ".xz", ".zst"):
        parts = [COMPRESS[suffix](part.encode()) for part in ("a b\n\nc ", "d\n", "\ne")]
        path = write(tmp_path, "parts.txt" + suffix, b"".join(parts))
        assert read(path) == [["a b"], ["c d"], ["e"]], suffix


def test_zstandard_archives_may_begin_with_a_frame_to_skip(tmp_path):
    skipped = bytes([0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0]) + b"skip"  # as pzstd writes it
    content = skipped + COMPRESS[".zst"](FORMATS["wiki_00"].encode())
    assert read(write(tmp_path, "wiki_00.zst", content)) == DOCUMENTS


def test_dump_parts_with_odd_suffixes_are_dumps(tmp_path):
    content = bz2.compress(FORMATS["articles.xml"].encode())
    path = write(tmp_path, "enwiki-20240101-pages-articles1.xml-p1p41242.bz2", content)
    assert read(path) == DOCUMENTS


def test_lines_are_sentences_or_paragraphs(tmp_path):
    path = write(tmp_path, "a.txt", "One. Two.\nThree\n")
    assert read(path) == [["One. Two.", "Three"]]
    assert read(path, lines="paragraphs") == [["One.", "Two.", "Three"]]


def test_another_text_field(tmp_path):
    path = write(tmp_path, "a.ndjson", '{"body": "One.\\nTwo.", "text": "no"}\n')
    assert read(path, text_field="body") == [["One.", "Two."]]


@pytest.mark.parametrize("content", [
    b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nThree.\r\n",  # byte order mark, Windows line ends
    b"\n \n\t\n\nOne.\nTwo.\n \t \nThree.",  # blank lines that are not empty, no last newline
    "One.\nTwo.\n\u3000\u00a0\nThree.\n\n\n\n".encode(),
])
def test_line_ends_and_blank_lines(tmp_path, content):
    assert read(write(tmp_path, "a.txt", content)) == [["One.", "Two."], ["Three."]]


def test_no_blank_line_is_one_document(tmp_path):
    assert read(write(tmp_path, "a.txt", b"One.\r\nTwo.\r\nThree.")) == [["One.", "Two.", "Three."]]


def test_only_newlines_end_lines_and_white_space_is_tidied(tmp_path):
    text = "One\u2028line \x85 with\u00a0much\t  space\x0c.\nZero\u200bwidth\u200f marks\ufeff.\n"
    assert read(write(tmp_path, "a.txt", text)) == [["One line with much space .",
                                                     "Zerowidth marks."]]


def test_surrogates_of_json_leave_no_trace(tmp_path):
    path = write(tmp_path, "a.jsonl", r'{"text": "Half \ud83d a face, whole \ud83d\ude00."}')
    assert read(path) == [["Half a face, whole 😀."]]


def test_empty_files_and_documents(tmp_path):
    for name in ("a.txt", "a.jsonl", "a"):
        assert read(write(tmp_path, name, b"")) == []
        assert read(write(tmp_path, name, b"\n \n\t\r\n")) == []
    assert read(write(tmp_path, "a.jsonl", '{"text": ""}\n{"text": " \\n"}')) == [[], []]


def test_blocks_may_end_anywhere(tmp_path, monkeypatch):
    paths = [write(tmp_path, name, text) for name, text in FORMATS.items()]
    paths.append(write(tmp_path, "crlf.txt", FORMATS["plain.txt"].replace("\n", "\r\n")))
    for size in (*range(1, 20), 64, 333):
        monkeypatch.setattr(streams, "BLOCK", size)
        for path in paths:
            assert read(path) == DOCUMENTS, (size, path)


def test_places_are_the_lines_where_documents_begin(tmp_path, monkeypatch):
    path = write(tmp_path, "a.txt", "\n\nOne\ntwo\n\n \nthree\n\nfour")
    for size in (1, 5, 1 << 18):
        monkeypatch.setattr(streams, "BLOCK", size)
        places = [document.place for document in raw_documents(path)]
        assert places == [f"{path}:3", f"{path}:7", f"{path}:9"]
    path = write(tmp_path, "wiki_00", "\n" + FORMATS["wiki_00"])
    assert [document.place for document in raw_documents(path)] == [f"{path}:2", f"{path}:8"]


def test_raw_documents_are_picklable_and_progress_is_told(tmp_path):
    read_bytes = []
    path = write(tmp_path, "a.txt.gz", gzip.compress(FORMATS["plain.txt"].encode()))
    documents = list(raw_documents(path, read_bytes.append))
    assert pickle.loads(pickle.dumps(documents)) == documents
    assert read_bytes[-1] == path.stat().st_size


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """The peak is the same for a file of 100 blocks and one of 1000."""
    def peak(path):
        tracemalloc.start()
        assert sum(1 for _ in raw_documents(path)) > 1000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    monkeypatch.setattr(streams, "BLOCK", 1 << 10)
    text = FORMATS["plain.txt"] + "\n\n"
    pages = FORMATS["articles.xml"][len("<mediawiki>"):-len("</mediawiki>")]
    for name, begin, piece, end in (("a.txt.gz", "", text, ""),
                                    ("a.xml.gz", "<mediawiki>", pages, "</mediawiki>")):
        small, large = (write(tmp_path, f"{size}{name}", gzip.compress(
            (begin + piece * (size // len(piece)) + end).encode())) for size in (300000, 3000000))
        assert peak(large) < 1.5 * peak(small), name  # it is 10 times as large


# Sentences

@pytest.mark.parametrize("paragraph, expected", [
    ("Dr. Smith went to Washington. He met Mr. J. R. Jones at 5 p.m. on Jan. 5. \"Is it so?\" he "
     "asked.",
     ["Dr. Smith went to Washington.", "He met Mr. J. R. Jones at 5 p.m. on Jan. 5.",
      "\"Is it so?\" he asked."]),
    ("The U.S. is big.  It costs $3.50, e.g. here! Really?! Yes… maybe",
     ["The U.S. is big.", "It costs $3.50, e.g. here!", "Really?!", "Yes… maybe"]),
])
def test_english_sentences(paragraph, expected):
    assert split(paragraph) == expected


@needs_sentencex_1
@pytest.mark.parametrize("paragraph, expected", [
    ("他说：“今天天气很好……。”然后就走了。真的吗？！是的；他走了",
     ["他说：“今天天气很好……。”", "然后就走了。", "真的吗？！", "是的；他走了"]),
    ("价格是3.14元。他问：「去吗？」我答：去！",
     ["价格是3.14元。", "他问：「去吗？」", "我答：去！"]),
])
def test_chinese_sentences(paragraph, expected):
    assert split(paragraph, "zh") == expected


@needs_sentencex_1
def test_a_book_in_one_paragraph_loses_nothing_and_takes_little_time():
    text = "“他说（今天好）。”然后走了。" * 20000  # minutes, if split in one piece
    expected = ["“他说（今天好）。”", "然后走了。"]
    found = split(text, "zh")
    assert "".join(found) == text and found[:2] == expected and len(found) == 40000
    endless = "word " * 3000
    assert " ".join(split(endless)).replace(" ", "") == endless.replace(" ", "")


def test_sentence_splitter_takes_any_characters():
    """The library panics on some white space, and must not be given it."""
    assert split("http://a.b D\u2028.") == ["http://a.b D ."]
    draw = random.Random(0)
    pieces = [*"aZ .!?…。！？“”「」()（）\"'1\u2028\u2003\u3000\u200b\x85\t😀é،।", "Dr. ", "e.g. ",
              "http://a.b ", "... ", "中"]
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randrange(40)))
        for language in ("en", "zh"):
            letters = "".join("".join(split(text, language)).split())
            assert letters == "".join(text.replace("\u200b", "").split())


# Wikipedia

WIKITEXT = """== A heading first. ==
{{Infobox country
| name = {{lang|fr|X}}
| note = [[a|b]] {{small|{{nowrap|c}}}}
}}
[[File:A.jpg|thumb|A [[caption]] with [http://x.org a link] &amp; more.]]
'''Albedo''' ({{IPAc-en|a}}; {{lang|la|albus}} "white")<ref name="a">{{cite web|url=x}} No.</ref> \
is the ''[[reflectivity|reflecting power]]'' of a [[surface]]s.<ref name=b /><!-- no {{ -->
It was {{convert|5|to|6|km|mi}} wide , see [http://x.org the map] and H<sub>2</sub>O&nbsp;here. \
''Iliad'''s fame [sic] grew<br />again. {{As of|2012|lc=y}} it is so.
== History ==
{| class="wikitable"
|-
| cell with words. || {| nested | table. |}
|}
:''Indented'' text is also read.
* [[List]] of names
* This item is a sentence.
<math>x = {{y}}</math>
where {{unclosed and left.
Formulas are:
__NOTOC__ ()
== See also ==
* It is not read.
=== Below it ===
Nor is this one.
== Later ==
x < y and the rest is also read. [[CSI: Miami]] is a show. [[fr:Albédo]]
== References ==
{{reflist}} Not read either.
[[Category:Light]]"""
PROSE = [
    'Albedo (albus "white") is the reflecting power of a surfaces.',
    "It was 5 to 6 km wide, see the map and H2O here.",
    "Iliad's fame [sic] grew again.",
    "As of 2012 it is so.",
    "Indented text is also read.",
    "This item is a sentence.",
    "x < y and the rest is also read.",
    "CSI: Miami is a show.",
]


def test_wikitext_reads_as_prose():
    assert parse_document(RawDocument("wikitext", "t", WIKITEXT), DataConfig()) == PROSE


def test_chinese_wikitext():
    text = ("'''数学'''（{{lang|en|mathematics}}）是-{zh-hans:计算机;zh-hant:電腦;}-的基础-{H|zh:a;}-。"
            "[[文件:a.png|图]]<ref>无。</ref>\n== 参考文献 ==\n不读。")
    assert parse_document(RawDocument("wikitext", "t", text), DataConfig(language="zh")) == [
        "数学（mathematics）是计算机的基础。"]


def test_malformed_wikitext_takes_little_time():
    for text in ("{{" * 20000, "{|" * 20000, "[[" * 20000, "<ref>" * 2000, "<a " + "=" * 50000,
                 "(" + " " * 50000 + "x", "a" + " " * 50000 + "b", "=" * 50000 + "x", "'" * 50000,
                 "{{a|" * 500 + "}}" * 500, "[[File:" * 5000):
        assert "x" not in strip_wikitext(text).strip(" (=x")


def test_dump_skips_redirects_and_other_namespaces_and_takes_last_revisions(tmp_path):
    first = PAGE.format(title="A", ns=0, redirect="", text="The old text.")
    first = first.replace("</page>", "<revision><text>The new text.</text></revision></page>")
    pages = [first, PAGE.format(title="Talk:A", ns=1, redirect="", text="A talk about it."),
             PAGE.format(title="B", ns=0, redirect='<redirect title="A" />', text="Go to A."),
             PAGE.format(title="C", ns=0, redirect="", text="#REDIRECT [[A]] goes there."),
             PAGE.format(title="D", ns=0, redirect="", text=""),
             PAGE.format(title="E &amp; F", ns=0, redirect="", text="Also read.")]
    text = ('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo>'
            "<sitename>W</sitename></siteinfo>" + "".join(pages) + "</mediawiki>")
    path = write(tmp_path, "a.xml", text)
    assert [(d.place, d.text) for d in raw_documents(path)] == [
        (f"{path} (page 'A')", "The new text."), (f"{path} (page 'E & F')", "Also read.")]


@needs_sentencex_1
@pytest.mark.skipif(not SAMPLE.is_file(), reason="needs the sample dump")
def test_a_real_dump():
    documents = list(raw_documents(SAMPLE))
    # grep counts 206 pages and 100 redirects; the one page of namespace 4 is a redirect.
    assert len(documents) == 106
    parsed = [parse_document(document, DataConfig()) for document in documents]
    assert documents[0].place.endswith("(page 'Anarchism')")
    assert parsed[0][:3] == [
        "Anarchism is a political philosophy that advocates self-governed societies based on "
        "voluntary institutions.",
        "These are often described as stateless societies, although several authors have defined "
        "them more specifically as institutions based on non-hierarchical free associations.",
        "Anarchism considers the state to be undesirable, unnecessary, and harmful."]
    assert ("The term anarchism is a compound word composed from the word anarchy and the suffix "
            "-ism, themselves derived respectively from the Greek ἀναρχία, i.e. anarchy (from "
            "ἄναρχος, anarchos, meaning \"one without rulers\"; from the privative prefix ἀν- "
            "(an-, i.e. \"without\") and ἀρχός, archos, i.e. \"leader\", \"ruler\"; (cf. archon "
            "or ἀρχή, arkhē, i.e. \"authority\", \"sovereignty\", \"realm\", \"magistracy\")) "
            "and the suffix -ισμός or -ισμα (-ismos, -isma, from the verbal infinitive suffix "
            "-ίζειν, -izein).") in parsed[0]
    for document in parsed:
        for sentence in document:
            assert not any(mark in sentence for mark in MARKUP), sentence
    assert sum(map(len, parsed)) > 19000


# Bad input

def check_refused(path, *told, **settings):
    """The error is one line that names the file and says what is told."""
    with pytest.raises(InputError) as caught:
        read(path, **settings)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    for part in told:
        assert part in message


def test_missing_and_unreadable_files(tmp_path):
    check_refused(tmp_path / "none.txt", "No such file")
    check_refused(tmp_path / "none.jsonl.zst", "No such file")
    check_refused(tmp_path, "directory")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_broken_archives(tmp_path, suffix):
    text = "".join(f"Line {number ** 3}.\n" for number in range(20000)).encode()
    whole = COMPRESS[suffix](text)
    middle = len(whole) // 2
    for content in (b"", whole[:middle], whole[:-1], text[:100],
                    whole[:middle] + bytes(32) + whole[middle + 32:]):
        check_refused(write(tmp_path, "a.txt" + suffix, content), "cannot be read",
                      "copy the file again")


@pytest.mark.parametrize("content, told", [
    (b"fine\nnot \xff fine\n", ":2: byte 4 of the line is not UTF-8; convert"),
    (b"\xef\xbb\xbf\xff\n", ":1: byte 0 of the line is not UTF-8"),
    ("fine\nZoë\n".encode("latin-1"), ":2: byte 2 of the line is not UTF-8"),
    (b"fine\n\nab\0c\n", ":3: byte 2 of the line is zero"),
    ("text".encode("utf-16"), ":1: byte 3 of the line is zero, as in no text; give UTF-8"),
    (gzip.compress(b"text", mtime=0), ".gz .bz2 .xz .zst"),
])
def test_what_is_no_text(tmp_path, content, told):
    check_refused(write(tmp_path, "a.txt", content), told)


def test_bad_bytes_deep_in_a_file(tmp_path):
    content = b"A line of text.\n" * 100000 + b"\n\xe4\xb8\n"
    check_refused(write(tmp_path, "a.txt", content), "a.txt:100002: byte 0 of the line")


def test_a_document_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LARGEST_DOCUMENT", 1 << 20)
    told = "a document of more than 1 MiB begins; put a blank line between documents"
    lines = b"One\n\n" + b"A line of text.\n" * 100000
    check_refused(write(tmp_path, "lines.txt", lines), f":3: {told}")
    check_refused(write(tmp_path, "line.txt", b"One\n" + b"word " * 400000), f":2: {told}")
    check_refused(write(tmp_path, "a.xml", b"<mediawiki><page><text>" + b"word " * 400000), told)


@pytest.mark.parametrize("line, told", [
    ('{"text": "cut', "is not JSON (Unterminated string"),
    ("plain words", "is not JSON"),
    ("[" * 100000, "is not JSON"),
    ('["a"]', "holds a JSON list, not an object; write one JSON object a line, e.g. with jq"),
    ('{"title": "x", "body": "y"}',
     "the field 'text' is missing; set data.text_field, perhaps to one of: title, body"),
    ('{"text": null}', "the field 'text' holds no text"),
    ('{"text": ["a"]}', "the field 'text' holds no text; remove the line"),
])
def test_bad_json_lines(tmp_path, line, told):
    path = write(tmp_path, "a.jsonl", '{"text": "One."}\n\n' + line + "\n")
    check_refused(path, f"{path}:3: ", told)


def test_wikiextractor_output_cut_short(tmp_path):
    cut = FORMATS["wiki_00"][:-8]
    check_refused(write(tmp_path, "wiki_00", cut), "wiki_00:7: the <doc> is not closed")


@pytest.mark.parametrize("name, content, told", [
    ("a.xml", FORMATS["articles.xml"].partition("text begins")[0],
     ":4: the XML breaks off or is malformed (no element found), after 1 whole pages"),
    ("a.xml", FORMATS["articles.xml"][:-len("</mediawiki>")], "after 2 whole pages"),
    ("a.xml", FORMATS["articles.xml"].replace("A second", "A \x01 < second"),
     "malformed (not well-formed (invalid token)), after 1 whole pages; download it again"),
    ("a.xml", "plain words", "malformed (syntax error), after 0 whole pages"),
    ("a.xml", "", "no element found"),
    ("a.xml", "<feed><doc>x</doc></feed>", "the root <feed>, and no Wikipedia dump"),
    ("a.txt", "<?xml version='1.0'?><html></html>", "the root <html>, and no Wikipedia dump"),
])
def test_what_is_no_dump(tmp_path, name, content, told):
    check_refused(write(tmp_path, name, content), told)


def test_whole_pages_of_a_broken_dump_come_before_the_error(tmp_path):
    documents = raw_documents(write(tmp_path, "a.xml", FORMATS["articles.xml"][:-60]))
    assert next(documents).text.startswith("Dr. Smith")
    with pytest.raises(InputError):
        next(documents)
