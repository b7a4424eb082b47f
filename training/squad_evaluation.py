"""Scores of a network on a file of questions, and its answers as files."""

from data.squad import scoring
from data.squad.answers import find_answers
from data.squad.rows import SquadData, window_logits

_RULES = {"en": "squad", "zh": "cmrc2018"}


class SquadEvaluation:
    """Called with an engine, answers every question and scores the answers."""

    def __init__(self, config, questions, features, tokenizer, output):
        """
        Args:
            config: a resolved squad ``Config``.
            questions, features: of the evaluation file.
            tokenizer: of the model.
            output: folder that the answers are written to.
        """
        self.config, self.questions, self.features = config, questions, features
        self.with_impossible = questions.check_version(config.data.has_impossible)
        self.is_scored = all(question.is_impossible is not None
                             for question in questions.questions)
        self.data = SquadData(features, tokenizer, config.data, is_training=False,
                              fixed_length=config.run.on_ipus)
        self.output = output

    def __call__(self, engine):
        """Answer, write ``predictions.json``, ``nbest.json`` and ``null_odds.json``, score.

        Returns:
            ``exact_match`` and ``f1`` in percent, with v2.0 also of its two kinds of
            questions and at the best thresholds; empty where the answers are not told.
        """
        engine.collect()
        scores = None
        if engine.is_main:
            answers = self.answer(engine)
            answers.write(self.output)
            scores = self._score(answers)
        return engine.share(scores)

    def answer(self, engine):
        """The ``Answers`` to all questions."""
        logits = window_logits(self.data, engine.predict, self.config.run.micro_batch_size)
        return find_answers(self.questions, self.features, *logits, self.config.data,
                            self.with_impossible)

    def _score(self, answers):
        if not self.is_scored:
            return {}
        rules = _RULES[self.config.data.language]
        scores = scoring.score(self.questions, answers.predictions, rules)
        if answers.null_odds:
            # Thresholds are sought on what is answered where an answer must be given.
            scores["best"] = scoring.score(self.questions, answers.best_texts(), rules,
                                           answers.null_odds)["best"]
        return _flat(scores)


def _flat(scores):
    """``{"best": {"f1": 1}}`` as ``{"best_f1": 1}``, for a line of metrics."""
    flat = {}
    for name, value in scores.items():
        if isinstance(value, dict):
            flat.update({f"{name}_{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat
