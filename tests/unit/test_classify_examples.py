"""Labels and texts of a table: names, refusals, cutting, words in sequences."""

import numpy as np
import pytest

from configs.data_schema import ClassifyConfig
from configs.errors import InputError
from configs.load import load_config
from data.classify.examples import Examples, find_label_names, make_examples
from data.classify.features import cut_longest, make_features
from data.classify.tables import Table
from data.tokenizer import WordPieceTokenizer

ENGLISH = "data/vocabularies/bert_base_uncased.txt"


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(ENGLISH)


def table(**columns):
    count = len(next(iter(columns.values())))
    return Table("rows.tsv", columns, tuple(range(2, count + 2)))


def names_of(labels, **options):
    return find_label_names(table(label=labels), ClassifyConfig(**options))


def test_names_of_labels():
    assert names_of(["10", "9", "1", "9 "]) == ("1", "9", "10")
    assert names_of(["no", "yes", "3"]) == ("3", "no", "yes")
    assert names_of([True, False]) == ("false", "true")
    assert names_of([102, 100]) == ("100", "102")
    tags = ["B-PER I-PER O", "O\x02B-LOC\x02I-LOC"]
    assert names_of(tags, objective="tokens") == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")


@pytest.mark.parametrize("labels, says", [
    (["a", "a"], "rows.tsv: every row has the label 'a'; name another data.label_column"),
    (["1.0", "2.5", "3"], "rows.tsv: has 3 different labels in 3 rows, e.g. '1.0'; write "
                          "data.objective: regression"),
    (list(map(str, range(101))), "rows.tsv: has 101 different labels in 101 rows"),
    (["a", ""], "rows.tsv:3: 'label': \"\" is no label; correct it, or name another column"),
    (["a", None], "rows.tsv:3: 'label': null is no label"),
    (["a", ["b"]], "rows.tsv:3: 'label': [\"b\"] is no label")])
def test_columns_that_hold_no_labels(labels, says):
    with pytest.raises(InputError) as caught:
        names_of(labels)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("columns, options, names, says", [
    ({"text": ["a", "b"], "label": ["yes", "maybe"]}, {}, ("no", "yes"),
     "rows.tsv:3: 'label': \"maybe\" is none of the labels no, yes; correct it"),
    ({"text": ["a", 5], "label": ["no", "yes"]}, {}, ("no", "yes"),
     "rows.tsv:3: 'text': 5 is no text"),
    ({"text": ["a"], "label": ["high"]}, {"objective": "regression"}, (),
     "rows.tsv:2: 'label': \"high\" is no number"),
    ({"text": ["a"], "label": ["nan"]}, {"objective": "regression"}, (),
     "rows.tsv:2: 'label': \"nan\" is no number"),
    ({"text": ["a b"], "label": ["O"]}, {"objective": "tokens"}, ("O", "X"),
     "rows.tsv:2: has 2 words and 1 labels; give every word a label, parted as the words are"),
    ({"text": ["a", "\ud83d"], "label": ["no", "yes"]}, {}, ("no", "yes"),
     "rows.tsv:3: 'text': holds half of a surrogate pair; correct it"),
    ({"text": [["a", "\udc00"]], "label": ["O O"]}, {"objective": "tokens"}, ("O", "X"),
     "rows.tsv:2: 'text': holds half of a surrogate pair"),
    ({"text": [["a", 1]], "label": ["O O"]}, {"objective": "tokens"}, ("O", "X"),
     "rows.tsv:2: 'text': [\"a\", 1] is no list of words"),
    ({"text": ["a"], "label": ["no"]}, {"pair_column": "other"}, ("no", "yes"),
     "rows.tsv: has no column 'other', but 'text', 'label'; write data.pair_column: NAME")])
def test_refused_cells(columns, options, names, says):
    with pytest.raises(InputError) as caught:
        make_examples(table(**columns), ClassifyConfig(**options), names)
    assert str(caught.value).startswith(says)


def test_examples():
    rows = table(text=["a", "b"], other=["c", ""], label=["yes", "no"])
    examples = make_examples(rows, ClassifyConfig(pair_column="other"), ("no", "yes"))
    assert (examples.texts, examples.pairs) == (("a", "b"), ("c", ""))
    assert examples.labels.tolist() == [1, 0] and examples.labels.dtype == np.int32
    assert make_examples(rows, ClassifyConfig()).labels is None
    scores = make_examples(table(text=["a"], label=["2.5"]), ClassifyConfig(objective="regression"),
                           ())
    assert scores.labels.tolist() == [2.5] and scores.labels.dtype == np.float32


