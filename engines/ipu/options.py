"""The typed YAML of ``run`` and ``train`` as options of ``paddle.static.IpuStrategy``."""

from engines.ipu.instances import Instances

ALONE = Instances()

# What Graphcore's BERT recipes for Paddle set everywhere (PaddleNLP, model_zoo/bert/static_ipu):
# smaller code and less live memory, no change of results.
PUBLISHED = {
    "rearrange_anchors_on_host": False,
    "subgraph_copying_strategy": 1,
    "disable_grad_accumulation_tensor_streams": True,
    "schedule_non_weight_update_gradient_consumers_early": True,
    "engine_options": {"opt.useAutoloader": "true", "target.syncReplicasIndependently": "true",
                       "exchange.streamBufferOverlap": "hostRearrangeOnly"},
}

# What Paddle's constructor sets, and the defaults of what the contract and the emulator read.
DEFAULTS = {
    "num_ipus": 1, "is_training": True, "micro_batch_size": 1, "enable_manual_shard": False,
    "enable_pipelining": False, "batches_per_step": 1, "accumulation_factor": 1,
    "enable_gradient_accumulation": False, "enable_replicated_graphs": False,
    "replicated_graph_count": 1, "enable_distribution": False,
    "enable_distributed_replicated_graphs": False, "global_replication_factor": 1,
    "global_replica_offset": 0, "enable_fp16": False, "loss_scaling": 1.0,
    "use_no_bias_optimizer": False, "scaled_optimizer_state": False, "accl1_type": "FLOAT",
    "accl2_type": "FLOAT", "max_weight_norm": 65504.0, "weight_decay_mode": "",
    "enable_stochastic_rounding": False, "random_seed": 0,
    "location_optimizer": {"on_chip": 0, "use_replicated_tensor_sharding": 1},
    "accumulation_and_replication_reduction_type": 1,
    "mean_accumulation_and_replication_reduction_strategy": 1,
}

PRECISIONS = {"fp32": "FLOAT", "fp16": "FLOAT16"}


def training_options(config, placement, instances=ALONE):
    """Options of the training Program, by name."""
    run, train, steps = config.run, config.train, config.accumulation_steps
    options = {
        **_common_options(config, placement, instances), "is_training": True,
        "batches_per_step": run.batches_per_step,
        "enable_gradient_accumulation": steps > 1, "accumulation_factor": steps,
        "loss_scaling": float(run.loss_scale or 1.0),
        "accumulation_and_replication_reduction_type": 1,           # mean
        "mean_accumulation_and_replication_reduction_strategy": 1,  # after the sum
        "location_optimizer": _optimizer_location(run, instances),
        "weight_decay_mode": "decay", "use_no_bias_optimizer": not train.bias_correction,
        "accl1_type": PRECISIONS[train.first_moment_precision],
        "accl2_type": PRECISIONS[train.second_moment_precision],
        "scaled_optimizer_state": train.moment_scale != 1,
        "random_seed": train.seed,
        **PUBLISHED,
    }
    if train.max_weight_norm is not None:
        options["max_weight_norm"] = float(train.max_weight_norm)
    if run.recompute:
        # Pipelines recompute from stage to stage; a lone IPU, where PopART finds it worth while.
        options["auto_recomputation"] = 3 if options["enable_pipelining"] else 1
    if options["enable_pipelining"]:
        # Overlap the updates for memory, but on IPU 0, which has the embeddings.
        options["accumulate_outer_fragment"] = {3: [0]}
    return options


def _optimizer_location(run, instances):
    location = {"on_chip": int(run.optimizer_state_on_chip),
                "use_replicated_tensor_sharding": int(run.shard_optimizer)}
    if run.shard_optimizer and instances.count > 1:
        # Among the replicas of a process alone, which could not fetch the others' shares.
        location["sharding_domain_with_consecutive"] = instances.replicas(run)
    return location


def inference_options(config, placement, batches, instances=ALONE):
    """Options of a Program without an update.

    Args:
        batches: micro batches that each replica computes in one call; fill the pipeline.
    """
    return {**_common_options(config, placement, instances), "is_training": False,
            "batches_per_step": batches, "enable_gradient_accumulation": False,
            "accumulation_factor": 1}


def _common_options(config, placement, instances):
    run, is_split = config.run, placement.ipus_per_replica > 1
    options = {
        **instances.options(run, placement), "micro_batch_size": run.micro_batch_size,
        "enable_manual_shard": is_split, "enable_pipelining": is_split,
        "enable_half_partial": run.half_partials,
        "enable_stochastic_rounding": run.stochastic_rounding,
        "default_prefetch_buffering_depth": run.prefetch_depth,
        "outline_threshold": float(run.outline_threshold),
        "enable_engine_caching": run.engine_cache is not None,
    }
    if run.engine_cache is not None:
        options["cache_path"] = run.engine_cache
    if len(run.available_memory_proportion) == 1:
        options["available_memory_proportion"] = float(run.available_memory_proportion[0])
    return options


def apply_options(strategy, options):
    """Hand options to an ``IpuStrategy``, real or emulated."""
    rest = dict(options)
    strategy.set_graph_config(**_take(rest, "num_ipus", "is_training", "micro_batch_size",
                                      "enable_manual_shard"))
    strategy.set_pipelining_config(**_take(
        rest, "enable_pipelining", "batches_per_step", "enable_gradient_accumulation",
        "accumulation_factor"))
    strategy.set_options(rest)


def _take(options, *names):
    return {name: options.pop(name) for name in names}
