"""Wikitext to paragraphs of plain text.

As in BERT's paper, text passages are kept, and tables, references and headings are not.
Regular expressions take away the regular markup, which is nearly all of it;
mwparserfromhell, far slower, reads the few paragraphs where some is left.
"""

import html
import re

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"\n(={1,6})([^\n]+)\1[ \t]*(?=\n)")
_UNREAD_SECTIONS = frozenset(
    "bibliography|citations|external links|footnotes|further reading|gallery|notes|"
    "notes and references|references|references and notes|see also|sources|works cited|"
    "参考文献|參考文獻|参考资料|參考資料|参见|參見|参看|參看|外部链接|外部鏈接|外部連結|延伸阅读|延伸閱讀|"
    "注释|注釋|註釋|注解|註解|脚注|腳註|来源|來源|相关条目|相關條目".split("|"))

# Elements whose content is no prose.
_ELEMENT = re.compile(
    r"<(ref|math|chem|ce|gallery|timeline|source|syntaxhighlight|pre|score|hiero|imagemap|graph|"
    r"mapframe|maplink|references|templatestyles|templatedata)\b[^<>]*?(?:/>|>.*?</\1\s*>)",
    re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(r"<[bB][rR]\b[^<>]*>")
# An attribute needs its "=", or "x<y and y>z" would be a tag.
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>=\n]*=[^<>\n]*|\s*/?)>")
_BOLD_OR_ITALIC = re.compile("''+")
_POSSESSIVE = re.compile(r"'''(?<=\w''')(?=s\b)")  # ''Iliad'''s
_MAGIC_WORD = re.compile("__[A-Z]+__")

# Innermost ones: when they are gone the next ones are innermost.
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_SPOKEN_TEMPLATES = {  # Templates that show words of the sentence: which arguments these are.
    "as of": slice(0, 1), "convert": slice(0, 2), "cvt": slice(0, 2), "flag": slice(0, 1),
    "lang": slice(1, 2), "nihongo": slice(0, 1), "nowrap": slice(0, 1), "quote": slice(0, 1),
    "small": slice(0, 1), "transl": slice(-1, None),
}
_RANGE_WORDS = {"-", "–", "and", "by", "or", "to", "x"}
# Spelling variants in the Chinese Wikipedia: -{zh-hans:…; zh-hant:…}-. A rule for the rest of
# the page, with one of these flags before it, is not shown.
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_UNSHOWN_FLAGS = {"H", "T", "+", "-"}
_MAINLAND_VARIANT = re.compile(r"zh(?:-hans|-cn)?\s*:([^;]*)")

_HIDDEN_LINK = re.compile(
    r"\[\[\s*(?:(?:file|image|media|category|文件|檔案|档案|图像|圖像|媒体|媒體|分类|分類)\s*:"
    r"[^\[\]]*(?:(?:\[\[[^\[\]]*\]\]|\[[^\[\]]*\])[^\[\]]*)*"
    r"|(?-i:[a-z]{2,3}(?:-[a-z]+)*):[^\[\]|]*)\]\]", re.IGNORECASE)
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_EXTERNAL_LINK = re.compile(r"\[(?:[a-zA-Z]+:)?//[^\s\[\]]+[ \t]*([^\[\]\n]*)\]")

_IRREGULAR = re.compile(r"[\[{]|<[a-zA-Z/]")
_REMAINS = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|</?[a-zA-Z]+[ />]")
# What templates leave behind: "( ; from", "()", "word , word".
_BRACKET_START = re.compile(r"([(（])[\s,;:，；：、]+")
_LOOSE_SPACE = re.compile(r" (?<!  ) *(?=[,;)]|\.\s)")


def strip_wikitext(text):
    """The prose of an article, a paragraph or list item a line."""
    text = _read_sections(_COMMENT.sub("", text))
    text = _BREAK.sub(" ", _ELEMENT.sub("", text))
    text = _expand(_VARIANTS.sub(_mainland_variant, text))
    text = _TAG.sub("", _EXTERNAL_LINK.sub(r"\1", text))
    text = _BOLD_OR_ITALIC.sub("", _POSSESSIVE.sub("'", text))
    text = _MAGIC_WORD.sub("", text)
    paragraphs = (line.lstrip("*#:; \t") for line in html.unescape(text).split("\n"))
    return _close_holes("\n".join(filter(None, map(_read_remains, paragraphs))))


def _read_sections(text):
    """Leave out headings, and sections such as References with all below them."""
    kept, begin, unread = [], 0, None
    text = f"\n{text}\n"
    for heading in _HEADING.finditer(text):
        if unread is None:
            kept.append(text[begin:heading.start()])
        level, title = len(heading[1]), heading[2].strip().lower()
        if unread is None or level <= unread:
            unread = level if title in _UNREAD_SECTIONS else None
        begin = heading.end()
    if unread is None:
        kept.append(text[begin:])
    return "\n".join(kept)


def _expand(text):
    """Links become their text, templates their words; files and tables go."""
    found = True
    while found:
        text = _LINK.sub(r"\1", _HIDDEN_LINK.sub("", text))
        text, templates = _TEMPLATE.subn(_spoken_words, text)
        text, tables = _TABLE.subn("", text)
        found = templates or tables
    return text


def _spoken_words(template):
    name, *words = (part.strip() for part in template[1].split("|") if "=" not in part)
    shown = _SPOKEN_TEMPLATES.get(name.lower())
    if shown is None:
        return ""
    if words[1:2] and words[1] in _RANGE_WORDS:  # 5 to 6 km
        shown = slice(0, 4)
    begin = [name] if name.lower() == "as of" else []
    return " ".join(begin + words[shown])


def _mainland_variant(variants):
    *flags, spellings = variants[1].split("|")
    if _UNSHOWN_FLAGS.intersection(flags):
        return ""
    mainland = _MAINLAND_VARIANT.search(spellings)
    return mainland[1].strip() if mainland else spellings


def _read_remains(paragraph):
    """A paragraph without what the expressions left of its markup; empty if that is hopeless."""
    if paragraph.startswith(("|", "!")):  # A row of an unfinished table.
        return ""
    if not _IRREGULAR.search(paragraph):
        return paragraph
    import mwparserfromhell

    paragraph = mwparserfromhell.parse(paragraph).strip_code()
    return "" if _REMAINS.search(paragraph) else paragraph


def _close_holes(text):
    text = _BRACKET_START.sub(r"\1", text)
    # Without the space before it, "()" may belong to a function's name.
    text = text.replace(" ()", "").replace("（）", "")
    return _LOOSE_SPACE.sub("", text)
