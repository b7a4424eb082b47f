"""Planted violations, each refused with its block, its operator and a mend."""

import paddle
import pytest

from configs.errors import InputError

FLOAT, HALF, INT, INT64, BFLOAT, DOUBLE, UINT8 = 5, 4, 2, 3, 22, 6, 20
PLACE = "layer.0.attention, operator "


def refused(program, *words):
    with pytest.raises(InputError) as caught:
        program.check()
    message = str(caught.value)
    assert caught.value.mend
    for word in words:
        assert word in message, message


def test_the_small_program_passes(small):
    assert small().check() == small().loss


# Operators without a handler, and what the mend must name.
UNKNOWN = {"range": "feed", "gather_nd": "gather along axis 0", "index_select": "gather",
           "take_along_axis": "gather", "scatter": "one_hot_v2", "accuracy": "arg_max",
           "masked_select": "static", "nll_loss": "softmax_with_cross_entropy",
           "label_smooth": "by hand", "einsum": "matmul_v2", "tril_triu": "feed",
           "bernoulli": "dropout", "unbind": "split", "squared_l2_norm": "square",
           "fused_attention": "fusion", "flash_attn": "fusion", "reshape": "reshape2",
           "transpose": "transpose2", "squeeze": "squeeze2", "unsqueeze": "unsqueeze2",
           "while": "control flow", "py_func": "host", "c_allreduce_sum": "replicas",
           "check_finite_and_unscale": "run.loss_scale", "bitwise_and": "custom operator"}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_operators_without_a_handler(small, kind):
    program = small()
    program.turn_into(kind)
    refused(program, PLACE + kind, "has no handler", UNKNOWN[kind])


