"""Exact match and F1 of predicted answers, by the rules of SQuAD and of CMRC 2018.

SQuAD (Rajpurkar et al. 2016, 2018): lower-case, without ASCII punctuation and the articles
a, an, the; F1 is that of the bags of words. CMRC 2018 (Cui et al. 2019): lower-case, without
its own list of marks; F1 is that of the longest run of units that both have, a unit being a
Chinese character or a word of other scripts. A question scores the best of its references,
and a question without a prediction scores 0.
"""

import re
import string
from collections import Counter

from configs.errors import InputError
from data.squad.questions import read_json

RULES = ("squad", "cmrc2018")

_NO_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
# CMRC 2018's list; it has "……" too, which is two characters and so never met.
_CMRC_MARKS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_NO_CMRC_MARKS = str.maketrans("", "", _CMRC_MARKS)
_CHINESE = "\u4e00-\u9fa5"
_CMRC_UNIT = re.compile(f"[{_CHINESE}]|[^{_CHINESE}]+")
# The Penn Treebank's words, as far as they are left without the marks above: punctuation
# stands alone, quotation marks open or close, no comma within a number and no period but the
# last is cut off; n't, 's and the like are words.
_TREEBANK_CUTS = [(re.compile(pattern), replacement) for pattern, replacement in (
    (r'^"|(?<=[ (\[{<])"', " `` "),
    (r'"', " '' "),
    (r"[;@#$%&?!<>()\[\]{}»«‘„–—]|\.\.+", r" \g<0> "),
    (r",(?=\D|$)", " , "),
    (r"(?<=[^.])(\.)(?=[\])}>'»’ ]*\s*$)", r" \1 "),
    (r"(')(?!re|ve|ll|m|t|s|d|n)(?=\w\b)", r"\1 "),
    (r"(?<=[^' ])('s|'m|'d|'ll|'re|'ve|n't|')(?= |$)", r" \1 "),
    (r"\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b", r" \1\3\5 \2\4\6 "))]


def score(questions, predictions, rules="squad", null_odds=None):
    """Score predictions in percent.

    Args:
        questions: a ``QuestionFile`` whose answers are told.
        predictions: dict of id to text, "" for no answer.
        rules: of ``RULES``.
        null_odds: dict of id to the odds that a question has no answer, on any scale; adds
            the best thresholds, where odds above the threshold make a prediction "".

    Returns:
        dict with ``exact_match``, ``f1``, ``questions``, ``missing`` (without a prediction,
        scored 0) and ``unknown`` (predictions of no question); by CMRC's rules ``average`` of
        the two. Where some question has no answer, ``has_answer`` and ``no_answer`` with the
        scores of each kind, and if predictions are missing ``predicted``, the scores over the
        rest: SQuAD v2.0's own script leaves missing ones out. With ``null_odds``, ``best``.

    Raises:
        InputError: some answer is not told.
    """
    questions.check_answers()
    exact, f1 = score_each(questions, predictions, rules)
    result = _means(exact, f1, list(exact))
    known = {question.id for question in questions.questions}
    result["missing"] = len(known - predictions.keys())
    result["unknown"] = len(predictions.keys() - known)
    if rules == "cmrc2018":
        result["average"] = (result["exact_match"] + result["f1"]) / 2
    if questions.has_impossible:
        impossible = _impossible(questions)
        result["has_answer"] = _means(exact, f1, [i for i in exact if i not in impossible])
        result["no_answer"] = _means(exact, f1, [i for i in exact if i in impossible])
        if result["missing"]:
            result["predicted"] = _means(exact, f1, [i for i in exact if i in predictions])
        if null_odds is not None:
            result["best"] = {**best_threshold(exact, null_odds, impossible, "exact_match"),
                              **best_threshold(f1, null_odds, impossible, "f1")}
    return result


def best_threshold(scores, null_odds, impossible, name):
    """The threshold of the null odds that gives the best mean score.

    Questions of equal odds fall on the same side of it.

    Args:
        scores: dict of id to the score of its prediction.
        null_odds: dict of id to odds; a question without any keeps its prediction.
        impossible: ids of the questions without an answer.
        name: of the score.

    Returns:
        dict of ``name`` in percent and ``name_threshold``: predict no answer above it. Where
        it is best to answer none, that is the least of the odds less 1.
    """
    answered = [identity for identity in scores if identity in null_odds]
    answered.sort(key=null_odds.__getitem__)
    total = sum(1.0 if identity in impossible else 0.0 for identity in answered)
    total += sum(scores[identity] for identity in scores if identity not in null_odds)
    best = total
    threshold = null_odds[answered[0]] - 1.0 if answered else 0.0
    for place, identity in enumerate(answered):
        # Answered now, where "" was predicted before.
        total += scores[identity] - (identity in impossible)
        is_last_of_its_odds = (place + 1 == len(answered)
                               or null_odds[answered[place + 1]] > null_odds[identity])
        if is_last_of_its_odds and total > best:
            best, threshold = total, null_odds[identity]
    return {name: 100.0 * best / max(len(scores), 1), f"{name}_threshold": threshold}


