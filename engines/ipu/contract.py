"""Whether the IPU backend would take a Program and its options, told before it is asked."""

from paddle import static

from configs.errors import InputError
from engines.ipu.half import core, is_forward
from engines.ipu.operator_rules import RULES
from engines.ipu.option_rules import check_option, facts
from engines.ipu.places import refuse
from engines.ipu.stage_rules import check_stages
from engines.ipu.update_rules import check_update
from engines.ipu.weights import weights

_TYPE = core.VarDesc.VarType
_FEED_TYPES = {_TYPE.INT32: "int32", _TYPE.FP32: "float32", _TYPE.FP16: "float16",
               _TYPE.BOOL: "bool"}
_LOSS = 256
_SERIALIZE_MODES = ("none", "input_channels", "reducing_dim", "output_channels")


def check_config(config):
    """Refuse what a recipe asks for and IPUs do not have.

    Raises:
        InputError: naming the key and the mend.
    """
    run, train = config.run, config.train
    if train.optimizer == "adamw" and train.weight_decay and not (
            train.decay_all_parameters or run.adam_decays_all):
        raise InputError("train.decay_all_parameters", "false spares biases and layer norms, but "
                         "Adam on IPUs decays all parameters or none", "allow it here by "
                         "run.adam_decays_all: true, or write train.optimizer: lamb")
    if train.moment_scale not in (1, run.loss_scale):
        raise InputError("train.moment_scale", f"{train.moment_scale:g} is not the loss scale, by "
                         "which alone IPUs scale moments", f"write {run.loss_scale or 1:g} or 1")
    if run.ipu_operators and not run.recompute:
        raise InputError("run.ipu_operators", "marks where recomputation starts anew, but "
                         "run.recompute is false", "write null, or run.recompute: true")
    factor = run.embedding_serialization_factor
    if config.model.vocab_size % factor:
        raise InputError("run.embedding_serialization_factor", f"{factor} does not divide "
                         f"model.vocab_size {config.model.vocab_size}", "write a divisor")
    for key in ("steps", "save_every", "evaluate_every"):
        if getattr(train, key) % run.batches_per_step:
            raise InputError(f"train.{key}", f"{getattr(train, key)} is no multiple of "
                             f"run.batches_per_step {run.batches_per_step}, between whose updates "
                             "the IPUs tell nothing", "change one of the two")


def check_program(program, options, feeds, fetches, custom_operators=()):
    """Hold a Program against the contract.

    Args:
        program: legacy Program.
        options: of the strategy, by name, at least those of ``options.DEFAULTS``.
        feeds, fetches: names of variables.
        custom_operators: types that ``add_custom_op`` was told of.

    Returns:
        The name of the loss, or None in inference.

    Raises:
        InputError: naming block, operator and mend.
    """
    for name, value in options.items():
        check_option(name, value)
    if not isinstance(program, static.Program):
        raise InputError("Program", f"is a {type(program).__name__}, not a legacy one",
                         "set FLAGS_enable_pir_api=0 before Paddle starts")
    if program.num_blocks > 1:
        raise InputError("Program", f"has {program.num_blocks} blocks, but there is no control "
                         "flow", "write loops and branches out")
    block = program.global_block()
    operators = [op for op in block.ops if is_forward(op) and op.type not in ("feed", "fetch")]
    for operator in operators:
        _check_operator(operator, block, custom_operators)
    _check_feeds(block, operators, feeds, options)
    _check_fetches(block, operators, fetches)
    _check_shares(operators, options)
    _check_weights(block, operators, options)
    last = check_stages(operators, block, options, feeds)
    loss = None
    if options["is_training"]:
        loss = _check_loss(block, operators, last, options)
        check_update(program, options)
    _check_counts(options, last)
    return loss


def _check_operator(operator, block, custom_operators):
    if operator.type in custom_operators:
        return
    if operator.type not in facts()["operators"]:
        mend = facts()["instead"].get(operator.type, "write it with operators that have one, or "
                                      "give a custom operator")
        refuse(operator, "has no handler in the IPU backend", mend)
    for rule in RULES.get(operator.type, ()):
        if rule.is_broken(operator, block):
            refuse(operator, rule.problem, rule.mend)
    for name in operator.output_arg_names:
        kind = block.var(name).desc.dtype() if block.has_var(name) else None
        if kind == _TYPE.BF16:
            refuse(operator, f"makes the bfloat16 {name}", "use float16 or float32")
        if kind == _TYPE.FP64:
            refuse(operator, f"makes the float64 {name}, which IPUs compute in float32",
                   "use float32")
    _check_tuning(operator, block)


