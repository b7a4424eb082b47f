"""A Wikipedia XML dump to raw documents: the wikitext of each article."""

from xml.etree.ElementTree import ParseError, XMLPullParser

from configs.errors import InputError
from data.sources.documents import RawDocument
from data.sources.streams import check_size

_FIELDS = {"title", "ns", "redirect", "model", "text"}
_REDIRECT_WORDS = ("#redirect", "#重定向")


def read_pages(path, blocks):
    """Yield the articles of a dump (namespace 0, no redirects), from its blocks of bytes.

    Of a page with several revisions the last is taken.

    Raises:
        InputError: the XML is no dump, is malformed or ends in the middle. The whole pages
            before that place have been yielded by then.
    """
    page = {}
    for tag, element in _elements(path, blocks):
        if tag in _FIELDS:
            page[tag] = element.text or ""
        elif tag == "page":
            if _is_article(page):
                place = f"{path} (page '{page.get('title')}')"
                yield RawDocument("wikitext", place, page["text"])
            page = {}


def _is_article(page):
    # Dumps of before 2010 mark a redirect in its text alone.
    text = page.get("text", "").lstrip()
    return (page.get("ns", "0") == "0" and page.get("model", "wikitext") == "wikitext"
            and text and "redirect" not in page
            and not text[:len("#redirect")].lower().startswith(_REDIRECT_WORDS))


def _elements(path, blocks):
    """Yield ``(tag, element)`` as elements end, and forget them."""
    parser, root, size, pages = XMLPullParser(("start", "end")), None, 0, 0
    try:
        for block in blocks:
            size += len(block)
            check_size(path, size)
            parser.feed(block)
            for event, element in parser.read_events():
                size, tag = 0, element.tag.rpartition("}")[2]
                if root is None:
                    root = element
                    _check_root(path, tag)
                elif event == "end":
                    yield tag, element
                    if tag == "revision":
                        element.clear()
                    elif tag == "page":
                        root.clear()
                        pages += 1
        parser.close()
    except ParseError as error:
        reason, line = str(error).split(":")[0], error.position[0]
        raise InputError(
            f"{path}:{line}", f"the XML breaks off or is malformed ({reason}), after {pages} "
            "whole pages", "download it again, or cut it after a </page> and end it with "
            "</mediawiki>") from None


def _check_root(path, tag):
    if tag != "mediawiki":
        raise InputError(path, f"is XML with the root <{tag}>, and no Wikipedia dump",
                         "give a pages-articles dump, or text")
