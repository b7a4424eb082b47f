"""Several processes: Paddle Fleet's pipeline and data parallel replicas, on CPUs or GPUs.

Stages of a replica exchange activations by Paddle's one-forward-one-backward schedule;
replicas add their gradients up. A process is a device of the placement.
"""

import dataclasses

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.base import topology
from paddle.distributed.fleet.meta_parallel import PipelineLayer, SharedLayerDesc

from configs.errors import Stopped
from engines import gloo
from engines.fleet_layout import Layout
from engines.fleet_pieces import PartLayer, Share, append_weightless
from engines.local import LocalEngine
from engines.peers import Peers


class FleetEngine(LocalEngine):
    """One of the processes that compute a recipe together, launched by Paddle's launcher."""

    def __init__(self, config):
        self.rank, self.processes = dist.get_rank(), dist.ParallelEnv().world_size
        self.is_main = self.rank == 0
        super().__init__(config)
        self.peers, self._names = None, None

    def build(self, network, make_optimizer=None):
        """As ``Engine.build``.

        Raises:
            InputError: the number of processes does not fit the recipe.
        """
        self.network = network
        self.layout = Layout(self.config, network)
        self.layout.check_processes(self.processes)
        self._start_fleet()
        self.peers = Peers(self.rank)
        super().build(network)
        self.pipeline = self._build_pipeline()
        self.stage_parameters = self._stage_parameters()
        self.owners = self._share_out() if self.config.run.shard_optimizer else None
        if make_optimizer:
            self.optimizer = make_optimizer(Share(self._own_parameters()))
            self.optimizer.add_up = self._add_up

    def __exit__(self, kind, error, trace):
        """Leave together with the others, if the run ended for all of them."""
        if self.peers and (kind is None or issubclass(kind, Stopped)):
            self._meet()
            self.peers.leave()

    def _meet(self):
        """Wait for the other processes; operations over NCCL do so by themselves."""

    # Data

    def read(self, data, consumed, count):
        """The rows of this process's replica, weighed over the global batch."""
        rows = count // self.config.run.replicas
        batch = data.batch(consumed + self.replica * rows, rows)
        self._meet()
        return self._weigh_globally(batch)

    def _weigh_globally(self, batch):
        """Weights that sum to 1 over the batches of all replicas, as those of one process do."""
        names = [name for name in batch.labels if name.endswith("_weights")]
        counts = [np.count_nonzero(batch.labels[name]) for name in names]
        totals = self._sum(counts, self.replica_group)
        labels = dict(batch.labels)
        for name, total in zip(names, totals):
            counted = (labels[name] > 0).astype(np.float32)
            labels[name] = counted / np.float32(max(total, 1))
        return dataclasses.replace(batch, labels=labels)

    # Computation

    def accumulate(self, batch, step):
        self.network.train()
        self._begin(step)
        with self.parts.precision():
            self.pipeline.forward_backward_pipeline(self._feed(batch))
        self._meet()
        return self._global_sums()

    @paddle.no_grad()
    def evaluate(self, batch):
        self.network.eval()
        self._begin(step=0)
        self._meet()
        batch = self._own_share(batch)
        steps, self.pipeline.accumulate_steps = (
            self.pipeline.accumulate_steps, len(batch) // self.config.run.micro_batch_size)
        self._forget_shapes()
        with self.parts.precision():
            self.pipeline.eval_batch(self._feed(batch), compute_loss=True)
        self._forget_shapes()
        self.pipeline.accumulate_steps = steps
        return self._global_sums()

    def predict(self, batch):
        # The main process has every part; a pipeline would have to be told of other shapes.
        return super().predict(batch) if self.is_main else {}

    def share(self, value):
        self._meet()
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def agree(self, flag):
        self._meet()
        return self._sum([flag], None)[0] > 0

    def _begin(self, step):
        self._step, self._sums = step, {}
        self._micro_batches_done = dict.fromkeys(self.layout.parts_of(self.place), 0)

    def run_part(self, number, stream):
        """One part of one micro batch; every part sees the micro batches in their order."""
        done = self._micro_batches_done[number]
        self._micro_batches_done[number] += 1
        micro_batch = self.replica * self.config.accumulation_steps + done
        return self.parts.run(number, stream, self._step, micro_batch)

    def _feed(self, batch):
        """Pairs of inputs and labels, a micro batch each; only the outer stages take them."""
        for micro_batch in self._micro_batches(batch):
            yield tuple({name: paddle.to_tensor(array) for name, array in arrays.items()}
                        for arrays in (micro_batch.inputs, micro_batch.labels))

    def _loss(self, logits, labels):
        sums = self.network.heads.loss(logits, labels)
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        return sums["loss"] * self.loss_scale.value

    def _own_share(self, batch):
        """This replica's rows of an evaluation, filled up to whole micro batches by rows that
        weigh nothing."""
        whole = self.config.run.micro_batch_size * self.config.run.replicas
        missing = -len(batch) % whole
        if missing:
            batch = append_weightless(batch, missing)
        rows = len(batch) // self.config.run.replicas
        return batch.rows(self.replica * rows, (self.replica + 1) * rows)

    def _forget_shapes(self):
        # Stages tell one another once what they send; an evaluation sends no gradients.
        if self.layout.places > 1:
            self.pipeline._p2p_helper.clear_meta_cache()

    def _global_sums(self):
        """The sums that the last stages of all replicas made, in every process."""
        if self._names is None:
            names = [list(self._sums)]
            dist.broadcast_object_list(names, src=self.processes - 1)
            self._names, = names
        values = [self._sums.get(name, 0.0) for name in self._names]
        return dict(zip(self._names, self._sum(values, None)))

    # Update

    def _update(self, loss, learning_rate):
        if np.isfinite(loss):
            self._add_up_gradients()
        norm = super()._update(loss, learning_rate)
        for parameter in self.network.parameters():
            parameter.clear_gradient(set_to_zero=False)
        if np.isfinite(norm):
            self._spread_weights()
        return norm

    @paddle.no_grad()
    def _add_up_gradients(self):
        """Sum each gradient over the replicas, where it is needed."""
        if self.config.run.replicas == 1:
            return
        for name, parameter in self.stage_parameters.items():
            if parameter.grad is None:
                continue
            if self.owners is None:
                dist.all_reduce(parameter.grad, group=self.replica_group)
            else:
                dist.reduce(parameter.grad, self._rank_of(self.owners[name]),
                            group=self.replica_group)

    def _add_up(self, squares):
        """Squared norms over the processes that hold the other gradients."""
        return self._sum([squares], self.stage_group if self.owners is None else None)[0]

    @paddle.no_grad()
    def _spread_weights(self):
        """Hand updated weights to the processes that did not update them."""
        for name, parameter in self.stage_parameters.items():
            if self.owners is not None:
                dist.broadcast(parameter, self._rank_of(self.owners[name]),
                               group=self.replica_group)
        for shared in self.layers.shared_comm.values():
            dist.broadcast(shared["layer"].shared_weight, min(shared["ranks"]),
                           group=shared["group"])

    # State

    def collect(self):
        self._meet()
        own = self._own_parameters() if self.owners is not None or self.replica == 0 else {}
        arrays = {} if self.is_main else {name: p.numpy() for name, p in own.items()}
        parameters = dict(self.network.named_parameters())
        for name, array in self._gather(arrays).items():
            parameters[name].set_value(array)

    def state(self):
        arrays = super().state() if self.owners is not None or self.replica == 0 else {}
        return {**self._gather({} if self.is_main else arrays), **arrays}

    def load_state(self, arrays):
        own = self._own_parameters()
        others = dict(self.network.named_parameters()).keys() - own.keys()
        super().load_state({key: array for key, array in arrays.items()
                            if key.rpartition("/")[0] not in others})

    def _gather(self, arrays):
        """Arrays of every process, by name, in the main process; nothing elsewhere."""
        described = []
        dist.all_gather_object(described, [(name, array.shape, str(array.dtype))
                                           for name, array in arrays.items()])
        gathered = {}
        for rank, items in enumerate(described):
            for name, shape, dtype in items:
                tensor = (paddle.to_tensor(arrays[name]) if self.rank == rank
                          else paddle.empty(shape, dtype))
                dist.broadcast(tensor, src=rank)
                if self.is_main:
                    gathered[name] = tensor.numpy()
        return gathered

    # Description

    def peak_flops(self):
        return self.config.run.peak_flops or self._sum([super().peak_flops()], None)[0]

    def describe(self):
        config, run = self.config, self.config.run
        optimizer = (f"spread over {run.replicas} replicas" if self.owners is not None
                     else "whole in each replica")
        return [
            f"engine: fleet, {self.processes} {run.device} processes over "
            f"{'gloo' if run.device == 'cpu' else 'nccl'}; optimizer state {optimizer}",
            *self.layout.describe(),
            f"batch: global {config.train.global_batch_size} = micro {run.micro_batch_size} x "
            f"accumulation {config.accumulation_steps} x replicas {run.replicas}",
        ]

    # Construction

    def _start_fleet(self):
        strategy = fleet.DistributedStrategy()
        # Losses are weighted sums, which must not be divided by the number of micro batches.
        options = {"delay_scale_loss": True}
        if self.config.run.device == "cpu":
            gloo.prepare_fleet()
            options.update(gloo.PIPELINE_OPTIONS)
        strategy.hybrid_configs = {"dp_degree": self.config.run.replicas, "mp_degree": 1,
                                   "pp_degree": self.layout.places, "pp_configs": options}
        strategy.pipeline_configs = {"accumulate_steps": self.config.accumulation_steps,
                                     "micro_batch_size": self.config.run.micro_batch_size}
        # Whatever an engine before this one in the same process laid out.
        topology._HYBRID_PARALLEL_GROUP = None
        fleet.init(is_collective=True, strategy=strategy, log_level="WARNING")
        self.groups = fleet.get_hybrid_communicate_group()
        self.place, self.replica = (self.groups.get_stage_id(),
                                    self.groups.get_data_parallel_rank())
        self.stage_group = self.groups.get_pipe_parallel_group()
        self.replica_group = self.groups.get_data_parallel_group()
        if self.config.run.device == "cpu":
            gloo.connect_stages(self.groups.topology().get_comm_list("pipe"), self.rank)
            self._meet = gloo.Meeting(self.processes).wait

    def _build_pipeline(self):
        layers = [self._layer_of(number, part) for number, part in enumerate(self.parts.parts)]
        self.layers = PipelineLayer(layers, topology=self.groups.topology(), loss_fn=self._loss,
                                    seg_method=self.layout.first_parts())
        return fleet.distributed_model(self.layers)

    def _layer_of(self, number, part):
        if number in self.layout.holders_of_shared_weight():
            return SharedLayerDesc("word_embeddings", PartLayer, None, "shared_weight",
                                   self, number, part)
        return PartLayer(self, number, part)

    def _stage_parameters(self):
        """Parameters that this stage updates, by name. The word embedding is the first
        stage's; the heads' copy of it follows."""
        held = {id(parameter) for number in self.layout.parts_of(self.place)
                for layer in self.parts.parts[number].layers for parameter in layer.parameters()}
        if self.place and self.layout.holders_of_shared_weight():
            held.discard(id(self.layout.shared_weight()))
        return {name: parameter for name, parameter in self.network.named_parameters()
                if id(parameter) in held}

    def _share_out(self):
        """The replica that updates each parameter: the next largest to the least laden."""
        loads, owners = [0] * self.config.run.replicas, {}
        for name, parameter in sorted(self.stage_parameters.items(),
                                      key=lambda item: -item[1].size):
            owners[name] = int(np.argmin(loads))
            loads[owners[name]] += parameter.size
        return owners

    def _own_parameters(self):
        """Parameters that this process updates, by name."""
        return {name: parameter for name, parameter in self.stage_parameters.items()
                if self.owners is None or self.owners[name] == self.replica}

    def _rank_of(self, replica):
        return self.replica_group.ranks[replica]

    def _sum(self, values, group):
        """Sums of numbers over the processes of a group, or over all; a list of floats."""
        tensor = paddle.to_tensor(np.array(values, np.float64))
        if group is None or group.nranks > 1:
            dist.all_reduce(tensor, group=group)
        return tensor.numpy().tolist()
