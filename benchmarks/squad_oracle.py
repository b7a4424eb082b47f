"""Whether features and post-processing lose anything: true answers in, scores out.

``python -m benchmarks.squad_oracle DATA --vocabulary FILE`` gives each question the logits of
a network that knows an answer, takes the predictions made of them, and scores those. Exact
match and F1 should be 100 but for what is listed, each with the reason. Prints JSON.
"""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from configs.command_line import Parser, run, tell
from configs.data_schema import SquadConfig
from data.squad import scoring
from data.squad.answers import find_answers
from data.squad.features import open_features
from data.squad.questions import read_questions

SURE = 10.0
REASONS = {
    "absent": "no reference stands in the context",
    "inside a token": "a reference begins or ends inside a token",
    "no window": "no window holds the whole answer",
    "other": "none of these: a fault",
}


def main(argv=None):
    """Feed answers, score, print the result as JSON and return it."""
    arguments = _parser().parse_args(argv)
    questions = read_questions(arguments.data)
    options = replace(
        SquadConfig(cache=arguments.cache or ""),
        sequence_length=arguments.sequence_length,
        document_stride=arguments.document_stride)
    result = check(questions, arguments.vocabulary, not arguments.cased, options,
                   arguments.rules)
    tell(result, arguments.output)
    return result


def check(questions, vocabulary, lower_case, options, rules):
    """The scores of true answers.

    Args:
        questions: a ``QuestionFile``.
        vocabulary, lower_case: of the tokenizer.
        options: ``SquadConfig``; the longest answer is taken from the file.
        rules: of ``scoring.RULES``; None guesses by the questions.

    Returns:
        dict with the scores over answerable questions whose text is in their context
        (``has_text``), those over all, counts of the exceptions by reason, and the exceptions.
    """
    rules = rules or scoring.guess_rules(questions)
    features = open_features(questions, vocabulary, lower_case, options)
    chosen = [_choose(features, questions, number) for number in range(len(questions.questions))]
    logits = _logits(features, chosen, options)
    longest = 1 + max(choice.last - choice.first for choice in chosen)
    answers = find_answers(questions, features, *logits,
                           replace(options, max_answer_length=longest, n_best=1))
    exact, _ = scoring.score_each(questions, answers.predictions, rules)
    wrong = [number for number, question in enumerate(questions.questions)
             if exact[question.id] < 1]
    exceptions = [_exception(questions, features, answers, chosen, number) for number in wrong]
    in_text = replace(questions, questions=tuple(
        question for question, choice in zip(questions.questions, chosen)
        if choice.place and not question.is_impossible))
    return {"data": questions.path, "vocabulary": vocabulary, "lower_case": lower_case,
            "longest_answer_tokens": longest,
            "all": scoring.score(questions, answers.predictions, rules),
            "has_text": scoring.score(in_text, answers.predictions, rules),
            "reasons": dict(Counter(exception["reason"] for exception in exceptions)),
            "exceptions": exceptions}


@dataclass(frozen=True)
class _Choice:
    """The reference that is fed: the first that tokens can express, else the first found."""

    place: Any
    """Characters ``(start, end)``, None where the question has none"""
    first: int = 0
    last: int = 0
    is_whole: bool = True
    """Whether it begins and ends where tokens do"""


def _choose(features, questions, number):
    question = questions.questions[number]
    context = questions.contexts[question.context]
    tokens = slice(*features.context_bounds[question.context:question.context + 2])
    starts, ends = features.context_starts[tokens], features.context_ends[tokens]
    choices = []
    for answer in question.answers:
        place = answer.find(context)
        if place:
            first = int(np.searchsorted(ends, place[0], side="right"))
            last = int(np.searchsorted(starts, place[1], side="left")) - 1
            is_whole = first <= last and (starts[first], ends[last]) == place
            choices.append(_Choice(place, first, max(first, last), is_whole))
    choices.sort(key=lambda choice: not choice.is_whole)
    return choices[0] if choices else _Choice(None)


def _logits(features, chosen, options):
    """Start and end logits ``[windows, slots]`` that are sure of the choices, or of [CLS]."""
    shape = len(features.window_question), options.sequence_length
    start_logits, end_logits = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for window, question in enumerate(features.window_question):
        choice, first = chosen[question], features.window_first[window]
        is_inside = (choice.place and first <= choice.first
                     and choice.last < first + features.window_size[window])
        offset = features.context_offset[window] - first
        start_logits[window, choice.first + offset if is_inside else 0] = SURE
        end_logits[window, choice.last + offset if is_inside else 0] = SURE
    return start_logits, end_logits


def _exception(questions, features, answers, chosen, number):
    question, choice = questions.questions[number], chosen[number]
    windows = np.flatnonzero(features.window_question == number)
    first, size = features.window_first[windows], features.window_size[windows]
    is_held = ((first <= choice.first) & (choice.last < first + size)).any()
    reason = ("absent" if not choice.place else "no window" if not is_held
              else "inside a token" if not choice.is_whole else "other")
    return {"id": question.id, "reason": reason, "meaning": REASONS[reason],
            "predicted": answers.predictions[question.id],
            "references": [answer.text for answer in question.answers]}


def _parser():
    parser = Parser(prog="python -m benchmarks.squad_oracle", description=__doc__)
    parser.add_argument("data", metavar="DATA", help="questions with their answers")
    parser.add_argument("--vocabulary", required=True, metavar="FILE")
    parser.add_argument("--cased", action="store_true", help="do not lower-case")
    parser.add_argument("--rules", choices=scoring.RULES,
                        help="default: cmrc2018 for Chinese questions, else squad")
    parser.add_argument("--sequence-length", type=int, default=384, metavar="TOKENS")
    parser.add_argument("--document-stride", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--cache", metavar="DIR", help="keep the features there")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
