"""run_classify.py from start to end, on texts made here that a tiny network can learn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import run_classify
from configs.command_line import EXIT_BAD_INPUT, run
from configs.errors import InputError
from inference.classify import Classifier

SUBJECTS = "the film|a room|this book|one camera|her phone|the plot".split("|")
LIKED, DISLIKED = "good fine lovely great".split(), "bad poor dull awful".split()
PEOPLE, PLACES = "ann bob carl dora".split(), "paris rome london berlin".split()
RECIPE = """base: {root}/configs/models/bert_tiny_uncased.yaml
model: {{hidden_size: 32, intermediate_size: 64, max_position_embeddings: 64,
         hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}}
data: {{task: classify, sequence_length: 32, cache: {folder}/cache}}
train: {{epochs: 4, global_batch_size: 16, learning_rate: 1.0e-2, warmup_ratio: 0.1, log_every: 1,
        seed: 1}}
run: {{micro_batch_size: 8, peak_flops: 1.0e+11}}
"""


def sentences(count, seed):
    """Pairs of a sentence and whether it likes."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        likes = int(random.integers(2))
        word = random.choice(LIKED if likes else DISLIKED)
        yield f'{random.choice(SUBJECTS)} is "really" {word} ,', likes


def write_reviews(path, count, seed, names=("no", "yes")):
    rows = [f"{names[likes]}\t{text}" for text, likes in sentences(count, seed)]
    path.write_text("\n".join(["label\ttext", *rows]) + "\n", "utf-8")


def write_scores(path, count, seed):
    """csv with commas inside; the score is how many of a pair's texts like."""
    pairs = zip(sentences(count, seed), sentences(count, seed + 1))
    lines = ['"{}","{}",{}.0'.format(one.replace('"', '""'), two.replace('"', '""'), a + b)
             for (one, a), (two, b) in pairs]
    path.write_text("\r\n".join(["first,second,score", *lines]) + "\r\n", "utf-8")


def write_words(path, count, seed):
    random = np.random.default_rng(seed)
    blocks = []
    for _ in range(count):
        person, place = random.choice(PEOPLE), random.choice(PLACES)
        words = [(person, "B-PER"), ("smith", "I-PER"), ("flew", "O"), ("to", "O"),
                 (place, "B-LOC"), (".", "O")]
        blocks.append("".join(f"{word} {tag}\n" for word, tag in words[:random.integers(2, 7)]))
    path.write_text("\n".join(blocks), "utf-8")


@pytest.fixture
def classify(tmp_path):
    """Run run_classify.py's ``main`` on the tiny recipe; returns its result."""
    config = tmp_path / "tiny.yaml"
    config.write_text(RECIPE.format(root=Path.cwd(), folder=tmp_path))

    def call(*overrides, options=(), output="run"):
        sets = [word for override in overrides for word in ("--set", override)]
        return run_classify.main(["--config", str(config), "--output", str(tmp_path / output),
                                  *sets, *options])
    return call


@pytest.fixture
def reviews(tmp_path):
    """Overrides that name files of reviews."""
    write_reviews(tmp_path / "train.tsv", 120, 0)
    write_reviews(tmp_path / "dev.tsv", 40, 1)
    return (f"data.train_file={tmp_path}/train.tsv", f"data.evaluation_file={tmp_path}/dev.tsv")


def read_lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def last_checkpoint(folder):
    return sorted((folder / "checkpoints").iterdir())[-1]


def test_texts(tmp_path, classify, reviews, capsys):
    result = classify(*reviews, "data.sequences_per_row=3", "train.epochs=10")
    printed = capsys.readouterr().out
    assert "train.tsv: 120 rows, tsv, quotation marks are text" in printed
    assert "labels: no, yes" in printed and "packing: 120 sequences in 40 rows" in printed
    assert result["held_out"]["accuracy"] == 1.0 == result["held_out"]["f1"]
    assert {"loss", "macro_f1", "matthews"} <= set(result["held_out"])
    rows = read_lines(tmp_path / "run/predictions.jsonl")
    given = [line.split("\t")[0] for line in (tmp_path / "dev.tsv").read_text().splitlines()[1:]]
    assert [row["row"] for row in rows] == list(range(40))
    assert [row["expected"] for row in rows] == given == [row["label"] for row in rows]
    checkpoint = last_checkpoint(tmp_path / "run")
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "no", "1": "yes"}

    classifier = Classifier(checkpoint)
    answer = classifier.classify_text("her phone is \"really\" lovely ,")
    assert answer["label"] == "yes" and sum(answer["probabilities"].values()) == pytest.approx(1)
    assert classifier.classify_file(tmp_path / "dev.tsv") == [
        {key: row[key] for key in ("row", "label", "probabilities")} for row in rows]
    with pytest.raises(InputError, match="has no column 'x', but 'label', 'text'"):
        classifier.classify_file(tmp_path / "dev.tsv", text_column="x")


