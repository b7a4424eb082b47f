"""Options by name and type, rounding to float16, and the order of a pipeline."""

import numpy as np
import pytest

from configs.errors import InputError
from engines.ipu.option_rules import check_option, facts
from engines.ipu.pipeline import schedule
from engines.ipu.rounding import Rounding

REFUSED = [
    ("loss_scaling", 512, "a number with a point"), ("is_training", 1, "True or False"),
    ("num_ipus", "4", "a whole number"), ("num_ipus", -1, "0 or more"),
    ("accumulation_factor", True, "a whole number"), ("cache_path", None, "text"),
    ("accl1_type", "FLOAT32", "FLOAT or FLOAT16"), ("weight_decay_mode", "l2", "decay"),
    ("partials_type_matmuls", "fp16", "half or float"), ("loss_scaling", 0.0, "512.0"),
    ("available_memory_proportion", 1.2, "0.28"), ("auto_recomputation", 5, "3 (Pipeline)"),
    ("auto_recomputation", "Pipeline", "3 (Pipeline)"), ("virtual_graph_mode", True, "1 (Manual)"),
    ("subgraph_copying_strategy", 2, "1 (JustInTime)"), ("location_optimizers", {},
                                                         "'location_optimizer'"),
    ("location_optimizer", {"onchip": 1}, "'on_chip'"), ("location_optimizer", 1, "{key: value}"),
    ("location_optimizer", {"on_chip": True}, "a whole number"),
    ("location_weight", {"on_chip": 2}, "0 or 1"),
    ("replicated_collectives_settings", {"merge": True}, "merge_all_reduce_collectives"),
    ("accumulate_outer_fragment", [3], "{3: [0]}"),
    ("accumulate_outer_fragment", {4: []}, "0 to 3"),
    ("engine_options", {"opt.useAutoloader": True}, "text"), ("dot_checks", ["Fwd9"], "Fwd0"),
    ("custom_op", {"paddle_op": "detach"}, "popart_op"),
    ("hardware_instrumentations", [2], "inner"),
    ("compilation_progress_logger", 3, "a function"), ("custom_codelets", [1], "a list of text"),
    ("outline_treshold", 10.0, "'outline_threshold'"),
]


@pytest.mark.parametrize("name, value, mend", REFUSED)
def test_wrong_options_are_refused_with_the_mend(name, value, mend):
    with pytest.raises(InputError) as caught:
        check_option(name, value)
    assert name in caught.value.place and mend in caught.value.mend


def test_right_options_pass():
    for name, value in {
            "loss_scaling": 512.0, "is_training": True, "num_ipus": 16, "auto_recomputation": 3,
            "accl1_type": "FLOAT16", "location_optimizer": {"on_chip": 0},
            "accumulate_outer_fragment": {3: [0]}, "engine_options": {"a": "b"},
            "custom_op": {"paddle_op": "a", "popart_op": "A", "domain": "custom.ops",
                          "version": 1}, "dot_checks": ["Final"]}.items():
        check_option(name, value)


def test_random_options_of_the_wrong_type_never_pass():
    random = np.random.default_rng(0)
    values = [True, 7, 0.5, "text", None, [1], {"a": 1}]
    kinds = {"bool": bool, "int": int, "float": float, "str": str}
    for kind, type_ in kinds.items():
        for name in facts()["options"][kind]:
            value = values[random.integers(len(values))]
            if type(value) is not type_:
                with pytest.raises(InputError, match=name.replace(".", r"\.")):
                    check_option(name, value)


def test_stochastic_rounding_is_right_on_average():
    values = np.array([1 + 2 ** -12, -3.0003, 2 ** -25 * 0.75, 0.0, 1.0, 65504], np.float32)
    rounding = Rounding(True, seed=1)
    many = np.stack([rounding(values) for _ in range(20000)])
    assert np.array_equal(many, many.astype(np.float16).astype(np.float32))
    # The standard error of the mean of 20,000 draws is below a hundredth of a step.
    assert many.mean(0, dtype=np.float64) == pytest.approx(values, rel=2e-5, abs=1e-9)
    assert set(np.unique(many[:, 0])) == {np.float32(1), np.float32(1 + 2 ** -10)}
    assert Rounding(False, seed=1)(np.float32([1 + 2 ** -12])) == [1.0]
    assert np.isinf(rounding(np.float32([70000, -70000]))).all()


def test_a_pipeline_of_three_stages_and_back():
    order = list(schedule(positions=5, micro_batches=6))
    assert len(order) == 30 and order[-1] == (9, 4, 5)
    cycles = {(position, micro_batch): cycle for cycle, position, micro_batch in order}
    # A micro batch is at the next position in the next cycle, and never waits.
    assert all(cycles[position, micro_batch] == position + micro_batch
               for position in range(5) for micro_batch in range(6))
    # In the middle all five positions work, each on another micro batch.
    assert [micro_batch for cycle, _, micro_batch in order if cycle == 4] == [4, 3, 2, 1, 0]
