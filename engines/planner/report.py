"""A plan for a terminal, and for machines."""

import json

from engines.planner.hardware import MIB
from engines.planner.memory import KINDS, stash_per_ipu
from engines.planner.timing import FITTED
from engines.stage_text import shorten


def as_dict(plan, changes, pods):
    """A plan as plain values for JSON; memory in MiB, times in seconds.

    Args:
        plan: the ``Plan``.
        changes: from ``search``.
        pods: from ``scale``.
    """
    run, timing = plan.config.run, plan.timing
    return {
        "hardware": plan.ipu.name, "pod": plan.ipu.pod(plan.pod_ipus), "ipus": plan.ipus,
        "ipus_per_replica": plan.placement.ipus_per_replica, "replicas": run.replicas,
        "micro_batch_size": run.micro_batch_size, "accumulation_steps": timing.accumulation,
        "global_batch_size": plan.config.train.global_batch_size,
        "sequences_per_row": plan.sequences_per_row, "parameters": _parameters(plan),
        "fits": plan.fits, "limit": plan.limit, "per_ipu": _per_ipu(plan),
        "stages": _stages(plan), "balance": timing.balance, "bubble_share": timing.bubble_share,
        "time_shares": timing.shares(), "step_seconds": timing.step,
        "steps_per_second": 1 / timing.step, "sequences_per_second": plan.sequences_per_second,
        "hours": plan.hours, "peak_share": plan.peak_share,
        "advice": [{"run": change.keys, "fits": change.plan.fits,
                    "sequences_per_second": change.plan.sequences_per_second,
                    "hours": change.plan.hours, "fullest_ipu": max(change.plan.used) / MIB}
                   for change in changes],
        "scaling": [{"pod": name, "ipus": ipus, **_point(point)} for name, ipus, point in pods],
        "constants": FITTED._asdict()}


def _parameters(plan):
    placed = {name for stage in plan.placement.stages for name in stage.parts}
    return sum(cost.parameters for name, cost in plan.costs.items() if name in placed)


def _per_ipu(plan):
    stashes = [stash_per_ipu(plan.config, plan.placement, plan.costs, recompute)
               for recompute in (True, False)]
    return [{"ipu": number,
             "parameters": sum(plan.costs[name].parameters for stage in plan.placement.stages
                               if stage.ipu == number for name in stage.parts),
             **{kind: size / MIB for kind, size in kinds.items()},
             "used": used / MIB, "available": plan.ipu.memory / MIB,
             "off_chip_available": plan.ipu.off_chip_bytes / MIB,
             "stash_if_recomputed": recomputed / MIB, "stash_if_kept": kept / MIB}
            for number, (kinds, used, recomputed, kept)
            in enumerate(zip(plan.memory, plan.used, *stashes))]


def _stages(plan):
    flops = [sum(plan.costs[name].flops for name in stage.parts)
             for stage in plan.placement.stages]
    return [{"stage": stage.number, "ipu": stage.ipu, "parts": shorten(stage.parts),
             "parameters": sum(plan.costs[name].parameters for name in stage.parts),
             "forward_flops_per_row": work, "share_of_flops": work / sum(flops),
             "forward_seconds": seconds}
            for stage, work, seconds in zip(plan.placement.stages, flops, plan.timing.forward)]


def _point(point):
    if isinstance(point, str):
        return {"reason": point}
    return {"sequences_per_second": point.sequences_per_second, "hours": point.hours,
            "bubble_share": point.timing.bubble_share, "fits": point.fits}


def as_text(plan, changes, pods):
    """The same as lines for a reader."""
    facts = as_dict(plan, changes, pods)
    return [*_head(plan, facts), "", *_stage_table(facts), "", *_memory_table(facts), "",
            *_times(plan, facts), "", *_advice(plan, changes), "", *_pod_table(facts)]


def _head(plan, facts):
    return [
        f"{facts['pod']}, {facts['hardware']}: {facts['ipus']} IPUs = {facts['replicas']} x "
        f"{facts['ipus_per_replica']} of a replica; {facts['parameters']:,} parameters",
        f"global batch {facts['global_batch_size']} = micro {facts['micro_batch_size']} x "
        f"accumulation {facts['accumulation_steps']} x replicas {facts['replicas']}; "
        f"{plan.config.run.precision}, "
        f"{'recomputing' if plan.config.run.recompute else 'keeping'} activations",
        f"verdict: {'fits' if facts['fits'] else 'DOES NOT FIT'}; limit: {facts['limit']}"]