def google_cut(first, second, room):
    """``_truncate_seq_pair`` of google-research/bert, of lengths."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_the_longer_text_is_cut():
    for room in range(1, 12):
        for first in range(15):
            for second in range(15):
                assert cut_longest(first, second, room) == google_cut(first, second, room)


def test_tokens_are_those_of_the_tokenizer(tokenizer):
    texts = ("Naïve café\u2028here", "line\nend", "a\tb\u00a0c\x00d", "中文，好 x", "x" * 120,
             "“quoted”—dash…", "", "\u200bzero\u200bwidth", "don't 1,000.5 ##x [MASK]")
    features = make_features(Examples("made", texts, None, None), tokenizer, ClassifyConfig())
    assert [ids.tolist() for ids in features.first] == tokenizer.encode(texts)


def test_texts_and_pairs_are_cut_and_counted(tokenizer):
    examples = make_examples(
        table(text=["one two three", "one", " ", "a b c d e"], other=["four", "", "b", "x y z"],
              label=["a", "b", "a", "b"]), ClassifyConfig(pair_column="other"), ("a", "b"))
    features = make_features(examples, tokenizer, ClassifyConfig(pair_column="other",
                                                                 sequence_length=8))
    words = [tokenizer.decode(ids) for ids in (*features.first, *features.second)]
    assert words == ["one two three", "one", "", "a b c", "four", "", "b", "x y"]
    # [CLS] one two three [SEP] four [SEP]; an empty second text has no [SEP] of its own.
    assert features.lengths.tolist() == [7, 3, 4, 8]
    assert features.notices == ("  2 texts without a token",
                                "  1 rows longer than 8 tokens were cut")
    assert [label.tolist() for label in features.labels] == [[0], [1], [0], [1]]


def test_words_are_parted_into_sequences_and_none_is_lost(tokenizer):
    words = ["unaffable", "\u200b", "is", "one", "two", "!" * 9]
    examples = make_examples(table(text=[words, []], label=[["A", "B", "O", "O", "O", "A"], []]),
                             ClassifyConfig(objective="tokens"), ("O", "A", "B"))
    features = make_features(examples, tokenizer, ClassifyConfig(objective="tokens",
                                                                 sequence_length=8))
    assert [tokenizer.decode(ids) for ids in features.first] == [
        "unaffable [UNK] is one", "two", "! ! ! ! ! !", ""]
    assert features.lengths.tolist() == [8, 3, 8, 2]  # una ##ffa ##ble
    assert [places.tolist() for places in features.word_places] == [[1, 4, 5, 6], [1], [1], []]
    assert [labels.tolist() for labels in features.labels] == [[1, 2, 0, 0], [0], [1], []]
    assert features.rows.tolist() == [0, 0, 0, 1]
    assert features.notices == (
        "  1 words without a token were read as [UNK]", "  1 words longer than 6 tokens were cut",
        "  1 rows longer than 8 tokens were parted")


@pytest.mark.parametrize("values, says", [
    ({"metric": "pearson"}, "data.metric: pearson is no metric of classification; write "
                            "accuracy or f1 or macro_f1 or matthews"),
    ({"metric": "f1", "labels": ["a", "b", "c"]}, "data.metric: f1 is of one label against"),
    ({"objective": "regression", "labels": ["a", "b"]}, "data.labels: a regression has none"),
    ({"objective": "tokens", "pair_column": "b"}, "data.pair_column: words are labelled in single"),
    ({"labels": ["a"]}, "data.labels: a: too few, or one stands twice; write 2 or more"),
    ({"columns": ["a", "a"]}, "data.columns: a, a: too few, or one stands twice"),
    ({"sequence_length": 5, "sequences_per_row": 2}, "data.sequence_length: 5 slots hold no word")])
def test_contradicting_recipes(values, says):
    with pytest.raises(InputError) as caught:
        ClassifyConfig(**values).check()
    assert str(caught.value).startswith(says)


def test_what_the_best_checkpoint_has():
    assert ClassifyConfig().measure == "accuracy"
    assert ClassifyConfig(objective="regression").measure == "spearman"
    assert ClassifyConfig(objective="tokens", labels=["O", "B-X"]).measure == "span_f1"
    assert ClassifyConfig(objective="tokens", labels=["NN", "VB"]).measure == "token_f1"
    assert ClassifyConfig(metric="matthews").measure == "matthews"


GLUE = (32, 2e-5, 3, 128, 0.1)  # Devlin et al. 2018, google-research/bert's README


@pytest.mark.parametrize("name, published, measure", [
    ("sst2", GLUE, "accuracy"), ("mrpc", GLUE, "f1"), ("rte", GLUE, "accuracy"),
    ("stsb", GLUE, "spearman"), ("cola", GLUE, "matthews"),
    # PaddlePaddle/ERNIE, ERNIE/script/run_{ChnSentiCorp,lcqmc,msra_ner}.sh
    ("chnsenticorp", (24, 5e-5, 10, 256, 0.0), "accuracy"),
    ("lcqmc", (32, 2e-5, 3, 128, 0.0), "accuracy"),
    ("msra_ner", (16, 5e-5, 3, 256, 0.0), "span_f1"),
    # PaddlePaddle/PaddleNLP, examples/benchmark/clue/README.md
    ("tnews", (32, 3e-5, 3, 128, 0.1), "accuracy")])
def test_published_recipes(name, published, measure):
    config = load_config(f"configs/classify/{name}.yaml", task="classify")
    train, data = config.train, config.data
    assert (train.global_batch_size, train.learning_rate, train.epochs, data.sequence_length,
            train.warmup_ratio) == published
    assert data.sequences_per_row == 1 and data.measure == measure
    assert train.weight_decay == (0.0 if name == "lcqmc" else 0.01)
    is_baidus = name in ("chnsenticorp", "lcqmc", "msra_ner")  # without warm-up, no decay
    assert train.schedule == ("constant" if is_baidus else "linear")
    assert train.epsilon == (1e-8 if is_baidus or name == "tnews" else 1e-6)
