"""Which process computes which parts: a placement on devices, laid on Fleet's processes."""

from configs.errors import InputError
from engines.placement import describe, resolve


class Layout:
    """The processes of a replica, in a row: each sends to the next.

    A stage that returns to an earlier device, as heads do to the IPU that holds the word
    embedding, stays on the last process here, for Fleet's schedule has no way back; the
    embedding is shared instead.
    """

    def __init__(self, config, network):
        self.config, self.network = config, network
        self.names = [part.name for part in network.parts()]
        self.placement = resolve(config, with_pooler="pooler" in self.names)
        self.process_of_stage = _processes_of_stages(self.placement.stages)

    @property
    def places(self):
        """Processes a replica."""
        return 1 + self.process_of_stage[-1]

    def check_processes(self, launched):
        """
        Raises:
            InputError: ``launched`` processes are not what replicas and pipeline need.
        """
        replicas = self.config.run.replicas
        needed = replicas * self.places
        if launched != needed:
            raise InputError(
                "run.replicas", f"{replicas} replicas x {self.places} processes of run.pipeline "
                f"= {needed}, but {launched} processes were launched",
                f"launch with --nproc_per_node {needed}, or change run.replicas or run.pipeline")

    def first_parts(self):
        """Number of the first part of each process, and the number of all parts."""
        firsts = [self.parts_of(place)[0] for place in range(self.places)]
        return [*firsts, len(self.names)]

    def parts_of(self, place):
        """Numbers of the parts of a process of the replica."""
        stages = [stage for stage, process in zip(self.placement.stages, self.process_of_stage)
                  if process == place]
        return [self.names.index(part) for stage in stages for part in stage.parts]

    def shared_weight(self):
        """The word embedding."""
        return self.network.embeddings.word_embeddings.weight

    def holders_of_shared_weight(self):
        """Numbers of the parts that use the word embedding, if on more than one process."""
        weight = self.shared_weight()
        parts = [number for number, part in enumerate(self.network.parts())
                 if any(parameter is weight for layer in part.layers
                        for parameter in layer.parameters())]
        places = {place for place in range(self.places)
                  if set(self.parts_of(place)) & set(parts)}
        return parts if len(places) > 1 else []

    def describe(self):
        """Lines for a reader: the stages, and what Fleet makes of them."""
        lines = describe(self.config, self.placement)
        if self.places == 1:
            return lines
        for place in range(self.places):
            stages = [stage.number for stage, process in
                      zip(self.placement.stages, self.process_of_stage) if process == place]
            lines.append(f"  process {place} of a replica: stage "
                         + ", ".join(map(str, stages)))
        lines += self._describe_returns()
        return lines

    def _describe_returns(self):
        lines = []
        for stage, process in zip(self.placement.stages, self.process_of_stage):
            home = next(other for other, earlier in zip(self.placement.stages,
                                                        self.process_of_stage)
                        if other.ipu == stage.ipu)
            first = self.process_of_stage[home.number]
            if first != process:
                lines.append(f"  note: stage {stage.number} returns to device {stage.ipu}; Fleet "
                             f"has no way back and keeps it on process {process}")
        if self.holders_of_shared_weight():
            lines.append("  note: the word embedding is shared by the first and the last process")
        return lines


def _processes_of_stages(stages):
    """A process for each device at its first stage; a stage that returns stays where it is."""
    processes, seen = [], []
    for stage in stages:
        if stage.ipu not in seen:
            seen.append(stage.ipu)
        processes.append(len(seen) - 1)
    return processes
