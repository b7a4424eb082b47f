"""What the handlers of the IPU backend ask of an operator, beyond having one.

Some things that the backend would pass over in silence are refused too, because the result
would be another one.
"""

from typing import Callable, NamedTuple

from engines.ipu.half import core

_TYPE = core.VarDesc.VarType
_CONSTANTS = {int(getattr(_TYPE, name)) for name in ("FP16", "FP32", "FP64", "INT32", "INT64",
                                                     "BOOL")}
_CASTS = _CONSTANTS | {int(getattr(_TYPE, name)) for name in ("UINT8", "INT8", "INT16")}


class Rule(NamedTuple):
    """One thing to refuse."""

    is_broken: Callable
    """Takes an operator and its block"""
    problem: str
    mend: str


def _given(*slots):
    """Whether one of the inputs is given, as a tensor in the place of a number."""
    return lambda op, block: any(slot in op.input_names and op.input(slot) for slot in slots)


def _lacks(*slots):
    return lambda op, block: any(slot not in op.input_names or not op.input(slot)
                                 for slot in slots)


def _is(name, *values):
    """Whether an attribute has one of the values."""
    return lambda op, block: op.has_attr(name) and op.attr(name) in values


def _is_not(name, *values):
    return lambda op, block: op.has_attr(name) and op.attr(name) not in values


def _shape(op, block, slot="X"):
    return tuple(block.var(op.input(slot)[0]).shape)


def _transposes_rank_5(left, right):
    def is_broken(op, block):
        return any(op.attr(flag) and len(_shape(op, block, slot)) > 4
                   for flag, slot in ((left, "X"), (right, "Y")))
    return is_broken


def _expands_wrongly(op, block):
    source, target = _shape(op, block), list(op.attr("shape"))
    if len(target) < len(source):
        return True
    aligned = (1,) * (len(target) - len(source)) + source
    return any(old not in (1, new) for old, new in zip(aligned, target))


def _pads_inside(op, block):
    return 0 <= op.attr("padding_idx") < _shape(op, block, "W")[0]


def _averages_ignored_labels(op, block):
    """Whether it is the mean of losses of which some count as nothing."""
    name = op.input("X")[0]
    return any(other.type == "softmax_with_cross_entropy" and name in other.output_arg_names
               and other.has_attr("ignore_index") and other.attr("ignore_index") >= 0
               for other in block.ops)


def _changes_type(op, block):
    kind = block.var(op.input("X")[0]).desc.dtype()
    return op.has_attr("out_dtype") and op.attr("out_dtype") not in (-1, int(kind))


def _output_has_gaps(op, block):
    return any(size <= 0 for size in block.var(op.output("Out")[0]).shape)


_AXIS_TENSOR = Rule(_given("AxisTensor", "AxesTensor", "AxesTensorList"),
                    "gets its axis as a tensor", "write the axis as a number")
_SHAPE_TENSOR = Rule(_given("Shape", "ShapeTensor", "ShapeTensorList", "shape_tensor",
                            "expand_shapes_tensor"),
                     "gets its shape as a tensor", "write static numbers")
_NORM = Rule(_lacks("Scale", "Bias"), "has no scale or no bias",
             "keep weight_attr and bias_attr at their defaults")
_CHANNELS_FIRST = Rule(_is("data_layout", "NHWC", "NDHWC"), "has its channels last", "use NCHW")
_CHANNELS = Rule(_is("data_format", "NHWC", "NDHWC"), "has its channels last", "use NCHW")
_LOOKUP = Rule(_pads_inside, "has a padding_idx inside the table, which copies the table at "
               "every use", "write padding_idx=None")
_MATMUL2 = Rule(_transposes_rank_5("trans_x", "trans_y"), "transposes an operand of 5 axes",
                "reshape it to 4 at most")
_MATMUL1 = Rule(_transposes_rank_5("transpose_X", "transpose_Y"),
                "transposes an operand of 5 axes", "reshape it to 4 at most")
_ONE_HOT = [Rule(_is("allow_out_of_range", True), "allows indices out of range",
                 "write allow_out_of_range=False"),
            Rule(_given("depth_tensor"), "gets its depth as a tensor", "write a number")]