def test_weights_are_scored_as_they_are_by_their_own_labels(tmp_path, classify, reviews):
    held_out = classify(*reviews, "train.epochs=1")["held_out"]
    weights = f"train.initial_weights={last_checkpoint(tmp_path / 'run')}"
    scores = classify(reviews[1], weights, output="again")
    assert scores == {key: held_out[key] for key in scores} and "accuracy" in scores
    # A file in which but one of the labels occurs, and a recipe that lists others.
    write_reviews(tmp_path / "one.tsv", 20, 2, ("yes", "yes"))
    one = f"data.evaluation_file={tmp_path}/one.tsv"
    assert 0 <= classify(one, weights, output="one")["accuracy"] <= 1
    with pytest.raises(InputError, match="the weights' labels are no, yes, not yes, no"):
        classify(one, weights, "data.labels=['yes', 'no']", output="other")
    with pytest.raises(InputError, match="there is nothing to evaluate"):
        classify(one, output="other")
    assert not (tmp_path / "other").exists()


def test_pairs_and_numbers(tmp_path, classify):
    write_scores(tmp_path / "train.csv", 160, 0)
    write_scores(tmp_path / "dev.csv", 40, 10)
    result = classify(f"data.train_file={tmp_path}/train.csv", "data.objective=regression",
                      f"data.evaluation_file={tmp_path}/dev.csv", "data.text_column=first",
                      "data.pair_column=second", "data.label_column=score", "train.epochs=6")
    assert set(result["held_out"]) == {"step", "samples", "loss", "pearson", "spearman"}
    assert result["held_out"]["pearson"] > 0.6 and result["held_out"]["loss"] < 0.3
    row = read_lines(tmp_path / "run/predictions.jsonl")[0]
    assert set(row) == {"row", "score", "expected"} and row["expected"] in (0.0, 1.0, 2.0)
    classifier = Classifier(last_checkpoint(tmp_path / "run"))
    high, low = (classifier.classify_text(*[f'{subject} is "really" {word} ,' for subject in
                                            ("the film", "a room")])["score"]
                 for word in ("good", "bad"))
    assert high - low > 0.5


def test_labelled_words(tmp_path, classify):
    write_words(tmp_path / "train.conll", 120, 0)
    write_words(tmp_path / "dev.conll", 30, 1)
    result = classify(f"data.train_file={tmp_path}/train.conll", "data.objective=tokens",
                      f"data.evaluation_file={tmp_path}/dev.conll", "data.sequences_per_row=4",
                      "train.epochs=8")
    assert result["held_out"]["span_f1"] == 1.0 == result["held_out"]["token_f1"]
    row = read_lines(tmp_path / "run/predictions.jsonl")[0]
    assert row["labels"] == row["expected"] and len(row["probabilities"]) == len(row["labels"])
    classifier = Classifier(last_checkpoint(tmp_path / "run"))
    assert classifier.classify_text("dora smith flew to rome")["labels"] == [
        "B-PER", "I-PER", "O", "O", "B-LOC"]


