"""Labels of texts, pairs and words, or numbers, from a fine-tuned checkpoint."""

from pathlib import Path

import paddle

from configs.data_schema import ClassifyConfig
from configs.errors import InputError
from data.classify.examples import Examples, make_examples
from data.classify.features import make_features
from data.classify.predictions import describe_rows
from data.classify.rows import ClassifyData
from data.classify.tables import read_table
from inference.checkpoint import open_checkpoint
from inference.tasks import split_words
from models.tasks import build_for_classification
from models.weights.files import read_json
from models.weights.model_configs import declared_task, label_names

_ROWS_AT_ONCE = 32

class Classifier:
    """A checkpoint with a head for texts or for words, which knows its labels."""

    def __init__(self, directory):
        """
        Raises:
            InputError: the checkpoint cannot be read or has no such head.
        """
        values = read_json(Path(directory) / "config.json")
        task = declared_task(values)
        if task not in ("ForSequenceClassification", "ForTokenClassification"):
            raise InputError(directory, f"is of the kind {task}, which tells no labels",
                             "take a checkpoint of run_classify.py")
        count = len(values.get("id2label", "01"))  # transformers leaves the default of 2 out
        self.labels = label_names(values) or [f"LABEL_{number}" for number in range(count)]
        self.objective = "tokens" if task == "ForTokenClassification" else (
            "regression" if count == 1 else "classification")
        if self.objective == "regression":
            self.labels = []
        self.network, self.tokenizer, report = open_checkpoint(
            directory, lambda config: build_for_classification(config, self.objective,
                                                               self.labels))
        if report.missing:
            raise InputError(directory, f"lacks {', '.join(report.missing)}",
                             "take a checkpoint of run_classify.py")

    def classify_text(self, text, pair=None):
        """What is told of one text or pair, a dict as in ``describe_rows``; with ``words`` where
        words are labelled: white space parts them, and each Chinese character is one."""
        options = self._options(pair_column=None if pair is None else "pair")
        words = split_words(text) if self.objective == "tokens" else None
        examples = Examples("--text", (text if words is None else words,),
                            None if pair is None else (pair,), None)
        entry = self._classify(examples, options)[0]
        entry.pop("row")
        return entry if words is None else {"words": words, **entry}

    def classify_file(self, path, **options):
        """What is told of each row of a file.

        Args:
            path: a table.
            options: of ``ClassifyConfig``, e.g. ``text_column``.

        Returns:
            A list of dicts as in ``describe_rows``.
        """
        options = self._options(**options)
        return self._classify(make_examples(read_table(path, options), options), options)

    def _options(self, **options):
        options = ClassifyConfig(objective=self.objective, labels=self.labels, cache="",
                                 sequence_length=self.network.embeddings.max_positions,
                                 **options)
        options.check()
        if options.has_pairs and self.network.embeddings.token_type_embeddings.weight.shape[0] < 2:
            raise InputError("--pair", "the model has one segment", "give single texts")
        return options

    @paddle.no_grad()
    def _classify(self, examples, options):
        features = make_features(examples, self.tokenizer, options)
        data = ClassifyData(features, self.tokenizer, options, is_training=False)
        logits = data.gather(self._compute, _ROWS_AT_ONCE)
        return describe_rows(features, logits, options)

    def _compute(self, batch):
        inputs = {name: paddle.to_tensor(array) for name, array in batch.inputs.items()}
        return self.network(inputs)["logits"].numpy()