def _check_tuning(operator, block):
    if operator.has_attr("__available_memory"):
        share = operator.attr("__available_memory")
        if not 0 <= share <= 1:
            refuse(operator, f"may take {share:g} of the memory", "write a share of 0 to 1")
        if operator.type != "matmul_v2":
            refuse(operator, "has a share of memory, which matmul_v2 alone takes", "remove it")
    if operator.has_attr("serialize_factor"):
        if operator.type != "matmul_v2":
            refuse(operator, "is cut into pieces, which matmul_v2 alone can be", "remove it")
        factor = operator.attr("serialize_factor")
        mode = operator.attr("serialize_mode") if operator.has_attr("serialize_mode") else ""
        if mode and mode not in _SERIALIZE_MODES:
            refuse(operator, f"has the serialize_mode '{mode}'",
                   f"known are {', '.join(_SERIALIZE_MODES)}")
        width = block.var(operator.output("Out")[0]).shape[-1]
        if factor < 1 or mode in ("", "output_channels") and width % factor:
            refuse(operator, f"is cut into {factor} pieces, which do not divide {width}",
                   "write a divisor")


def _check_shares(operators, options):
    own = [op for op in operators if op.has_attr("__available_memory")]
    if own and options.get("available_memory_proportion"):
        refuse(own[0], "has a share of memory of its own, by which the option "
               "available_memory_proportion is off for all others", "give every matrix product "
               "its own, or none")


def _check_feeds(block, operators, feeds, options):
    read = {name for op in operators for name in op.input_arg_names}
    for name in feeds:
        if not block.has_var(name) or name not in read:
            raise InputError(f"feed {name}", "is read by no operator", "remove it")
        variable = block.var(name)
        if variable.desc.dtype() not in _FEED_TYPES:
            raise InputError(f"feed {name}", f"is of type {variable.dtype}",
                             f"feed {' or '.join(_FEED_TYPES.values())}")
        shape = tuple(variable.shape)
        if any(size <= 0 for size in shape[1:]) or shape[:1] == (0,):
            raise InputError(f"feed {name}", f"has the shape {shape}",
                             "only the first axis may be -1")
    made = {name for op in operators for name in op.output_arg_names}
    for operator in operators:
        for name in operator.input_arg_names:
            if name not in made and name not in feeds and not block.var(name).persistable:
                refuse(operator, f"reads {name}, which nothing makes or feeds", "feed it")


def _check_fetches(block, operators, fetches):
    made = {name for op in operators for name in op.output_arg_names}
    for name in fetches:
        if name not in made:
            raise InputError(f"fetch {name}", "is made by no operator of the forward pass",
                             "fetch a result of the network")


def _check_weights(block, operators, options):
    known = weights(block.program, options["is_training"])
    for operator in operators:
        for name in operator.input_arg_names:
            if name in known:
                kind = known[name].desc.dtype()
                if kind not in (_TYPE.FP32, _TYPE.FP16):
                    refuse(operator, f"uses the weight {name} of type {known[name].dtype}",
                           "keep weights in float32 or float16")
            elif block.var(name).persistable:
                refuse(operator, f"uses the buffer {name}, which IPUs do not get",
                       "make it a parameter that is not trained, or feed it")


def _check_loss(block, operators, last, options):
    losses = [op for op in operators if op.attr("op_role") & _LOSS]
    if not losses:
        raise InputError("loss", "no operator is marked as it", "call minimize on the loss")
    if len(losses) > 1:
        refuse(losses[1], "is a second loss", "add losses up to one")
    loss = losses[0]
    name = loss.output_arg_names[0]
    if len(loss.output_arg_names) > 1 or any(size != 1 for size in block.var(name).shape):
        refuse(loss, f"makes a loss of shape {tuple(block.var(name).shape)}", "reduce it to one "
               "number")
    if options["enable_pipelining"] and loss.attr("ipu_stage") not in (-1, last):
        refuse(loss, f"makes the loss in stage {loss.attr('ipu_stage')}, but the last one is "
               f"{last}", "put it into the last stage")
    return name


def _check_counts(options, last):
    """Whether there are enough micro batches to fill the pipeline before it empties."""
    steps, batches = options["accumulation_factor"], options["batches_per_step"]
    if not options["enable_gradient_accumulation"] and steps > 1:
        raise InputError("IPU option accumulation_factor", f"is {steps}, but "
                         "enable_gradient_accumulation is off", "switch it on")
    if options["enable_gradient_accumulation"] and not options["is_training"]:
        raise InputError("IPU option enable_gradient_accumulation", "is on in inference",
                         "switch it off")
    if not options["enable_pipelining"]:
        return
    needed = 2 * last + 1 if options["is_training"] else last + 1
    needed += bool(options.get("create_implicit_pipelining_fwd_only_program"))
    is_training = options["enable_gradient_accumulation"]
    name, count = (("accumulation_factor", steps) if is_training else ("batches_per_step", batches))
    if count < needed:
        raise InputError(f"IPU option {name}", f"{count} micro batches cannot fill the {needed} "
                         "stages of the pipeline, backward ones included", f"write {needed} or "
                         "more")