def _stage_table(facts):
    width = max(len("parts"), *(len(stage["parts"]) for stage in facts["stages"]))
    lines = [f"stage  IPU  {'parts':{width}}   parameters  GFLOP/row   FLOPs  forward"]
    for stage in facts["stages"]:
        lines.append(
            f"{stage['stage']:5}  {stage['ipu']:3}  {stage['parts']:{width}}  "
            f"{stage['parameters']:11,}  {stage['forward_flops_per_row'] / 1e9:9.2f}  "
            f"{stage['share_of_flops']:6.1%}  {1e3 * stage['forward_seconds']:4.2f} ms")
    return lines


def _memory_table(facts):
    columns = [*KINDS, "used", "off_chip", "stash_if_recomputed", "stash_if_kept"]
    heads = [*KINDS, "used", "off chip", "stash: recompute", "keep"]
    widths = [max(len(head), 6) for head in heads]
    lines = ["MiB   " + "  ".join(f"{head:>{width}}" for head, width in zip(heads, widths))]
    for ipu in facts["per_ipu"]:
        cells = "  ".join(f"{ipu[column]:{width},.0f}" for column, width in zip(columns, widths))
        lines.append(f"IPU {ipu['ipu']:<2}{cells}"
                     f"{'' if ipu['used'] <= ipu['available'] else '  too much'}")
    first = facts["per_ipu"][0]
    return [*lines, f"of    {first['available']:,.0f} MiB on each IPU and "
            f"{first['off_chip_available']:,.0f} MiB off chip"]


def _times(plan, facts):
    steps = plan.config.train.steps
    hours = f"{facts['hours']:.2f} h for {steps} updates; " if steps else ""
    lines = [f"speed: {facts['sequences_per_second']:,.0f} sequences/s, "
             f"{facts['step_seconds']:.3f} s an update; {hours}"
             f"{facts['peak_share']:.0%} of the peak FLOP/s"]
    if plan.config.data.sequences_per_row > 1:
        lines.append(f"  at {plan.sequences_per_row:.2f} sequences a row")
    shares = [f"{name.replace('_', ' ')} {share:.1%}"
              for name, share in facts["time_shares"].items() if share >= 0.0005]
    return [*lines, f"balance {facts['balance']:.0%} (mean load of the IPUs over the highest), "
            f"bubble {facts['bubble_share']:.1%} of the pipeline's time",
            f"time goes into: {', '.join(shares)}"]


def _advice(plan, changes):
    if not changes:
        return [f"advice: nothing was found that is faster on {plan.pod_ipus} IPUs" if plan.fits
                else f"advice: nothing was found that fits {plan.pod_ipus} IPUs; allow more in "
                     "run.ipus, or write run.precision: fp16"]
    lines = [f"advice, in run, for {plan.pod_ipus} IPUs and the same global batch:"]
    for change in changes:
        gain = change.plan.sequences_per_second / plan.sequences_per_second - 1
        lines.append(f"  {change.plan.sequences_per_second:,.0f} sequences/s ({gain:+.0%}), "
                     f"{max(change.plan.used) / MIB:,.0f} MiB on the fullest IPU:")
        for key, value in change.keys.items():
            if key == "pipeline":
                lines += ["    pipeline:", *(f'      - "{stage}"' for stage in value)]
            else:
                lines.append(f"    {key}: {json.dumps(value)}")
    return lines


def _hours(hours):
    return f"{'-':>6}" if hours is None else f"{hours:6.2f}"


def _pod_table(facts):
    lines = [f"{'the same recipe on':20}  sequences/s   hours  bubble"]
    for point in facts["scaling"]:
        if "reason" in point:
            lines.append(f"{point['pod']:20}  {point['reason']}")
        else:
            lines.append(f"{point['pod']:20}  {point['sequences_per_second']:11,.0f}  "
                         f"{_hours(point['hours'])}  {point['bubble_share']:6.1%}"
                         f"{'' if point['fits'] else '  does not fit'}")
    return lines
