"""Every test runs in a process that is set up as the entry points set theirs up."""

import pytest

from engines import startup

startup.prepare()

from configs.load import load_config  # noqa: E402  (nothing may import Paddle before)

# In processes of their own, see tests/end_to_end/test_ipu_process.py.
collect_ignore = ["ipu"]

QUICKSTART = "configs/pretrain/quickstart.yaml"
TINY = ["model.hidden_size=32", "model.num_hidden_layers=2", "model.num_attention_heads=2",
        "model.intermediate_size=64", "data.sequence_length=48", "data.max_predictions=7",
        "train.steps=6", "train.warmup_steps=2", "train.global_batch_size=8",
        "train.log_every=1", "train.evaluate_every=0", "train.evaluation_rows=16",
        "train.save_every=3", "run.micro_batch_size=4", "run.peak_flops=1.0e11"]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A prepared folder of the English sample."""
    import prepare_data

    directory = tmp_path_factory.mktemp("data") / "prepared"
    prepare_data.main(["--config", QUICKSTART, "--output", str(directory)])
    return directory


@pytest.fixture
def tiny_overrides(prepared):
    """``--set`` values that make the quickstart recipe take a second."""
    return [*TINY, f"data.directory={prepared}"]


@pytest.fixture
def tiny_config(tiny_overrides):
    """The resolved tiny recipe; call it with more overrides."""
    return lambda *overrides: load_config(QUICKSTART, [*tiny_overrides, *overrides])
