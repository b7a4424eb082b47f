"""WordPiece through the ``tokenizers`` library, from any of the vocabulary layouts."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from configs.errors import InputError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


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

    def __len__(self):
        return len(self.tokens)

    def encode(self, texts):
        """Token ids of each text, without special tokens: a list of lists."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids):
        """Readable text of token ids, word pieces joined."""
        return " ".join(self.tokens[number] for number in ids).replace(" ##", "")


def read_vocabulary(path):
    """Tokens in order of their ids.

    A line is a token, or token<TAB>id (Baidu's layout). Lines end at a newline alone: the
    Chinese list holds U+2028 as a token, which ``str.splitlines`` would cut in two.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(path, "no such vocabulary file", "see data/vocabularies/") from None
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