def guess_rules(questions):
    """``cmrc2018`` where most questions hold a Chinese character, else ``squad``."""
    chinese = re.compile(f"[{_CHINESE}]")
    count = sum(bool(chinese.search(question.text)) for question in questions.questions)
    return "cmrc2018" if 2 * count > len(questions.questions) else "squad"


def read_predictions(path):
    """A predictions file, JSON of id to text.

    Raises:
        InputError: it cannot be read or holds something else.
    """
    return _read_values(path, str, "text")


def read_null_odds(path):
    """A file of null odds, JSON of id to number; raises as ``read_predictions``."""
    return _read_values(path, (int, float), "number")


def _read_values(path, kind, name):
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise InputError(path, "no object at the top", f'give a file {{"id": {name}, …}}')
    for identity, value in tree.items():
        if not isinstance(value, kind):
            raise InputError(path, f"the value of {identity} is no {name}",
                             f'give a file {{"id": {name}, …}}')
    return tree


def _impossible(questions):
    """Ids of questions without an answer: none is given, or each is blank to SQuAD v2.0."""
    return {question.id for question in questions.questions if not _references(question, True)}


def _references(question, with_impossible):
    """Texts; SQuAD v2.0 leaves out those of which normalising leaves nothing."""
    return [answer.text for answer in question.answers
            if not with_impossible or normalise(answer.text)]


def score_each(questions, predictions, rules):
    """Exact match and F1 of each question, dicts of id to number."""
    exact_of, f1_of = _PAIR_SCORES[rules]
    with_impossible = questions.has_impossible
    exact, f1 = {}, {}
    for question in questions.questions:
        references = _references(question, with_impossible) or [""]
        if question.id not in predictions:
            exact[question.id] = f1[question.id] = 0.0
            continue
        prediction = predictions[question.id]
        exact[question.id] = max(exact_of(prediction, text) for text in references)
        f1[question.id] = max(f1_of(prediction, text) for text in references)
        if with_impossible and "" in (normalise(prediction), normalise(references[0])):
            f1[question.id] = exact[question.id]  # without words, F1 is 0 or 1 by definition
    return exact, f1


def _means(exact, f1, ids):
    count = max(len(ids), 1)
    return {"exact_match": 100.0 * sum(exact[i] for i in ids) / count,
            "f1": 100.0 * sum(f1[i] for i in ids) / count, "questions": len(ids)}


def normalise(text):
    """Lower-case words without ASCII punctuation and articles, one space apart."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_ASCII_PUNCTUATION)).split())


def _squad_exact(prediction, reference):
    return float(normalise(prediction) == normalise(reference))


def _squad_f1(prediction, reference):
    predicted, wanted = normalise(prediction).split(), normalise(reference).split()
    return _f1(sum((Counter(predicted) & Counter(wanted)).values()), len(predicted), len(wanted))


def _cmrc_exact(prediction, reference):
    return float(_without_marks(prediction) == _without_marks(reference))


def _cmrc_f1(prediction, reference):
    predicted, wanted = cmrc_units(prediction), cmrc_units(reference)
    return _f1(longest_common_run(predicted, wanted), len(predicted), len(wanted))


_PAIR_SCORES = {"squad": (_squad_exact, _squad_f1), "cmrc2018": (_cmrc_exact, _cmrc_f1)}


def _f1(common, predicted, wanted):
    """Harmonic mean of common / predicted and common / wanted; 0 without anything common."""
    return 2 * common / (predicted + wanted) if common else 0.0


def _without_marks(text):
    return text.lower().strip().translate(_NO_CMRC_MARKS)


def cmrc_units(text):
    """Chinese characters and words of other scripts, without CMRC's marks."""
    units = []
    for piece in _CMRC_UNIT.findall(_without_marks(text)):
        units.extend([piece] if re.match(f"[{_CHINESE}]", piece) else _treebank_words(piece))
    return units


def _treebank_words(text):
    """Words as the Penn Treebank parts them. The official script's ``nltk.word_tokenize`` cuts
    sentences before; here one that ends inside the text keeps its period at its last word."""
    for pattern, replacement in _TREEBANK_CUTS:
        text = pattern.sub(replacement, text)
    return text.split()


def longest_common_run(first, second):
    """Length of the longest list that stands in both lists without a gap."""
    longest, ending = 0, {}
    for item in first:
        # Length of the common run that ends with item and with each place of second.
        ending = {place: ending.get(place - 1, 0) + 1
                  for place, other in enumerate(second) if other == item}
        longest = max(longest, max(ending.values(), default=0))
    return longest
