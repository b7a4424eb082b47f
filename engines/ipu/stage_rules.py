"""What PopART asks of stages: who sits where, and what may pass between them."""

from configs.errors import InputError
from engines.ipu.places import place, refuse
from engines.ipu.weights import weights


def check_stages(operators, block, options, feeds):
    """Refuse a Program whose stages PopART would refuse.

    Args:
        operators: of the forward pass, in order.
        block: which holds their variables.
        options: of the strategy.
        feeds: names.

    Returns:
        The number of the last stage; 0 without a pipeline.
    """
    _check_devices(options)
    _check_instances(options)
    if not options["enable_manual_shard"]:
        for operator in operators:
            if _number(operator, "ipu_index") is not None:
                refuse(operator, "has an ipu_index, but the option enable_manual_shard is off",
                       "build it without a shard guard")
        return 0
    _check_indices(operators, options)
    if not options["enable_pipelining"]:
        return 0
    last = _check_numbers(operators)
    _check_direction(operators)
    _check_weights(operators, weights(block.program, options["is_training"]))
    _check_feeds(operators, feeds)
    return last


def _check_devices(options):
    ipus, replicas = options["num_ipus"], options["replicated_graph_count"]
    if not options["enable_replicated_graphs"] and replicas > 1:
        raise InputError("IPU option replicated_graph_count", f"is {replicas}, but "
                         "enable_replicated_graphs is off", "switch it on")
    if ipus & (ipus - 1) or not ipus:
        raise InputError("IPU option num_ipus", f"{ipus} is no power of two",
                         "write 1, 2, 4, 8, 16 …")
    if not replicas or ipus % replicas:
        raise InputError("IPU option num_ipus", f"{ipus} IPUs cannot be shared by {replicas} "
                         "replicas", "write a multiple of replicated_graph_count")
    if options["enable_manual_shard"] and ipus == 1:
        raise InputError("IPU option enable_manual_shard", "is on with a single IPU",
                         "switch it off")
    if not options["enable_manual_shard"] and not options.get("need_avg_shard") \
            and ipus != replicas:
        raise InputError("IPU option num_ipus", f"{ipus} IPUs for {replicas} replicas, but no "
                         "operator is placed", "switch enable_manual_shard on, or take an IPU a "
                         "replica")
    if options["enable_pipelining"] and not options["enable_manual_shard"]:
        raise InputError("IPU option enable_pipelining", "is on without enable_manual_shard",
                         "switch both on")
    if options["enable_pipelining"] and ipus == replicas:
        raise InputError("IPU option enable_pipelining", "is on with one IPU a replica",
                         "switch it off, or take more IPUs")


def _check_instances(options):
    """Replicas of several processes."""
    local, total, offset = (options[name] for name in (
        "replicated_graph_count", "global_replication_factor", "global_replica_offset"))
    is_spread = options["enable_distributed_replicated_graphs"]
    if options["enable_distribution"] != is_spread:
        raise InputError("IPU option enable_distribution", "and enable_distributed_replicated_graphs "
                         "go together", "switch both on or both off")
    if not is_spread and (total, offset) != (1, 0):
        raise InputError("IPU option global_replication_factor", f"is {total}, with "
                         f"global_replica_offset {offset}, but enable_distribution is off",
                         "switch it on")
    if not is_spread:
        return
    if options["enable_replicated_graphs"] and local == 1:
        raise InputError("IPU option enable_replicated_graphs", "is on with one replica a process",
                         "switch it off")
    if total % local or total == local:
        raise InputError("IPU option global_replication_factor", f"{total} replicas are no multiple "
                         f"of the {local} of a process", "write processes x "
                         "replicated_graph_count")
    if offset % local or offset >= total:
        raise InputError("IPU option global_replica_offset", f"{offset} is not the first of a "
                         f"process's {local} replicas among {total}", "write rank x "
                         "replicated_graph_count")
    location = options["location_optimizer"]
    if location.get("use_replicated_tensor_sharding") and options["is_training"] and (
            location.get("sharding_domain_with_consecutive") != local):
        raise InputError("IPU option location_optimizer", "shares the optimizer's state out among "
                         "the replicas of all processes, of which each could fetch its own alone",
                         f"write sharding_domain_with_consecutive: {local}")


def _check_indices(operators, options):
    each = options["num_ipus"] // options["replicated_graph_count"]
    for operator in operators:
        index = _number(operator, "ipu_index")
        if index is None:
            refuse(operator, "has no ipu_index", "build it under paddle.static.ipu_shard_guard")
        if index >= each:
            refuse(operator, f"sits on IPU {index} of a replica of {each}",
                   f"write an index below {each}")


def _check_numbers(operators):
    stages = {}
    with_stage = [op for op in operators if _number(op, "ipu_stage") is not None]
    for operator in operators:
        stage, index = _stage(operator), _number(operator, "ipu_index")
        if with_stage and _number(operator, "ipu_stage") is None:
            refuse(operator, "has no ipu_stage, but others have", "give stages to all or to none")
        if stages.setdefault(stage, index) != index:
            refuse(operator, f"puts stage {stage} on IPU {index}, but it sits on IPU "
                   f"{stages[stage]}", "keep a stage on one IPU")
        if operator.has_attr("recompute") and operator.attr("recompute"):
            refuse(operator, "is marked to be recomputed, which pipelines do not take",
                   "write run.recompute: true instead")
    gap = next((number for number in range(max(stages)) if number not in stages), None)
    if gap is not None:
        later = next(op for op in operators if _stage(op) > gap)
        refuse(later, f"is in stage {_stage(later)}, but no operator is in stage {gap}",
               "number stages from 0 without a gap")
    return max(stages)


def _check_direction(operators):
    made = {}
    for operator in operators:
        for name in operator.input_arg_names:
            if name in made and _stage(made[name]) > _stage(operator):
                refuse(operator, f"in stage {_stage(operator)} reads {name}, which stage "
                       f"{_stage(made[name])} makes ({place(made[name])})",
                       "a stage may read earlier stages only")
        made.update(dict.fromkeys(operator.output_arg_names, operator))


def _check_weights(operators, known):
    homes = {}
    for operator in operators:
        for name in sorted(known.keys() & set(operator.input_arg_names)):
            first = homes.setdefault(name, operator)
            if _number(first, "ipu_index") != _number(operator, "ipu_index"):
                refuse(operator, f"on IPU {_number(operator, 'ipu_index')} uses the weight {name} "
                       f"of IPU {_number(first, 'ipu_index')} ({place(first)}), which pipelines "
                       "cannot share", "put both on one IPU, as heads on that of the embeddings")


def _check_feeds(operators, feeds):
    homes = {}
    for operator in operators:
        for name in set(feeds).intersection(operator.input_arg_names):
            first = homes.setdefault(name, operator)
            if _number(first, "ipu_index") != _number(operator, "ipu_index"):
                refuse(operator, f"reads the feed {name}, as IPU {_number(first, 'ipu_index')} "
                       f"does ({place(first)})", "feed it twice, or pass on what the first IPU "
                       "makes of it")


def _stage(operator):
    """Its stage, which without a number of its own is its IPU."""
    stage = _number(operator, "ipu_stage")
    return _number(operator, "ipu_index") if stage is None else stage


def _number(operator, name):
    value = operator.attr(name) if operator.has_attr(name) else None
    return None if value == -1 else value
