"""Several seeds of a recipe, and the figures that tables tell of them."""

import json

import pytest

from configs.errors import InputError
from configs.load import load_config
from training.seeds import read_seeds, run_seeds, summarise


@pytest.mark.parametrize("text, seeds", [(None, None), ("7", [7]), ("1,2, 3", [1, 2, 3])])
def test_seeds_are_read(text, seeds):
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "1,", "1,a", "1,1", "-1", "1.5"])
def test_what_is_no_list_of_seeds_is_refused(text):
    with pytest.raises(InputError, match="no list of different numbers"):
        read_seeds(text)


def test_mean_deviation_and_best():
    """Sample standard deviation: of 80, 82, 87 about the mean 83 it is the root of 13."""
    lines = [{"step": 5, "f1": f1, "loss": loss, "rules": "squad"}
             for f1, loss in ((80.0, 0.3), (82.0, 0.1), (87.0, 0.2))]
    figures = summarise([1, 2, 3], lines)["figures"]
    assert set(figures) == {"f1", "loss"}
    assert figures["f1"]["mean"] == 83.0 and figures["f1"]["best"] == 87.0
    assert figures["f1"]["deviation"] == pytest.approx(13 ** 0.5)
    assert figures["loss"]["best"] == 0.1 and figures["loss"]["values"] == [0.3, 0.1, 0.2]
    assert summarise([1], lines[:1])["figures"]["f1"]["deviation"] == 0.0


def test_each_seed_runs_in_its_own_folder(tmp_path, capsys):
    config, seen = load_config("configs/pretrain/quickstart.yaml"), []

    def run_one(config, folder):
        seen.append((config.train.seed, folder.name))
        return {"held_out": {"f1": float(config.train.seed)}}

    summary = run_seeds([3, 5], config, tmp_path, run_one)
    assert seen == [(3, "seed_3"), (5, "seed_5")]
    assert json.loads((tmp_path / "seeds.json").read_text()) == summary
    assert "f1: 4.0000 ± 1.4142, best 5.0000 of 2" in capsys.readouterr().out


def test_runs_without_scores_are_not_compared(tmp_path):
    """After the first, whose answers are there: an evaluation file may not tell the right ones."""
    config = load_config("configs/squad/minilm_l6.yaml", ["data.evaluation_file=test.json"])
    with pytest.raises(InputError, match="test.json: does not tell the answers.*seed_3"):
        run_seeds([3, 5], config, tmp_path, lambda config, folder: {"held_out": {"step": 8}})
    assert not (tmp_path / "seeds.json").exists()