# Operator, attributes, inputs, and words of the refusal.
BROKEN = {
    "affine_channel": ("affine_channel", {"data_layout": "NHWC"}, {}, "channels last"),
    "arg_max keeps": ("arg_max", {"axis": 1, "keepdims": True}, {}, "keeps its axis"),
    "arg_max flat": ("arg_max", {"axis": 1, "flatten": True}, {}, "flattens"),
    "arg_min axis": ("arg_min", {"axis": "tensor"}, {}, "axis as a tensor"),
    "assign_value": ("assign_value", {"dtype": FLOAT}, {}, "later Paddle"),
    "assign_value type": ("assign_value", {"dtype": DOUBLE, "fp32_values": [1.0]}, {}, "constant"),
    "batch_norm": ("batch_norm", {}, {}, "no scale"),
    "bmm": ("bmm", {}, {"X": "weight", "Y": "weight"}, "3 axes"),
    "cast": ("cast", {"out_dtype": BFLOAT}, {}, "IPUs lack"),
    "concat": ("concat", {}, {"AxisTensor": "ids"}, "axis as a tensor"),
    "conv2d": ("conv2d", {"data_format": "NHWC"}, {}, "channels last"),
    "conv2d_transpose": ("depthwise_conv2d_transpose", {"data_format": "NHWC"}, {},
                         "channels last"),
    "cumsum": ("cumsum", {"flatten": True}, {}, "flattens"),
    "custom_nll_loss": ("custom_nll_loss", {"ignoreIndex": -100}, {}, "as text"),
    "data_norm": ("data_norm", {"slot_dim": 1}, {}, "slots"),
    "dropout mode": ("dropout", {"is_test": False,
                                 "dropout_implementation": "downgrade_in_infer"}, {}, "upscale"),
    "dropout seed": ("dropout", {"is_test": True}, {"Seed": "ids"}, "seed"),
    "dropout axis": ("dropout", {"is_test": True, "axis": [1]}, {}, "axis"),
    "equal": ("equal", {"axis": 0}, {"Y": "ids"}, "by an axis"),
    "expand": ("expand", {}, {"expand_times_tensor": "ids"}, "tensors"),
    "expand_as_v2": ("expand_as_v2", {}, {"target_tensor": "ids"}, "target_shape"),
    "expand_v2 -1": ("expand_v2", {"shape": [2, -1, 4]}, {}, "without -1"),
    "expand_v2 shape": ("expand_v2", {"shape": [2, 6, 4]}, {"Shape": "ids"}, "as a tensor"),
    "fill_any_like": ("fill_any_like", {"dtype": -1}, {}, "name the type"),
    "fill_any_like type": ("fill_any_like", {"dtype": UINT8}, {}, "no constant of"),
    "fill_constant shape": ("fill_constant", {"dtype": FLOAT, "shape": [2]},
                            {"ShapeTensor": "ids"}, "static numbers"),
    "fill_constant value": ("fill_constant", {"dtype": FLOAT, "shape": [2]},
                            {"ValueTensor": "ids"}, "write a number"),
    "fill_constant type": ("fill_constant", {"dtype": BFLOAT, "shape": [2]}, {}, "constant of"),
    "fill_constant size": ("fill_constant", {"dtype": FLOAT, "shape": [0]}, {}, "positive"),
    "gather axis": ("gather", {"axis": 1}, {}, "axis than 0"),
    "gather tensor": ("gather", {}, {"Axis": "ids"}, "axis than 0"),
    "kldiv_loss": ("kldiv_loss", {"reduction": "batchmean"}, {}, "sum or mean"),
    "layer_norm": ("layer_norm", {}, {"Scale": "bias"}, "no bias"),
    "lookup_table_v2": ("lookup_table_v2", {"padding_idx": 0}, {"W": "table"}, "padding_idx=None"),
    "max_pool2d_with_index": ("max_pool2d_with_index", {"ksize": [2, 2]}, {}, "ksize=1"),
    "mish": ("mish", {"threshold": 10.0}, {}, "20.0"),
    "one_hot_v2": ("one_hot_v2", {"allow_out_of_range": True}, {}, "out of range"),
    "one_hot depth": ("one_hot_v2", {}, {"depth_tensor": "ids"}, "depth as a tensor"),
    "p_norm": ("p_norm", {"porder": float("inf")}, {}, "infinity"),
    "pad3d": ("pad3d", {"mode": "replicate"}, {}, "copying"),
    "pool2d rule": ("pool2d", {"padding_algorithm": "SAME"}, {}, "by a rule"),
    "pool2d adaptive": ("pool2d", {"padding_algorithm": "EXPLICIT", "adaptive": True,
                                   "ksize": [2, 2]}, {}, "adapts"),
    "reshape2": ("reshape2", {}, {"Shape": "ids"}, "static numbers"),
    "sigmoid cross entropy": ("sigmoid_cross_entropy_with_logits", {}, {"pos_weight": "ids"},
                              "weighs positives"),
    "reduce_max": ("reduce_max", {"out_dtype": HALF}, {}, "changes the type"),
    "slice": ("slice", {}, {"StartsTensor": "ids"}, "bounds as tensors"),
    "strided_slice": ("strided_slice", {}, {"StridesTensorList": "ids"}, "bounds as tensors"),
    "soft labels": ("softmax_with_cross_entropy", {"soft_label": True}, {}, "hard labels"),
    "probabilities": ("softmax_with_cross_entropy", {"soft_label": False, "use_softmax": False},
                      {}, "softmax again"),
    "softplus": ("softplus", {"beta": 2.0, "threshold": 20.0}, {}, "passes over"),
    "split number": ("split", {"sections": [], "num": 2}, {}, "list of sizes"),
    "split axis": ("split", {"sections": [2, 2]}, {"AxisTensor": "ids"}, "axis as a tensor"),
    "tile": ("tile", {}, {"RepeatTimes": "ids"}, "counts as tensors"),
    "unsqueeze2": ("unsqueeze2", {}, {"AxesTensor": "ids"}, "axis as a tensor"),
    "warpctc": ("warpctc", {"norm_by_times": True}, {}, "by time"),
    "resize": ("bilinear_interp_v2", {"data_layout": "NHWC"}, {}, "channels last"),
    "memory": ("matmul_v2", {"__available_memory": 1.5, "trans_x": False, "trans_y": False},
               {}, "memory"),
    "memory elsewhere": ("softmax", {"__available_memory": 0.5}, {}, "matmul_v2 alone"),
    "pieces": ("matmul_v2", {"serialize_factor": 3, "trans_x": False, "trans_y": False}, {},
               "divide 4"),
    "pieces elsewhere": ("softmax", {"serialize_factor": 2}, {}, "matmul_v2 alone"),
    "pieces of what": ("matmul_v2", {"serialize_factor": 2, "serialize_mode": "rows",
                                     "trans_x": False, "trans_y": False}, {}, "serialize_mode"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_operators_that_the_handler_would_refuse_or_mistake(small, name):
    kind, attributes, inputs, words = BROKEN[name]
    program = small()
    program.turn_into(kind, attributes, inputs)
    refused(program, PLACE + kind, words)


def test_a_transposed_operand_of_five_axes(small):
    program = small()
    program.add_buffer("five", [1, 1, 1, 4, 4])
    program.turn_into("matmul_v2", {"trans_x": True, "trans_y": False}, {"X": "five"})
    refused(program, "operand of 5 axes", "reshape")


def test_a_mean_of_losses_that_passes_over_labels(small):
    program = small()
    loss = program.operator("matmul_v2").desc
    loss.set_type("softmax_with_cross_entropy")
    loss._set_attr("ignore_index", 0)
    program.turn_into("reduce_mean")
    refused(program, PLACE + "reduce_mean", "of which some are ignored", "weigh")


def test_a_share_of_memory_that_switches_the_others_off(small):
    program = small()
    program.options["available_memory_proportion"] = 0.28
    assert program.check() == program.loss
    program.operator("matmul_v2").desc._set_attr("__available_memory", 0.2)
    refused(program, PLACE + "matmul_v2", "available_memory_proportion", "every matrix product")


@pytest.mark.parametrize("kind, words", [(BFLOAT, "bfloat16"), (DOUBLE, "float64")])
def test_types_that_ipus_lack(small, kind, words):
    program = small()
    name = program.marked.output_arg_names[0]
    program.block.var(name).desc.set_dtype(_type(kind))
    refused(program, PLACE + "gelu", words)


def test_types_of_feeds_weights_and_buffers(small):
    program = small()
    program.block.var("ids").desc.set_dtype(_type(INT64))
    refused(program, "feed ids", "int32")
    program = small()
    program.block.var("weight").desc.set_dtype(_type(DOUBLE))
    refused(program, "weight", "float32 or float16")
    program = small()
    program.add_buffer("buffer", [2, 6, 4])
    program.turn_into("relu", {}, {"X": "buffer"})
    refused(program, PLACE + "relu", "buffer", "parameter")


def test_feeds_and_fetches(small):
    program = small()
    program.feeds.append("nothing")
    refused(program, "feed nothing", "no operator")
    program = small()
    program.feeds.clear()
    refused(program, "embeddings, operator lookup_table_v2", "ids", "feed it")
    program = small()
    program.block.var("ids").desc.set_shape([2, -1])
    refused(program, "feed ids", "first axis")
    program = small()
    program.fetches.append("weight")
    refused(program, "fetch weight")


def test_a_program_of_the_new_kind_or_with_loops(small):
    program = small()
    program.program._create_block()
    refused(program, "2 blocks", "control flow")
    program = small()
    program.program = object()
    refused(program, "legacy", "FLAGS_enable_pir_api=0")


def _type(number):
    return paddle.base.core.VarDesc.VarType(number)


# What is done to the small Program, and words of the refusal.
STAGES = {
    "no index": (lambda p: p.marked.desc._set_attr("ipu_index", -1), PLACE, "no ipu_index"),
    "no stage": (lambda p: p.marked.desc._set_attr("ipu_stage", -1), PLACE, "no ipu_stage"),
    "index too high": (lambda p: p.marked.desc._set_attr("ipu_index", 2), "IPU 2", "below 2"),
    "stage on two IPUs": (lambda p: p.marked.desc._set_attr("ipu_index", 0), "stage 1", "one IPU"),
    "gap": (lambda p: [op.desc._set_attr("ipu_stage", 3) for op in p.block.ops
                       if op.has_attr("ipu_stage") and op.attr("ipu_stage") == 2],
            "no operator is in stage 2", "without a gap"),
    "backwards": (lambda p: (p.operator("gelu").desc._set_attr("ipu_stage", 0),
                             p.operator("gelu").desc._set_attr("ipu_index", 0)),
                  "reads", "earlier stages only"),
    "stages are IPUs": (lambda p: [op.desc._set_attr("ipu_stage", -1) for op in p.block.ops
                                   if op.has_attr("ipu_stage")], "which stage 1 makes",
                        "earlier stages only"),
    "weight on two IPUs": (lambda p: p.operator("matmul_v2").desc.set_input("Y", ["table"]),
                           "the weight table", "cannot share"),
    "feed on two IPUs": (lambda p: p.turn_into("relu", {}, {"X": "ids"}), "the feed ids", "twice"),
    "recomputed": (lambda p: p.marked.desc._set_attr("recompute", True), PLACE, "run.recompute"),
    "loss not last": (lambda p: (p.operator("reduce_sum").desc._set_attr("op_role", 0),
                                 p.operator("lookup_table_v2").desc._set_attr("op_role", 256),
                                 p.block.var(p.operator("lookup_table_v2").output("Out")[0])
                                 .desc.set_shape([1])), "in stage 0", "last stage"),
    "no loss": (lambda p: p.operator("reduce_sum").desc._set_attr("op_role", 0), "loss",
                "minimize"),
    "two losses": (lambda p: p.marked.desc._set_attr("op_role", 256), "second loss", "add"),
    "loss of many": (lambda p: p.block.var(p.loss).desc.set_shape([2, 3]), "shape (2, 3)",
                     "one number"),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_that_popart_would_refuse(small, name):
    change, *words = STAGES[name]
    program = small()
    change(program)
    refused(program, *words)


# Options beside those of the small Program, and words of the refusal.
OPTIONS = {
    "not a power of two": ({"num_ipus": 6}, "num_ipus", "power of two"),
    "not shared evenly": ({"replicated_graph_count": 3}, "num_ipus", "3 replicas"),
    "replicas without the option": ({"enable_replicated_graphs": False}, "switch it on"),
    "accumulation without the option": ({"enable_gradient_accumulation": False},
                                        "accumulation_factor", "switch it on"),
    "too few micro batches": ({"accumulation_factor": 4}, "fill the 5 stages", "write 5"),
    "one more for a forward program": ({"create_implicit_pipelining_fwd_only_program": True},
                                       "fill the 6 stages"),
    "shards switched off": ({"enable_manual_shard": False, "enable_pipelining": False,
                             "replicated_graph_count": 4}, "embeddings", "without a shard guard"),
    "unplaced IPUs": ({"enable_manual_shard": False, "enable_pipelining": False}, "num_ipus",
                      "enable_manual_shard"),
    "pipeline without shards": ({"enable_manual_shard": False, "replicated_graph_count": 4},
                                "enable_pipelining", "both"),
    "pipeline of one IPU": ({"num_ipus": 2}, "one IPU a replica", "switch it off"),
    "shards of one IPU": ({"num_ipus": 1, "replicated_graph_count": 1}, "enable_manual_shard"),
    "accumulation in inference": ({"is_training": False}, "in inference", "switch it off"),
    "sums for means": ({"accumulation_and_replication_reduction_type": 0}, "adds micro batches up",
                       "write 1 (Mean)"),
    "fp16 by option": ({"enable_fp16": True}, "enable_fp16", "run.precision: fp16"),
    "unknown option": ({"enable_pipelines": True}, "no option", "'enable_pipelining'"),
    "float for int": ({"num_ipus": 4.0}, "num_ipus", "whole number"),
    "bool for int": ({"num_ipus": True}, "num_ipus", "whole number"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_do_not_fit_the_program(small, name):
    options, *words = OPTIONS[name]
    program = small()
    program.options.update(options)
    refused(program, *words)


def test_too_few_batches_in_inference(small):
    program = small(is_training=False)
    program.options.update(enable_gradient_accumulation=False, accumulation_factor=1)
    refused(program, "batches_per_step", "fill the 3 stages")
    program.options["batches_per_step"] = 3
    assert program.check() is None


def adam(**options):
    return lambda rate: paddle.optimizer.Adam(rate, **options)


def lamb():
    return paddle.optimizer.Lamb


def set_update(new, kind="lamb", **attributes):
    """Make other update operators of the small Program's."""
    def change(program):
        for operator in program.block.ops:
            if operator.type == kind:
                operator.desc.set_type(new)
                for name, value in attributes.items():
                    operator.desc._set_attr(name, value)
    return change


def change_first(kind, **attributes):
    def change(program):
        for name, value in attributes.items():
            program.operator(kind).desc._set_attr(name, value)
    return change


UPDATES = {
    "adamw loses its decay": (lamb(), set_update("adamw", coeff=0.01), "0.01", "weight_decay_mode"),
    "lazy adam": (adam(lazy_mode=True), None, "lazily", "lazy_mode=False"),
    "float32 copies": (lamb(), set_update("lamb", multi_precision=True), "copies"),
    "Nesterov": (lamb(), set_update("momentum", use_nesterov=True), "Nesterov"),
    "momentum with L1": (lamb(), set_update("momentum", regularization_method="l1_decay"), "L1"),
    "rescaled": (lamb(), set_update("momentum", regularization_method="", rescale_grad=0.5),
                 "rescales"),
    "unknown optimizer": (lamb(), set_update("ftrl"), "operator ftrl", "lamb"),
    "moving average": (lamb(), set_update("ema"), "operator ema", "known are"),
    "different numbers": (adam(), change_first("adam", beta1=0.5), "differs", "one optimizer"),
    "its own rate": (adam(), lambda p: p.operator("adam").desc.set_input("LearningRate", ["bias"]),
                     "a learning rate of its own", "one learning rate"),
    "decay in the gradient": (adam(weight_decay=0.1),
                              lambda p: p.options.update(weight_decay_mode="l2_regularization"),
                              "weight_decay_mode", "write 'decay'"),
    "lost clipping": (adam(weight_decay=0.1), lambda p: (
        set_update("rmsprop", kind="adam")(p),
        p.operator("scale").desc._set_attr("op_namescope", "/gradient_clip/")),
        "operator rmsprop", "lose its clipping"),
    "different decays": (adam(weight_decay=0.1), change_first("scale", scale=0.5), "decays by",
                         "one weight_decay"),
    "clip by value": (adam(weight_decay=0.1), lambda p: p.operator("scale").desc.set_type("clip"),
                      "ClipGradByValue", "global norm"),
    "clip each": (adam(weight_decay=0.1),
                  lambda p: p.operator("scale").desc.set_type("clip_by_norm"), "ClipGradByNorm"),
    "L1 decay": (adam(weight_decay=0.1), lambda p: p.operator("scale").desc.set_type("sign"),
                 "L1Decay", "L2Decay"),
    "some are spared": (adam(weight_decay=0.1),
                        lambda p: p.operator("scale").desc._set_attr("op_namescope", "/"),
                        "spares", "use lamb"),
    "no update": (lamb(), lambda p: [op.desc._set_attr("op_role", 1) for op in p.block.ops
                                     if op.type == "lamb"], "update", "minimize"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_that_the_backend_would_lose_or_refuse(small, name):
    optimizer, change, *words = UPDATES[name]
    program = small(optimizer)
    if change:
        change(program)
    refused(program, *words)
