"""WordPiece through the ``tokenizers`` library, from any of the vocabulary layouts."""

import re
from itertools import chain
from pathlib import Path

import numpy as np

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from configs.errors import InputError

# Where BERT's tokenizer always cuts, so that what lies between is tokenised on its own: at
# white space, around ASCII punctuation and around each Chinese character. A newline is kept:
# it ends a sentence.
_WHITE = " \t\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_PUNCTUATION = r"!-/:-@\[-`{-~"
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PIECE = re.compile(f"[^{_WHITE}\n{_PUNCTUATION}{_CHINESE}]+|[{_PUNCTUATION}{_CHINESE}]|\n")
_LARGEST_CACHE = 1 << 16
_NEWLINE = 0  # its number in the table of pieces

_STRAY_CAPITALS = 100

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def open_tokenizer(model):
    """The tokenizer of a ``model`` section.

    Raises:
        InputError: as ``WordPieceTokenizer``; the vocabulary has more tokens than
            ``vocab_size`` rows; or it is cased and ``lower_case`` is true, or the other way.
    """
    tokenizer = WordPieceTokenizer(model.vocabulary, model.lower_case)
    if len(tokenizer) > model.vocab_size:
        raise InputError(model.vocabulary, f"has {len(tokenizer)} tokens, but model.vocab_size is "
                         f"{model.vocab_size}", "raise it or take the model's own vocabulary")
    _check_case(tokenizer.tokens, model)
    return tokenizer


def _check_case(tokens, model):
    """Refuse capitals that no text would ever have, or that every text has and no token.

    BERT's cased vocabulary has 8,179 tokens with capitals, its Chinese one 2 (``<S>``, ``<T>``),
    its uncased one and ERNIE's have none.
    """
    capitals = sum(token.lower() != token and token not in SPECIAL_TOKENS for token in tokens)
    if model.lower_case and capitals > _STRAY_CAPITALS:
        raise InputError(model.vocabulary, f"is cased ({capitals} tokens have capitals), but "
                         "model.lower_case is true", "write model.lower_case: false")
    if not model.lower_case and not capitals:
        raise InputError(model.vocabulary, "has no token with a capital, but model.lower_case is "
                         "false", "write model.lower_case: true")


class WordPieceTokenizer:
    """Text to token ids and back. Special tokens in a text are ordinary text to it."""

    def __init__(self, vocabulary_path, lower_case=True):
        """Read a vocabulary.

        Raises:
            InputError: no such file, not UTF-8, an id out of order, or a special token missing.
        """
        self.tokens = read_vocabulary(vocabulary_path)
        # A token listed twice (ERNIE 3.0's "$") keeps the later id, as in its own tokenizer.
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        for token in SPECIAL_TOKENS:
            if token not in self.ids:
                raise InputError(vocabulary_path, f"the vocabulary has no {token}",
                                 "take a vocabulary of BERT or ERNIE")
        self.pad, self.unknown, self.cls, self.sep, self.mask = (
            self.ids[token] for token in SPECIAL_TOKENS)
        self._tokenizer = Tokenizer(WordPiece(self.ids, unk_token="[UNK]",
                                              max_input_chars_per_word=100))
        # strip_accents=None follows lower_case, as BERT's own tokenizer does.
        self._tokenizer.normalizer = BertNormalizer(lowercase=lower_case, strip_accents=None)
        self._tokenizer.pre_tokenizer = BertPreTokenizer()
        self._pieces = _PieceTable(
            lambda text: self._tokenizer.encode(text, add_special_tokens=False))

    def __len__(self):
        return len(self.tokens)

    def encode(self, texts):
        """Token ids of each text, without special tokens: a list of lists."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts):
        """Token ids of each text, and the characters of the text that each token stands for.

        Returns:
            A list of ``(ids, offsets)``; an offset is ``(start, end)``, whatever lower-casing,
            accents or removed characters do to lengths.
        """
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def encode_sentences(self, sentences, segment=None):
        """Token ids of many sentences as one array; several times as fast as ``encode``.

        Text repeats its words, so each distinct piece is tokenised once and looked up from
        then on; the ids are those of ``encode``.

        Args:
            sentences: strings without newlines.
            segment: cuts a sentence into its words, for languages that do not part them by
                spaces; nothing may be lost in the cut.

        Returns:
            int64 ``[tokens]``; int64 ``[sentences]``, tokens of each; and bool ``[tokens]``,
            whether a token goes on with the word of the one before (without ``segment``,
            and for ``##`` pieces, never: the vocabulary tells of those).
        """
        text = "\n".join(sentences) + "\n"
        pieces = _PIECE.findall(text)
        numbers, ids, starts, counts = self._pieces.look_up(pieces)
        counts = counts[numbers]
        ends = np.cumsum(counts)
        offsets = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        tokens = ids[np.repeat(starts[numbers], counts) + offsets]
        continues = np.zeros(len(tokens), bool)
        if segment:
            inside = ~_word_starts(sentences, segment, len(text))
            positions = np.fromiter((match.start() for match in _PIECE.finditer(text)), np.int64)
            has_tokens = counts > 0
            continues[(ends - counts)[has_tokens]] = inside[positions][has_tokens]
        return tokens, np.diff(ends[numbers == _NEWLINE], prepend=0), continues

    def continuation_pieces(self):
        """bool ``[vocabulary]``: which tokens go on with a word by their own name (``##…``)."""
        return np.array([token.startswith("##") for token in self.tokens])

    def decode(self, ids):
        """Readable text of token ids, word pieces joined."""
        return " ".join(self.tokens[number] for number in ids).replace(" ##", "")


def _word_starts(sentences, segment, length):
    """bool ``[length]``: where a word begins in the sentences, each ended by a newline."""
    words = chain.from_iterable(chain(segment(sentence), "\n") for sentence in sentences)
    ends = np.cumsum(np.fromiter(map(len, words), np.int64))
    is_start = np.zeros(length + 1, bool)
    is_start[0] = is_start[ends] = True
    return is_start[:length]


class _PieceTable:
    """Numbers of the pieces met so far, and the token ids of each, in flat arrays."""

    def __init__(self, encode):
        self.encode = encode
        self._clear()

    def look_up(self, pieces):
        """Numbers ``[pieces]``, and by number: flat ids, where they start, how many they are."""
        if len(self.numbers) > _LARGEST_CACHE:
            self._clear()
        missing = sorted(piece for piece in set(pieces) if piece not in self.numbers)
        if missing:
            self._add(missing, *self._encode(missing))
        numbers = np.fromiter(map(self.numbers.__getitem__, pieces), np.int64, len(pieces))
        return numbers, self.ids, self.starts, self.counts

    def _clear(self):
        self.numbers = {}
        self.ids, self.counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._add(["\n"], [], [0])

    def _encode(self, pieces):
        """Flat ids of some pieces, and how many each has: one call for all, told by offsets."""
        encoding = self.encode(" ".join(pieces))
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        piece_starts = np.cumsum(lengths + 1) - lengths - 1
        token_starts = np.array([start for start, _ in encoding.offsets], np.int64)
        piece = np.searchsorted(piece_starts, token_starts, side="right") - 1
        return encoding.ids, np.bincount(piece, minlength=len(pieces))

    def _add(self, pieces, ids, counts):
        self.numbers.update(zip(pieces, range(len(self.numbers), len(self.numbers) + len(pieces))))
        self.ids = np.concatenate([self.ids, np.array(ids, np.int64)])
        self.counts = np.concatenate([self.counts, np.array(counts, np.int64)])
        self.starts = np.cumsum(self.counts) - self.counts


def read_vocabulary(path):
    """Tokens in order of their ids.

    A line is a token, or token<TAB>id (Baidu's layout). Lines end at a newline alone: the
    Chinese list holds U+2028 as a token, which ``str.splitlines`` would cut in two.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(path, "no such vocabulary file", "see data/vocabularies/") from None
    except OSError as error:
        raise InputError(path, f"the vocabulary cannot be read ({error.strerror})",
                         "name a file, e.g. vocab.txt") from None
    except UnicodeDecodeError:
        raise InputError(path, "the vocabulary is not UTF-8") from None
    lines = text.rstrip("\n").split("\n")
    tokens = []
    for number, line in enumerate(lines):
        token, tab, given = line.rstrip("\r").partition("\t")
        if tab and given != str(number):
            raise InputError(f"{path}:{number + 1}", f"id '{given}' where {number} is due",
                             "write token<TAB>id in order")
        tokens.append(token)
    return tokens


def check_vocabulary(of_weights, of_model):
    """Refuse weights that were trained with other tokens, for each id would mean another word.

    Args:
        of_weights: the vocabulary file beside the weights; None where there is none.
        of_model: the one that the recipe names.
    """
    if of_weights is None:
        return
    theirs, ours = read_vocabulary(of_weights), read_vocabulary(of_model)
    if theirs != ours:
        differing = next((number for number, pair in enumerate(zip(theirs, ours))
                          if pair[0] != pair[1]), min(len(theirs), len(ours)))
        raise InputError(of_weights, f"is not model.vocabulary {of_model}: they differ from id "
                         f"{differing} on", "name the vocabulary that the weights were trained with")