_ARG = [Rule(_is("keepdims", True), "keeps its axis, which the backend does not",
             "write keepdim=False and unsqueeze"),
        Rule(_is("flatten", True), "flattens, which the backend does not", "give the axis"),
        Rule(lambda op, block: not isinstance(op.attr("axis"), int), "gets its axis as a tensor",
             "write the axis as a number")]
_SLICE = Rule(_given("StartsTensor", "EndsTensor", "StridesTensor", "StartsTensorList",
                     "EndsTensorList", "StridesTensorList"),
              "gets its bounds as tensors", "write static numbers")
_COMPARISON = Rule(_is_not("axis", -1), "aligns its operands by an axis, which the backend does "
                   "not", "reshape them")
_REDUCTION = Rule(_changes_type, "changes the type, which the backend does not", "cast before")
_RESIZE = Rule(_is("data_layout", "NHWC", "NWC", "NDHWC"), "has its channels last", "use NCHW")

RULES = {
    "affine_channel": [_CHANNELS_FIRST],
    "arg_max": _ARG, "arg_min": _ARG,
    "assign_value": [Rule(lambda op, block: not any(
        op.has_attr(name) and op.attr(name) for name in
        ("bool_values", "int32_values", "int64_values", "fp32_values")),
        "writes its values as later Paddle does, where the backend does not look",
        "use full, a feed or a parameter that is not trained"),
        Rule(lambda op, block: op.attr("dtype") not in _CONSTANTS - {int(_TYPE.FP64)},
             "has a type that the backend has no constant of", "use int32 or float32")],
    "batch_norm": [_NORM, _CHANNELS_FIRST],
    "bmm": [Rule(lambda op, block: any(len(_shape(op, block, slot)) != 3 for slot in "XY"),
                 "has operands of other than 3 axes", "use matmul_v2")],
    "cast": [Rule(lambda op, block: op.attr("out_dtype") not in _CASTS,
                  "casts to a type that IPUs lack", "cast to float16, float32, int32 or bool")],
    "concat": [_AXIS_TENSOR],
    "conv2d": [_CHANNELS], "conv2d_transpose": [_CHANNELS], "depthwise_conv2d": [_CHANNELS],
    "depthwise_conv2d_transpose": [_CHANNELS],
    "cumsum": [Rule(_is("flatten", True), "flattens, which the backend does not",
                    "give the axis")],
    "custom_nll_loss": [Rule(lambda op, block: not isinstance(op.attr("ignoreIndex"), str),
                             "has a number as ignoreIndex", "write it as text, e.g. '-100'")],
    "data_norm": [Rule(lambda op, block: op.has_attr("slot_dim") and op.attr("slot_dim") > 0,
                       "has slots", "write slot_dim=-1")],
    "dropout": [Rule(lambda op, block: not op.attr("is_test") and op.attr(
        "dropout_implementation") != "upscale_in_train", "scales at inference",
        "write mode='upscale_in_train'"),
        Rule(_given("Seed"), "gets its seed as a tensor", "leave the seed to the session"),
        Rule(lambda op, block: op.has_attr("axis") and bool(op.attr("axis")),
             "drops along an axis", "drop single numbers")],
    "expand": [Rule(_given("expand_times_tensor"), "gets its counts as tensors",
                    "write static numbers")],
    "expand_as_v2": [Rule(_given("target_tensor"), "gets its shape as a tensor",
                          "write target_shape")],
    "expand_v2": [_SHAPE_TENSOR, Rule(_expands_wrongly, "expands an axis that is neither 1 nor "
                                      "of the size asked for", "write every size, without -1")],
    "fill_any_like": [Rule(_is("dtype", -1), "takes its type from its input", "name the type"),
                      Rule(_is_not("dtype", -1, *_CONSTANTS), "has a type that the backend has no "
                           "constant of", "use int32 or float32"),
                      Rule(_output_has_gaps, "has a shape that is not static", "fix the shape")],
    "fill_constant": [_SHAPE_TENSOR,
                      Rule(_given("ValueTensor"), "gets its value as a tensor", "write a number"),
                      Rule(_is_not("dtype", *_CONSTANTS), "has a type that the backend has no "
                           "constant of", "use int32 or float32"),
                      Rule(lambda op, block: any(size <= 0 for size in op.attr("shape")),
                           "has a shape that is not static", "write positive sizes")],
    "gather": [Rule(lambda op, block: bool(op.has_attr("axis") and op.attr("axis"))
                    or _given("Axis")(op, block), "gathers along another axis than 0, where the "
                    "backend would take 0", "flatten to two axes and gather rows")],
    "group_norm": [_NORM], "instance_norm": [_NORM],
    "kldiv_loss": [Rule(_is_not("reduction", "none", "sum", "mean"), "has another reduction",
                        "write none, sum or mean")],
    "layer_norm": [_NORM],
    "lookup_table": [_LOOKUP], "lookup_table_v2": [_LOOKUP],
    "matmul": [_MATMUL1], "matmul_v2": [_MATMUL2],
    "max_pool2d_with_index": [Rule(_is_not("ksize", [1, 1]), "pools to more than one number",
                                   "write ksize=1")],
    "mish": [Rule(_is_not("threshold", 20.0), "has another threshold", "write 20.0")],
    "one_hot": _ONE_HOT, "one_hot_v2": _ONE_HOT,
    "p_norm": [Rule(_is("porder", 0.0, float("inf"), float("-inf")), "is of order 0 or infinity",
                    "use abs and reduce_max")],
    "pad3d": [Rule(_is("mode", "replicate", "circular"), "pads by copying", "pad by a constant"),
              Rule(_given("Paddings"), "gets its widths as a tensor", "write static numbers"),
              _CHANNELS],
    "pool2d": [Rule(_is_not("padding_algorithm", "EXPLICIT"), "pads by a rule",
                    "write the widths"),
               Rule(lambda op, block: op.attr("adaptive") and list(op.attr("ksize")) != [1, 1],
                    "adapts to more than one number", "write the window")],
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod", "reduce_sum"), [_REDUCTION]),
    "reduce_mean": [_REDUCTION, Rule(_averages_ignored_labels, "averages losses of which some are "
                                     "ignored, where the backend divides by the number of the "
                                     "others", "weigh the losses and add them up")],
    "reshape2": [_SHAPE_TENSOR],
    "sigmoid_cross_entropy_with_logits": [Rule(_given("pos_weight"), "weighs positives, which the "
                                               "backend passes over", "weigh the loss by hand")],
    "slice": [_SLICE], "strided_slice": [_SLICE],
    "softmax_with_cross_entropy": [
        Rule(_is("soft_label", True), "has soft labels", "give hard labels"),
        Rule(_is("use_softmax", False), "takes probabilities, of which the backend would take "
             "the softmax again", "give logits")],
    "softplus": [Rule(lambda op, block: (op.attr("beta"), op.attr("threshold")) != (1.0, 20.0),
                      "has a beta or threshold that the backend passes over",
                      "write 1 and 20")],
    "split": [Rule(lambda op, block: not op.attr("sections"), "gives a number of pieces, where "
                   "the backend reads sizes", "write a list of sizes, e.g. [h, h]"),
              Rule(_given("SectionsTensorList"), "gets its sizes as tensors",
                   "write static numbers"), _AXIS_TENSOR],
    "tile": [Rule(_given("RepeatTimes", "repeat_times_tensor"), "gets its counts as tensors",
                  "write static numbers")],
    "unsqueeze2": [_AXIS_TENSOR],
    "warpctc": [Rule(_is("norm_by_times", True), "normalises by time", "write False")],
    **dict.fromkeys(("equal", "not_equal", "less_than", "less_equal", "greater_than",
                     "greater_equal"), [_COMPARISON]),
    **dict.fromkeys(("bicubic_interp_v2", "bilinear_interp_v2", "linear_interp_v2",
                     "nearest_interp_v2", "trilinear_interp_v2"), [_RESIZE]),
}
