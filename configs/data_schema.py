"""The ``data`` section: where the text comes from and how it becomes rows, for each task."""

from dataclasses import dataclass
from typing import List, Literal, Optional

from configs.errors import InputError
from configs.fields import check_positive, check_share, option


@dataclass(frozen=True)
class DataConfig:
    """Pretraining: running text, of which masked tokens are to be told."""

    ENTRY_POINT = "run_pretrain.py"

    task: Literal["pretrain"] = option("pretrain", "What is trained.")
    sources: List[str] = option(
        [], "Text files or globs for prepare_data.py: plain text, JSON lines, WikiExtractor's "
            "output or a Wikipedia XML dump; .gz, .bz2, .xz and .zst allowed.")
    text_field: str = option("text", "Field of a JSON line that holds the text.")
    language: Literal["en", "zh"] = option(
        "en", "Language of the text: how it is split into sentences, and zh into words.")
    lines: Literal["sentences", "paragraphs"] = option(
        "sentences", "What a line of plain text is; paragraphs are split into sentences. "
                     "A blank line ends a document.")
    directory: str = option(
        "prepared", "Folder of prepared shards: prepare_data.py writes it, training reads it.")
    mix: List[str] = option(
        [], "Prepared folders that are read as one instead of directory.")
    mix_weights: List[float] = option(
        [], "Share of the rows for each folder of mix; empty takes their sizes.")
    format: Literal["prepared", "hdf5", "tfrecord"] = option(
        "prepared", "What lies in directory: prepare_data.py's shards, or ready-masked HDF5 "
                    "(NVIDIA, PaddleNLP) or TFRecord (Google, Graphcore) files.")
    held_out_share: float = option(
        0.05, "Share of the documents that is kept out of training and used in evaluation; 0 "
              "does not evaluate.")
    sequence_length: int = option(128, "Slots of a row, special tokens included.")
    max_predictions: int = option(20, "Most masked tokens in a row; the first slots of the row.")
    masked_lm_probability: float = option(0.15, "Share of a row's tokens that is masked.")
    masking: Literal["token", "whole_word", "ngram"] = option(
        "token", "What is masked together: a token, a word, or (ERNIE) a phrase of up to "
                 "max_ngram words.")
    held_out_masking: Optional[Literal["token", "whole_word", "ngram"]] = option(
        None, "The same for held-out text, so that recipes that mask differently can be compared; "
              "null is as in training.")
    max_ngram: int = option(3, "Longest phrase in words, for masking: ngram.")
    sequences_per_row: int = option(
        1, "Most sequences that are packed into a row; 1 does not pack.")
    short_sequence_probability: float = option(
        0.1, "Share of samples cut to a random shorter length, as in BERT.")
    pair_objective: Literal["nsp", "sop", "none"] = option(
        "nsp", "Second objective: next sentence (BERT), sentence order (ERNIE), or none.")

    @property
    def has_pairs(self):
        """Whether a sequence has two segments and a pooled vector is learnt from them."""
        return self.pair_objective != "none"

    has_pooler = has_pairs

    def check(self):
        check_positive(self, "data", "sequence_length", "max_predictions", "masked_lm_probability",
                  "max_ngram", "sequences_per_row")
        check_share(self, "data", "held_out_share", "masked_lm_probability",
                     "short_sequence_probability")
        if self.mix_weights and len(self.mix_weights) != len(self.mix):
            raise InputError("data.mix_weights", f"{len(self.mix_weights)} weights for "
                             f"{len(self.mix)} folders", "write one for each folder of data.mix")
        if any(not weight > 0 for weight in self.mix_weights):
            raise InputError("data.mix_weights", "a weight is not positive",
                             "leave out the folder, or write more than 0")
        if self.mix and self.format != "prepared":
            raise InputError("data.mix", f"format {self.format} cannot be mixed",
                             "write format: prepared")
        # The fewest tokens beside the predictions: [CLS] of each sequence, two [SEP], a word.
        if self.max_predictions + self.sequences_per_row + 3 > self.sequence_length:
            raise InputError(
                "data.max_predictions",
                f"{self.max_predictions} predictions and {self.sequences_per_row} [CLS] do not "
                f"fit a row of {self.sequence_length} slots",
                "lower it or lengthen data.sequence_length")


