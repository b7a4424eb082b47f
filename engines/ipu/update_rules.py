"""What the IPU backend makes of optimizer operators, and what it would lose of them."""

from configs.errors import InputError
from engines.ipu.half import UPDATE
from engines.ipu.option_rules import facts
from engines.ipu.places import refuse

_MEAN = 1
# Their numbers go to PopART's Adaptive, which does not clip.
_UNCLIPPED = ("adadelta", "adagrad", "rmsprop")
_CLIPS = {"clip": "ClipGradByValue", "clip_by_norm": "ClipGradByNorm"}


def check_update(program, options):
    """Refuse update operators that the backend would refuse or take for something else."""
    operators = [op for op in program.global_block().ops if op.attr("op_role") & UPDATE]
    updates = [op for op in operators if op.type in facts()["optimizers"]]
    for operator in operators:
        scope = operator.attr("op_namescope")
        if operator.type in _CLIPS:
            refuse(operator, f"is {_CLIPS[operator.type]}", "clip by the global norm")
        if operator.type == "sign" and "regularization" in scope:
            refuse(operator, "is the decay L1Decay", "write weight_decay as a number (L2Decay)")
        if operator.type not in (*facts()["optimizers"], *facts()["passed_over"],
                                 "fill_constant"):
            refuse(operator, "is no part of an update that the backend knows",
                   f"known are {', '.join(facts()['optimizers'])}")
    if not updates:
        raise InputError("update", "the Program has none, but is_training is on",
                         "call minimize, or switch is_training off")
    for operator in updates:
        _check_one(operator)
        _check_alike(operator, updates[0])
    if updates[0].type in _UNCLIPPED and any("gradient_clip" in op.attr("op_namescope")
                                             for op in operators):
        refuse(updates[0], "would lose its clipping", "use Adam or LAMB, or do not clip")
    _check_decay(operators, updates, options)
    _check_options(options)


def _check_one(operator):
    for name, problem, mend in (
            ("lazy_mode", "updates lazily", "write lazy_mode=False"),
            ("multi_precision", "keeps float32 copies of the weights",
             "write multi_precision=False"),
            ("use_nesterov", "looks ahead (Nesterov)", "write use_nesterov=False")):
        if operator.has_attr(name) and operator.attr(name):
            refuse(operator, problem, mend)
    if operator.type == "momentum":
        if operator.attr("regularization_method") == "l1_decay":
            refuse(operator, "decays by L1", "write weight_decay as a number (L2Decay)")
        if operator.attr("rescale_grad") != 1.0:
            refuse(operator, "rescales gradients", "write rescale_grad=1.0")
    if operator.type == "adamw" and operator.attr("coeff"):
        refuse(operator, f"would lose its weight decay of {operator.attr('coeff'):g}",
               "use Adam with weight_decay, and the option weight_decay_mode: decay")


def _check_alike(operator, first):
    """The numbers of the first update count for all; only lamb's decay is each parameter's own."""
    for name in ("beta1", "beta2", "epsilon", "mu", "rho", "decay"):
        if operator.type != first.type or (
                first.has_attr(name) and operator.attr(name) != first.attr(name)):
            refuse(operator, f"of {operator.input('Param')[0]} differs from the update of "
                   f"{first.input('Param')[0]}, whose numbers would count for all",
                   "give all parameters one optimizer")
    if "LearningRate" in first.input_names and (
            operator.input("LearningRate") != first.input("LearningRate")):
        refuse(operator, f"of {operator.input('Param')[0]} has a learning rate of its own",
               "give all parameters one learning rate")


def _check_decay(operators, updates, options):
    scales = [op for op in operators if op.type == "scale"
              and "regularization" in op.attr("op_namescope")]
    if not scales:
        return
    if updates[0].type == "adam" and options["weight_decay_mode"] != "decay":
        raise InputError("IPU option weight_decay_mode", f"is '{options['weight_decay_mode']}', "
                         "by which the decay of Adam would be added to the gradient",
                         "write 'decay'")
    decayed = {op.input("X")[0] for op in scales}
    for operator in updates:
        if operator.input("Param")[0] not in decayed:
            refuse(operator, f"spares {operator.input('Param')[0]}, but the backend's decay is "
                   "one for all parameters", "decay all, or use lamb")
    first = scales[0].attr("scale")
    other = next((op for op in scales if op.attr("scale") != first), None)
    if other is not None:
        refuse(other, f"decays by {other.attr('scale'):g}, but the first decay of {first:g} would "
               "count for all", "write one weight_decay, or use lamb")


def _check_options(options):
    if options["accumulation_and_replication_reduction_type"] != _MEAN:
        raise InputError("IPU option accumulation_and_replication_reduction_type", "adds micro "
                         "batches up, but each brings the mean of its rows", f"write {_MEAN} "
                         "(Mean)")
    if options["enable_fp16"]:
        raise InputError("IPU option enable_fp16", "is on in training, where it converts the "
                         "Program in some builds and does nothing in others", "switch it off; "
                         "run.precision: fp16 converts the Program")
