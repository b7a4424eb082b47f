"""Paragraphs to sentences, by sentencex."""

import re

# sentencex takes time by the square of a paragraph's quotations: a book in one paragraph
# is cut by pieces of this many characters.
_WINDOW = 4096
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’」』）)\]》»]*$")
_FEW_LETTERS = re.compile(r"(?:\W*\w){0,3}\W*$")


def split_sentences(paragraph, language):
    """Yield the sentences of a paragraph.

    Its white space must be single ASCII spaces: sentencex panics on some other.
    """
    from sentencex import segment

    begin = 0
    while len(paragraph) - begin > _WINDOW:
        sentences = list(segment(language, paragraph[begin:begin + _WINDOW]))
        # The last one may go on behind the window, and is cut only if it fills it.
        for sentence in sentences[:-1] or sentences:
            yield sentence.strip()
            begin += len(sentence)
    for sentence in segment(language, paragraph[begin:]):
        yield sentence.strip()


def is_prose(sentence):
    """Whether it ends as sentences do, and is more than a remainder of markup.

    The first rule is that of C4 (Raffel et al. 2020): it drops the names in lists, captions
    and what leads up to a formula.
    """
    return bool(_SENTENCE_END.search(sentence)) and not _FEW_LETTERS.match(sentence)
