"""The entry point from start to end, on a tiny network and real text."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import predict
import run_pretrain
from configs.command_line import run
from configs.errors import InputError

CONFIG = "configs/pretrain/quickstart.yaml"
LOSSES = ("step", "samples", "loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy",
          "learning_rate", "gradient_norm", "skipped_steps")


@pytest.fixture
def pretrain(tiny_overrides):
    """Run run_pretrain.py's ``main`` on the tiny recipe; returns its result."""
    def call(output, *options, overrides=()):
        sets = [word for override in (*tiny_overrides, *overrides) for word in ("--set", override)]
        return run_pretrain.main(["--config", CONFIG, "--output", str(output), *sets, *options])
    return call


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(folder):
    return [{key: line[key] for key in LOSSES} for line in read_lines(folder / "metrics.jsonl")]


def test_run_folder_holds_what_is_promised(tmp_path, pretrain):
    result = pretrain(tmp_path / "run", overrides=["train.evaluate_every=3"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoints", "config.yaml", "curves.png", "evaluations.jsonl", "metrics.jsonl",
        "result.json"]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["samples"] for line in lines] == [8, 16, 24, 32, 40, 48]
    assert set(lines[0]) == {*LOSSES, "sequences_per_second", "tokens_per_second", "mfu",
                             "data_seconds", "step_seconds"}
    # Chance: ln 30522 and ln 2; weights of 0.02 leave the first loss within a few per cent.
    assert lines[0]["mlm_loss"] == pytest.approx(np.log(30522), abs=0.2)
    assert lines[0]["nsp_loss"] == pytest.approx(np.log(2), abs=0.05)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step_00000003", "step_00000006"]
    evaluations = read_lines(tmp_path / "run" / "evaluations.jsonl")
    assert [line["step"] for line in evaluations] == [3, 6]
    assert result["held_out"]["step"] == 6 and result["held_out"]["word_frequency_loss"] > 6
    picture = (tmp_path / "run" / "curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_parameters_and_flops_of_bert_base():
    from configs.load import load_config
    from models.cost import forward_flops
    from models.tasks import build_for_pretraining
    from training.loop import count_parameters

    config = load_config("configs/pretrain/bert_base_128.yaml")
    network = build_for_pretraining(config.model, config.data.max_predictions)
    # transformers 4.44.2: BertForPreTraining(BertConfig()).num_parameters()
    assert count_parameters(network) == 110_106_428
    # Megatron-LM's count (Narayanan et al. 2021, section 5.1) of a layer's products.
    layers = 12 * 24 * 128 * 768 ** 2 * (1 + 128 / (6 * 768))
    head = 2 * 20 * 768 * (768 + 30522) + 2 * 768 ** 2
    assert forward_flops(config.model, 128, 20) == pytest.approx(layers + head, rel=1e-12)


def test_same_seed_same_numbers(tmp_path, pretrain):
    for name in ("one", "two"):
        pretrain(tmp_path / name, overrides=["model.hidden_dropout_prob=0.1"])
    assert losses(tmp_path / "one") == losses(tmp_path / "two")


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_resumed_run_equals_unbroken_run_in_every_bit(tmp_path, pretrain, optimizer):
    overrides = ["model.hidden_dropout_prob=0.1", "model.attention_probs_dropout_prob=0.1",
                 f"train.optimizer={optimizer}"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain(whole, overrides=overrides)
    # What a kill after step 5 leaves: checkpoint 3, and lines that came after it.
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoints" / "step_00000006")
    (broken / "result.json").unlink()
    with open(broken / "metrics.jsonl", "r+") as stream:
        lines = stream.readlines()
        stream.seek(0)
        stream.truncate()
        stream.writelines([*lines[:5], lines[5][:20]])
    pretrain(broken, "--resume", overrides=overrides)
    assert losses(broken) == losses(whole)
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (load_file(folder / "checkpoints" / "step_00000006" / file)
                    for folder in (whole, broken))
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_with_its_own_code(tmp_path, tiny_overrides, number):
    overrides = ["train.steps=150", "train.save_every=150", "train.log_every=1"]
    command = [sys.executable, "run_pretrain.py", "--config", CONFIG, "--resume"]
    command += [word for value in (*tiny_overrides, *overrides) for word in ("--set", value)]
    process = subprocess.Popen([*command, "--output", str(tmp_path / "run")], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in process.stdout:
        if line.startswith("step 3/"):
            process.send_signal(number)
            break
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75 and "go on with --resume" in errors
    checkpoint, = (tmp_path / "run" / "checkpoints").iterdir()
    assert 3 <= int(checkpoint.name[-8:]) < 150
    # In processes of their own, as the first part was: equal bits want equal threads.
    for name in ("run", "whole"):
        subprocess.run([*command, "--output", str(tmp_path / name)], check=True,
                       capture_output=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_split_of_the_global_batch_changes_no_number(tmp_path, pretrain):
    splits = {"plain": ["run.micro_batch_size=8"], "accumulated": ["run.micro_batch_size=2"],
              "replicas": ["run.micro_batch_size=2", "run.replicas=2"]}
    for name, overrides in splits.items():
        pretrain(tmp_path / name, overrides=[*overrides, "train.steps=3"])
    plain = losses(tmp_path / "plain")
    for name in ("accumulated", "replicas"):
        for ours, theirs in zip(plain, losses(tmp_path / name)):
            assert ours == pytest.approx(theirs, rel=1e-5)


def test_resume_without_a_run_starts_one_and_a_finished_run_stays(tmp_path, pretrain):
    first = pretrain(tmp_path / "run", "--resume")
    again = pretrain(tmp_path / "run", "--resume")
    assert first["held_out"] == again["held_out"] and first["training"] == again["training"]


def test_a_run_is_not_overwritten(tmp_path, pretrain, tiny_overrides, capsys):
    pretrain(tmp_path / "run", overrides=["train.steps=2"])
    sets = [word for override in (*tiny_overrides, "train.steps=2") for word in ("--set", override)]
    arguments = ["--config", CONFIG, "--output", str(tmp_path / "run"), *sets]
    assert run(run_pretrain.main, arguments) == 2
    assert "add --resume" in capsys.readouterr().err
    arguments += ["--resume", "--set", "train.learning_rate=0.5"]
    assert run(run_pretrain.main, arguments) == 2
    assert "train.learning_rate 0.001, not 0.5" in capsys.readouterr().err


def test_phase_two_starts_from_phase_one(tmp_path, pretrain, capsys):
    pretrain(tmp_path / "one")
    checkpoint = tmp_path / "one" / "checkpoints" / "step_00000006"
    result = pretrain(tmp_path / "two", overrides=[
        f"train.initial_weights={checkpoint}", "data.sequence_length=64",
        "data.max_predictions=9", "train.steps=1", "train.learning_rate=1.0e-9"])
    assert "loaded 46 parameters" in capsys.readouterr().out
    held_out = read_lines(tmp_path / "one" / "evaluations.jsonl")[-1]["mlm_loss"]
    assert result["held_out"]["mlm_loss"] == pytest.approx(held_out, abs=0.3)
    assert result["held_out"]["mlm_loss"] < np.log(30522) - 0.05
    # Once begun, phase 2 goes on without phase 1's folder.
    shutil.rmtree(tmp_path / "one")
    again = pretrain(tmp_path / "two", "--resume", overrides=[
        f"train.initial_weights={checkpoint}", "data.sequence_length=64",
        "data.max_predictions=9", "train.steps=1", "train.learning_rate=1.0e-9"])
    assert again["held_out"] == result["held_out"]


def test_phase_two_checks_what_sizes_do_not_show(tmp_path, pretrain):
    pretrain(tmp_path / "one", overrides=["train.steps=1"])
    checkpoint = tmp_path / "one" / "checkpoints" / "step_00000001"
    with pytest.raises(InputError, match="trained with hidden_act gelu, but model.hidden_act is"):
        pretrain(tmp_path / "two", overrides=[f"train.initial_weights={checkpoint}",
                                              "model.hidden_act=gelu_new"])


def test_dry_run_describes_and_writes_nothing(tmp_path, pretrain, capsys):
    description = pretrain(tmp_path / "run", "--dry-run")
    assert not (tmp_path / "run").exists()
    printed = capsys.readouterr().out
    for word in ("embeddings", "layer.1", "pooler", "heads", "accumulation 2", "memory_bytes"):
        assert word in printed
    assert description["parameters"] > 30522 * 32


def test_one_document_trains_on_sentence_order_without_evaluation(tmp_path, pretrain):
    import prepare_data

    (tmp_path / "one.txt").write_text("A first sentence of it.\nA second sentence of it.\n" * 99)
    overrides = [f"data.directory={tmp_path / 'one'}", "data.held_out_share=0",
                 "data.pair_objective=sop", "train.steps=2"]
    prepare_data.main(["--config", CONFIG, "--input", str(tmp_path / "one.txt"), "--output",
                       str(tmp_path / "one"), "--set", "data.held_out_share=0"])
    result = pretrain(tmp_path / "run", overrides=overrides)
    assert result["held_out"] is None and result["training"]["nsp_loss"] > 0
    assert (tmp_path / "run" / "curves.png").is_file()


def test_packed_rows_and_workers_train(tmp_path, pretrain):
    overrides = ["data.sequences_per_row=3", "train.steps=2"]
    alone = pretrain(tmp_path / "alone", overrides=overrides)
    pretrain(tmp_path / "workers", overrides=[*overrides, "run.data_workers=1"])
    assert losses(tmp_path / "alone") == losses(tmp_path / "workers")
    assert alone["training"]["mlm_loss"] == pytest.approx(np.log(30522), abs=0.3)


def test_fill_mask_of_a_run(tmp_path, pretrain, capsys):
    pretrain(tmp_path / "run", overrides=["train.steps=1"])
    checkpoint = str(tmp_path / "run" / "checkpoints" / "step_00000001")
    answers = predict.main(["fill-mask", "--checkpoint", checkpoint,
                            "--text", "The [MASK] of the [MASK]."])
    assert [len(words) for words in answers["tokens"]] == [5, 5]
    probabilities = answers["probabilities"][0]
    assert probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) < 1
    for text, problem in (("no mask", "no [MASK] in it"),
                          ("[MASK] " + "word " * 600, "603 tokens, but the model has 512")):
        assert run(predict.main, ["fill-mask", "--checkpoint", checkpoint, "--text", text]) == 2
        assert problem in capsys.readouterr().err
    for file in ("vocab.txt", "config.json", "model.safetensors"):
        (tmp_path / "run" / "checkpoints" / "step_00000001" / file).unlink()
        assert run(predict.main, ["fill-mask", "--checkpoint", checkpoint, "--text",
                                  "[MASK]"]) == 2
        error = capsys.readouterr().err
        assert "step_00000001" in error and error.count("\n") == 1


def test_ernie_on_chinese_text(tmp_path):
    import prepare_data

    recipe = "configs/pretrain/quickstart_ernie_zh.yaml"
    prepare_data.main(["--config", recipe, "--output", str(tmp_path / "prepared")])
    sets = ["model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2",
            "model.intermediate_size=64", "train.steps=2", "train.warmup_steps=1",
            "train.global_batch_size=4", "run.micro_batch_size=4", "train.evaluation_rows=8",
            f"data.directory={tmp_path / 'prepared'}", "run.peak_flops=1.0e11"]
    result = run_pretrain.main(["--config", recipe, "--output", str(tmp_path / "run"),
                                *[word for value in sets for word in ("--set", value)]])
    assert result["training"]["mlm_loss"] == pytest.approx(np.log(18000), abs=0.3)
