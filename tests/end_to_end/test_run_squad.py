"""Reading comprehension from start to end, on a tiny network and real questions."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import run_squad
from benchmarks.launching import ROOT, environment, launcher
from configs.command_line import run

CONFIG = "configs/squad/minilm_l6.yaml"
QUESTIONS = "tests/fixtures/squad/squad_v1.1.json"
IMPOSSIBLE = "tests/fixtures/squad/squad_v2.0.json"


@pytest.fixture
def squad(tmp_path):
    """Run run_squad.py on a tiny network; returns its result."""
    def call(output, *overrides, options=(), main=run_squad.main):
        values = [f"data.train_file={QUESTIONS}", f"data.evaluation_file={QUESTIONS}",
                  f"data.cache={tmp_path / 'cache'}", "data.sequence_length=96",
                  "data.document_stride=32", "data.max_query_length=24", "data.n_best=3",
                  "model.hidden_size=32", "model.num_hidden_layers=1",
                  "model.num_attention_heads=2", "model.intermediate_size=64",
                  "train.epochs=null", "train.steps=4", "train.save_every=2", "train.log_every=1",
                  "train.global_batch_size=4", "run.micro_batch_size=4",
                  "run.peak_flops=1.0e11", *overrides]
        words = [word for value in values for word in ("--set", value)]
        return main(["--config", CONFIG, "--output", str(output), *words, *options])
    return call


def read(path):
    return json.loads(path.read_text("utf-8"))


def test_run_folder_holds_answers_and_scores(tmp_path, squad):
    result = squad(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"checkpoints", "config.yaml", "curves.png", "evaluations.jsonl",
                     "metrics.jsonl", "result.json", "predictions.json", "nbest.json"}
    held_out, predictions = result["held_out"], read(tmp_path / "run" / "predictions.json")
    assert held_out["questions"] == len(predictions) == 49 and held_out["missing"] == 0
    assert 0 <= held_out["exact_match"] <= held_out["f1"] <= 100
    lines = [json.loads(line) for line
             in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    # A network that knows nothing: near the entropy of a window's slots.
    assert 3 < lines[0]["loss"] < 5 and lines[3]["samples"] == 16
    # The weights of the last checkpoint, evaluated as they are, give the same answers.
    last = tmp_path / "run" / "checkpoints" / "step_00000004"
    again = squad(tmp_path / "again", "data.train_file=null", f"train.initial_weights={last}")
    assert again["f1"] == held_out["f1"] and read(tmp_path / "again" / "scores.json") == again
    assert read(tmp_path / "again" / "predictions.json") == predictions


def test_packed_training_of_a_resumed_run_repeats_itself(tmp_path, squad):
    options = ["data.sequences_per_row=3", "data.sequence_length=384", "model.hidden_dropout_prob=0.1"]
    squad(tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000004")
    squad(tmp_path / "run", *options, options=["--resume"])
    one, two = (read(tmp_path / name / "result.json") for name in ("whole", "run"))
    assert one["training"]["loss"] == two["training"]["loss"]
    assert one["held_out"] == two["held_out"]


def test_questions_without_an_answer_are_seen_in_the_file(tmp_path, squad, capsys):
    result = squad(tmp_path / "run", f"data.train_file={IMPOSSIBLE}",
                   f"data.evaluation_file={IMPOSSIBLE}", "train.steps=1")
    assert {"has_answer_f1", "no_answer_f1", "best_f1"} <= set(result["held_out"])
    assert len(read(tmp_path / "run" / "null_odds.json")) == result["held_out"]["questions"]
    capsys.readouterr()
    for value, file, says in (("false", IMPOSSIBLE, "without an answer"),
                              ("true", QUESTIONS, "an answer to every question")):
        code = squad(tmp_path / value, f"data.has_impossible={value}", f"data.train_file={file}",
                     f"data.evaluation_file={file}",
                     main=lambda arguments: run(run_squad.main, arguments))
        error = capsys.readouterr().err
        assert code == 2 and error.count("\n") == 1 and says in error


def test_questions_of_unknown_answer_are_answered_and_not_scored(tmp_path, squad, capsys):
    tree = read(Path(QUESTIONS))
    first = tree["data"][0]["paragraphs"][0]["qas"][0]
    first["answers"] = []
    untold = tmp_path / "test.json"
    untold.write_text(json.dumps(tree), "utf-8")
    result = squad(tmp_path / "run", f"data.evaluation_file={untold}", "train.evaluate_every=2")
    assert result["held_out"] == {"step": 4, "samples": 16} and result["best"] is None
    assert first["id"] in read(tmp_path / "run" / "predictions.json")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000004")
    again = squad(tmp_path / "run", f"data.evaluation_file={untold}", "train.evaluate_every=2",
                  options=["--resume"])
    assert again["training"]["loss"] == result["training"]["loss"]
    capsys.readouterr()
    assert squad(tmp_path / "learn", f"data.train_file={untold}",
                 main=lambda arguments: run(run_squad.main, arguments)) == 2
    assert f"question {first['id']} has no answer and is not marked" in capsys.readouterr().err


def test_an_emulated_ipu_has_the_same_numbers(tmp_path, squad):
    options = ["data.sequences_per_row=3", "run.micro_batch_size=2", "train.optimizer=lamb",
               "model.hidden_dropout_prob=0", "model.attention_probs_dropout_prob=0"]
    squad(tmp_path / "cpu", *options)

    def launch(arguments):
        subprocess.run([sys.executable, "run_squad.py", *arguments], check=True,
                       capture_output=True, timeout=200)

    squad(tmp_path / "ipu", *options, "run.device=ipu_model", main=launch)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        one, two = ([json.loads(line) for line in (tmp_path / kind / name).read_text().splitlines()]
                    for kind in ("cpu", "ipu"))
        for key in ("loss", "f1"):
            assert ([line.get(key) for line in one]
                    == pytest.approx([line.get(key) for line in two], rel=1e-5))
    one, two = (read(tmp_path / kind / "predictions.json") for kind in ("cpu", "ipu"))
    assert one == two


def test_stages_and_replicas_on_four_processes_have_the_same_numbers(tmp_path, squad):
    options = ["model.num_hidden_layers=2", "model.hidden_dropout_prob=0.1",
               "data.sequences_per_row=3", "data.sequence_length=160", "run.micro_batch_size=1"]
    squad(tmp_path / "one", *options)

    def launch(arguments):
        environment = {key: value for key, value in os.environ.items()
                       if key != "CUDA_VISIBLE_DEVICES"}
        subprocess.run([sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "4",
                        "--log_dir", str(tmp_path / "log"), "run_squad.py", *arguments],
                       check=True, capture_output=True, env=environment, timeout=200)

    squad(tmp_path / "four", *options, "run.replicas=2",
          "run.pipeline=[embeddings -1 on 0, -1 heads on 1]", main=launch)
    one, four = ([json.loads(line)["loss"] for line in
                  (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
                 for name in ("one", "four"))
    assert len(one) == 4 and one == pytest.approx(four, rel=1e-5)
    scores = [read(tmp_path / name / "result.json")["held_out"] for name in ("one", "four")]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_several_seeds(tmp_path, squad):
    summary = squad(tmp_path / "run", "train.steps=1", options=["--seeds", "1,2"])
    assert summary["seeds"] == [1, 2] and len(summary["figures"]["f1"]["values"]) == 2
    assert (tmp_path / "run" / "seed_2" / "predictions.json").is_file()


def test_dry_run_writes_nothing(tmp_path, squad, capsys):
    description = squad(tmp_path / "run", "train.steps=null", "train.epochs=2",
                        options=["--dry-run"])
    assert not (tmp_path / "run").exists()
    # 271 windows, 4 an update, twice.
    assert description["rows_per_epoch"] == 271 and description["epochs"] == 136 * 4 / 271
    assert "heads" in capsys.readouterr().out


def test_a_recipe_for_pretraining_is_refused(capsys):
    assert run(run_squad.main, ["--config", "configs/pretrain/quickstart.yaml"]) == 2
    assert "is a recipe for run_pretrain.py; choose one for run_squad.py" in capsys.readouterr().err


def test_nothing_to_do_is_told(squad, tmp_path, capsys):
    code = squad(tmp_path / "run", "data.train_file=null",
                 main=lambda arguments: run(run_squad.main, arguments))
    assert code == 2 and "there is nothing to evaluate" in capsys.readouterr().err


def test_seeds_in_two_processes(tmp_path, squad):
    """One of them sums up, and finds what one process alone finds."""
    def in_two(words):
        return subprocess.run([*launcher(2, tmp_path / "log"), "run_squad.py", *words], text=True,
                              cwd=ROOT, env=environment(), capture_output=True)

    options, seeds = ("train.steps=2", "model.hidden_dropout_prob=0"), ("--seeds", "1,2")
    done = squad(tmp_path / "two", *options, "run.replicas=2", "run.micro_batch_size=2",
                 options=seeds, main=in_two)
    assert done.returncode == 0, done.stdout + done.stderr
    found, alone = read(tmp_path / "two" / "seeds.json"), squad(tmp_path / "one", *options,
                                                                options=seeds)
    assert found["figures"]["f1"]["values"] == pytest.approx(alone["figures"]["f1"]["values"])
    assert done.stdout.count("exact_match: ") == 1