@dataclass(frozen=True)
class SquadConfig:
    """Reading comprehension: questions, and texts that hold the answers."""

    ENTRY_POINT = "run_squad.py"
    SPECIAL_TOKENS = 3
    """``[CLS] question [SEP] context [SEP]``"""

    task: Literal["squad"] = option("squad", "What is trained.")
    train_file: Optional[str] = option(
        None, "Questions with answers, in SQuAD's layout, .gz allowed; null only evaluates.")
    evaluation_file: Optional[str] = option(
        None, "Questions that are scored; null does not evaluate.")
    has_impossible: Optional[bool] = option(
        None, "Whether questions may have no answer (SQuAD 2.0); null sees it in the file.")
    language: Literal["en", "zh"] = option(
        "en", "Whose rules of scoring hold: SQuAD's, or CMRC 2018's, which count characters.")
    sequence_length: int = option(384, "Slots of a row, and the longest window in tokens.")
    document_stride: int = option(
        128, "Tokens from the start of one window of a context to the start of the next.")
    max_query_length: int = option(64, "Tokens after which a question is cut.")
    max_answer_length: int = option(30, "Longest predicted answer in tokens.")
    n_best: int = option(20, "Answers told for each question.")
    null_threshold: float = option(
        0.0, "Where questions may have no answer: null odds above it predict none.")
    sequences_per_row: int = option(
        1, "Most windows that are packed into a training row; 1 does not pack.")
    cache: str = option(
        "prepared/squad", "Folder where features and packings are kept.")

    max_predictions = 0
    has_pairs = True
    has_pooler = False

    @property
    def fewest_context_tokens(self):
        """Room for the context in a window of the longest question."""
        return self.sequence_length - self.max_query_length - self.SPECIAL_TOKENS

    def check(self):
        check_positive(self, "data", "sequence_length", "document_stride", "max_query_length",
                       "max_answer_length", "n_best", "sequences_per_row")
        room = self.fewest_context_tokens
        if room < 1:
            raise InputError(
                "data.max_query_length", f"{self.max_query_length} tokens of a question leave no "
                f"room for its text in {self.sequence_length}",
                "lower it or raise data.sequence_length")
        if self.document_stride > room:
            raise InputError(
                "data.document_stride", f"{self.document_stride} tokens, but a window has room "
                f"for {room} beside the longest question, so some would be in no window",
                f"write {room} or less")


@dataclass(frozen=True)
class ClassifyConfig:
    """Classification: a label or a number for a text or a pair, or a label for each word."""

    ENTRY_POINT = "run_classify.py"
    METRICS = {"classification": ("accuracy", "f1", "macro_f1", "matthews"),
               "regression": ("spearman", "pearson"),
               "tokens": ("span_f1", "token_f1", "accuracy")}

    task: Literal["classify"] = option("classify", "What is trained.")
    train_file: Optional[str] = option(
        None, "Rows with labels: tsv, csv, JSON lines or CoNLL, .gz allowed; null only evaluates.")
    evaluation_file: Optional[str] = option(
        None, "Rows that are scored; null does not evaluate.")
    objective: Literal["classification", "regression", "tokens"] = option(
        "classification", "What is told: a label of a row, a number, or a label of each word.")
    text_column: str = option("text", "Column of the text, or of its words.")
    pair_column: Optional[str] = option(
        None, "Column of the second text of a pair; null reads single texts.")
    label_column: str = option("label", "Column of the label, number, or labels of the words.")
    labels: List[str] = option(
        [], "All labels, in the order of their numbers; empty takes those of train_file, sorted.")
    metric: Optional[Literal["accuracy", "f1", "macro_f1", "matthews", "spearman", "pearson",
                             "span_f1", "token_f1"]] = option(
        None, "By what the best checkpoint is chosen; null is accuracy, spearman, or for words "
              "span_f1 where labels begin with B- and token_f1 elsewhere.")
    format: Literal["auto", "tsv", "csv", "jsonl", "spaces", "conll"] = option(
        "auto", "How files are laid out: auto goes by their names; spaces has fields between "
                "single spaces, the last one to the end of the line; conll a word a line.")
    quoting: Literal["auto", "quoted", "plain"] = option(
        "auto", "Whether quotation marks enclose fields of tsv and csv (quoted) or are text "
                "(plain); auto decides for each file and says so.")
    columns: List[str] = option(
        [], "Names of the columns of files that do not begin with a line of names.")
    sequence_length: int = option(
        128, "Slots of a row, and the tokens after which a text or pair is cut.")
    sequences_per_row: int = option(
        1, "Most texts or pairs that are packed into a training row; 1 does not pack.")
    cache: str = option("prepared/classify", "Folder where packings are kept.")

    max_predictions = 0

    @property
    def has_pairs(self):
        """Whether a sequence has two segments."""
        return self.pair_column is not None

    @property
    def has_pooler(self):
        """Whether something is told of a whole sequence."""
        return self.objective != "tokens"

    @property
    def measure(self):
        """The metric that the best checkpoint has the highest of."""
        if self.metric:
            return self.metric
        if self.objective == "tokens" and not any(name.startswith("B-") for name in self.labels):
            return "token_f1"
        return self.METRICS[self.objective][0]

    def check(self):
        check_positive(self, "data", "sequence_length", "sequences_per_row")
        self._check_objective()
        for key, least in (("labels", 2), ("columns", 2)):
            names = getattr(self, key)
            if names and (len(names) < least or len(set(names)) < len(names)):
                raise InputError(f"data.{key}", f"{', '.join(names)}: too few, or one stands twice",
                                 f"write {least} or more different names")
        if self.sequence_length < 2 + 2 * self.sequences_per_row:
            raise InputError("data.sequence_length", f"{self.sequence_length} slots hold no word "
                             f"beside [CLS] and [SEP] of {self.sequences_per_row} texts",
                             "write more")

    def _check_objective(self):
        known = self.METRICS[self.objective]
        if self.metric not in (None, *known):
            raise InputError("data.metric", f"{self.metric} is no metric of {self.objective}",
                             f"write {' or '.join(known)}")
        if self.metric == "f1" and len(self.labels) > 2:
            raise InputError("data.metric", f"f1 is of one label against another, here are "
                             f"{len(self.labels)}", "write macro_f1")
        if self.objective == "regression" and self.labels:
            raise InputError("data.labels", "a regression has none", "remove them")
        if self.objective == "tokens" and self.pair_column:
            raise InputError("data.pair_column", "words are labelled in single texts",
                             "write null")
