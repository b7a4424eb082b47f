"""How reading comprehension is cut into windows and rows, and answers chosen."""

from dataclasses import dataclass

from configs.errors import InputError

SPECIAL_TOKENS = 3
"""``[CLS] question [SEP] context [SEP]``"""


@dataclass(frozen=True)
class SquadOptions:
    """The values of Devlin et al. 2018 for SQuAD; Chinese recipes take other lengths."""

    max_sequence_length: int = 384
    """Slots of a row, and the longest window in tokens."""
    document_stride: int = 128
    """Tokens from the start of one window of a context to the start of the next."""
    max_query_length: int = 64
    """Tokens after which a question is cut."""
    max_answer_length: int = 30
    """Longest predicted answer in tokens."""
    n_best: int = 20
    """Answers told for each question."""
    null_threshold: float = 0.0
    """Where questions may have no answer: null odds above it predict none."""
    sequences_per_row: int = 1
    """Most windows that are packed into a training row; 1 does not pack."""
    cache: str = "prepared/squad"
    """Folder where features and packings are kept; empty keeps none."""

    @property
    def fewest_context_tokens(self):
        """Room for the context in a window of the longest question."""
        return self.max_sequence_length - self.max_query_length - SPECIAL_TOKENS

    def check(self):
        """Raise InputError where values contradict one another."""
        for name in ("max_sequence_length", "document_stride", "max_query_length",
                     "max_answer_length", "n_best", "sequences_per_row"):
            if getattr(self, name) < 1:
                raise InputError(f"data.{name}", f"{getattr(self, name)} is not positive",
                                 "write 1 or more")
        room = self.fewest_context_tokens
        if room < 1:
            raise InputError(
                "data.max_query_length", f"{self.max_query_length} tokens of a question leave no "
                f"room for its text in {self.max_sequence_length}",
                "lower it or raise data.max_sequence_length")
        if self.document_stride > room:
            raise InputError(
                "data.document_stride", f"{self.document_stride} tokens, but a window has room "
                f"for {room} beside the longest question, so some would be in no window",
                f"write {room} or less")