def test_seeds(tmp_path, classify, reviews):
    summary = classify(*reviews, "train.epochs=1", options=["--seeds", "1,2"], output="seeds")
    figures = summary["figures"]["accuracy"]
    values = [read_lines(tmp_path / f"seeds/seed_{seed}/evaluations.jsonl")[-1]["accuracy"]
              for seed in (1, 2)]
    assert figures["values"] == values and figures["mean"] == pytest.approx(np.mean(values))
    assert figures["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert json.loads((tmp_path / "seeds/seeds.json").read_text()) == summary
    with pytest.raises(InputError, match="--seeds: there is no data.evaluation_file"):
        classify(reviews[0], options=["--seeds", "1,2"], output="none")


def test_a_resumed_run_has_the_same_numbers(tmp_path, classify, reviews):
    more = (*reviews, "train.epochs=1", "train.save_every=4", "data.sequences_per_row=2",
            "model.hidden_dropout_prob=0.1")
    classify(*more, output="whole")
    classify(*more, output="cut")
    lost = last_checkpoint(tmp_path / "cut")
    (lost / "state.json").unlink()
    classify(*more, options=["--resume"], output="cut")
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        one, two = ([line["loss"] for line in read_lines(tmp_path / folder / name)]
                    for folder in ("whole", "cut"))
        assert one == two and len(one) == (4 if name == "metrics.jsonl" else 1)


def test_dry_run_tells_the_cost_and_writes_nothing(tmp_path, classify, reviews):
    description = classify(*reviews, "data.sequences_per_row=3", options=["--dry-run"])
    assert description["rows_per_epoch"] == 40 and description["epochs"] == pytest.approx(4, 0.05)
    assert not (tmp_path / "run").exists()


# What IPUs compute otherwise, so that all engines do the same.
ALIKE = ["train.epochs=null", "train.steps=3", "data.sequences_per_row=2",
         "train.decay_all_parameters=true", "train.max_gradient_norm=0"]
ENGINES = {
    "stages": (["-m", "paddle.distributed.launch", "--nproc_per_node", "2"], [
        "run.pipeline=['embeddings, layer.0 on 0', 'layer.1, pooler, heads on 1']"]),
    "ipu": ([], ["run.device=ipu_model"])}


@pytest.mark.parametrize("engine", ENGINES)
def test_other_engines_have_the_same_numbers(engine, tmp_path, classify, reviews):
    """Two Fleet processes on a classifier; an emulated IPU on labelled words."""
    files = list(reviews)
    if engine == "ipu":
        for name, count in (("train", 60), ("dev", 20)):
            write_words(tmp_path / f"{name}.conll", count, count)
        files = [word.replace(".tsv", ".conll") for word in files] + ["data.objective=tokens"]
    launcher, overrides = ENGINES[engine]
    if launcher:
        launcher = [*launcher, "--log_dir", str(tmp_path / "log")]
    classify(*files, *ALIKE, output="local")
    sets = [word for item in (*files, *ALIKE, *overrides) for word in ("--set", item)]
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
    done = subprocess.run([sys.executable, *launcher, "run_classify.py", "--config",
                           str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / engine), *sets],
                          env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        one, two = (read_lines(tmp_path / folder / name) for folder in ("local", engine))
        for line, other in zip(one, two):
            for key in ("loss", "accuracy"):
                assert other[key] == pytest.approx(line[key], abs=1e-5)
        assert len(one) == len(two) == (3 if name == "metrics.jsonl" else 1)


@pytest.mark.parametrize("override, says", [
    ("data.text_column=txt", "train.tsv: has no column 'txt', but 'label', 'text'; write "
                             "data.text_column: NAME"),
    ("data.labels=[good, bad]", "train.tsv:2: 'label': \"yes\" is none of the labels good, bad"),
    ("data.objective=regression", "train.tsv:2: 'label': \"yes\" is no number"),
    ("data.label_column=text", "different labels in 120 rows"),
    ("model.lower_case=false", "has no token with a capital, but model.lower_case is false"),
    ("data.train_file=nowhere.tsv", "nowhere.tsv: cannot be read"),
    ("data.metric=pearson", "--set data.metric=pearson: data.metric: pearson is no metric of "
                            "classification")])
def test_bad_input_is_told_in_one_line_and_nothing_is_written(tmp_path, reviews, override, says,
                                                              capsys):
    config = tmp_path / "tiny.yaml"
    config.write_text(RECIPE.format(root=Path.cwd(), folder=tmp_path))
    sets = [word for item in (*reviews, override) for word in ("--set", item)]
    arguments = ["--config", str(config), "--output", str(tmp_path / "run"), *sets]
    if override == "data.label_column=text":
        rows = "".join(f"yes\tword{number}\n" for number in range(120))
        (tmp_path / "train.tsv").write_text("label\ttext\n" + rows)
    assert run(run_classify.main, arguments) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
