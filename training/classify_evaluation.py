"""Scores of a network on a file of labelled rows, and its predictions as a file."""

import json
from pathlib import Path

import numpy as np

from configs.files import write_whole
from data.classify import metrics
from data.classify.predictions import choose, describe_rows
from data.classify.rows import ClassifyData

PREDICTIONS = "predictions.jsonl"


class ClassifyEvaluation:
    """Called with an engine, predicts every row, writes what it predicts and scores it."""

    def __init__(self, config, features, tokenizer, output):
        """
        Args:
            config: a resolved classify ``Config``, its labels named.
            features: of the evaluation file.
            tokenizer: of the model.
            output: folder that the predictions are written to.
        """
        self.config, self.features, self.output = config, features, Path(output)
        self.data = ClassifyData(features, tokenizer, config.data, is_training=False,
                                 fixed_length=config.run.on_ipus)

    def __call__(self, engine):
        """Write ``predictions.jsonl``, a line for each row of the file, and score it.

        Returns:
            dict of floats: ``loss`` as in training, and the metrics of the objective.
        """
        engine.collect()
        scores = None
        if engine.is_main:
            logits = self.data.gather(lambda batch: engine.predict(batch)["logits"],
                                      self.config.run.micro_batch_size)
            rows = describe_rows(self.features, logits, self.config.data)
            write_whole(self.output / PREDICTIONS, "".join(
                json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            scores = self._score(logits)
        return engine.share(scores)

    def _score(self, logits):
        options, features = self.config.data, self.features
        chosen = choose(logits, options.objective)
        labels = np.concatenate([[], *features.labels])
        loss = mean_loss(np.concatenate(logits), labels, options.objective)
        if options.objective == "tokens":
            return {"loss": loss, **metrics.score("tokens", _by_row(chosen, features.rows),
                                                  _by_row(features.labels, features.rows),
                                                  options.labels)}
        kind = np.float64 if options.objective == "regression" else np.int64
        return {"loss": loss, **metrics.score(options.objective,
                                              np.concatenate(chosen).astype(kind),
                                              labels.astype(kind), options.labels)}


def mean_loss(logits, labels, objective):
    """Mean cross entropy in nats, or mean squared error, of float ``[labelled, labels]``."""
    if objective == "regression":
        return float(np.mean((logits[:, 0].astype(np.float64) - labels) ** 2))
    logits = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(labels)), labels.astype(int)]
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen))


def _by_row(values, rows):
    """Arrays of sequences, those of one row of the file joined."""
    bounds = np.flatnonzero(np.diff(rows)) + 1
    return [np.concatenate(values[begin:end]) for begin, end in
            zip([0, *bounds], [*bounds, len(rows)])]
