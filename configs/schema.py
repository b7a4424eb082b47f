"""Every key that a YAML file may hold: its type, its default and what it means.

Recipes change ``train``, machines change ``run``; ``model`` and ``data`` say what is
trained on what. Nothing in ``model``, ``data`` or ``train`` mentions a device.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import List, Literal, Optional, Union

from configs.data_schema import ClassifyConfig, DataConfig, SquadConfig
from configs.errors import InputError
from configs.fields import REQUIRED, check_not_negative, check_positive, check_share, option


@dataclass(frozen=True)
class ModelConfig:
    """The network and the vocabulary that it speaks."""

    architecture: Literal["bert", "ernie"] = option(
        REQUIRED, "bert, or ernie (which may add task-type embeddings).")
    vocabulary: str = option(
        REQUIRED, "Vocabulary file, a token a line or token<TAB>id; relative to the project.")
    vocab_size: int = option(
        REQUIRED, "Rows of the word embedding; may exceed the vocabulary (padding for hardware).")
    lower_case: bool = option(True, "Lower-case and strip accents before WordPiece.")
    hidden_size: int = option(768, "Width of a token's vector.")
    num_hidden_layers: int = option(12, "Transformer layers.")
    num_attention_heads: int = option(12, "Attention heads a layer; divides hidden_size.")
    intermediate_size: int = option(3072, "Width of the feed-forward layer.")
    hidden_act: Literal["gelu", "gelu_new", "relu"] = option(
        "gelu", "Activation: gelu (exact), gelu_new (tanh approximation) or relu.")
    hidden_dropout_prob: float = option(0.1, "Dropout on embeddings and on each sublayer.")
    attention_probs_dropout_prob: float = option(0.1, "Dropout on attention probabilities.")
    max_position_embeddings: int = option(512, "Longest sequence in tokens.")
    type_vocab_size: int = option(2, "Rows of the token-type (segment) embedding.")
    task_type_vocab_size: int = option(
        0, "Rows of ERNIE's task-type embedding; 0 leaves it out.")
    layer_norm_eps: float = option(
        1e-12, "Layer-norm epsilon: 1e-12 in BERT and PaddleNLP's ERNIE, 1e-3 in Graphcore's recipes.")
    initializer_range: float = option(
        0.02, "Standard deviation of the truncated normal that weights start from.")

    def check(self):
        check_positive(self, "model", "vocab_size", "hidden_size", "num_hidden_layers",
                  "num_attention_heads", "intermediate_size", "max_position_embeddings",
                  "type_vocab_size", "layer_norm_eps", "initializer_range")
        check_share(self, "model", "hidden_dropout_prob", "attention_probs_dropout_prob")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                "model.num_attention_heads",
                f"{self.num_attention_heads} heads do not divide hidden_size {self.hidden_size}",
                "choose a divisor")
        if self.task_type_vocab_size < 0:
            raise InputError("model.task_type_vocab_size", "is negative", "write 0 or more")
        if self.architecture == "bert" and self.task_type_vocab_size:
            raise InputError("model.task_type_vocab_size", "BERT has no task-type embedding",
                             "write 0, or architecture: ernie")


@dataclass(frozen=True)
class TrainConfig:
    """The recipe: what is done to the weights, the same on every machine."""

    global_batch_size: int = option(REQUIRED, "Rows a weight update.")
    learning_rate: float = option(REQUIRED, "Peak learning rate, reached after the warm-up.")
    steps: Optional[int] = option(None, "Weight updates of the whole run; or epochs is given.")
    epochs: Optional[float] = option(
        None, "Passes over the training rows, instead of steps; the last update is a whole one.")
    seed: int = option(42, "Seed of weights, order, pairs, masks and dropout.")
    optimizer: Literal["adamw", "lamb"] = option(
        "adamw", "adamw (decoupled decay) or lamb (layer-wise trust ratio).")
    warmup_steps: int = option(0, "Updates of linear warm-up, after which the schedule begins.")
    warmup_ratio: float = option(0.0, "Warm-up as a share of train.steps, instead of warmup_steps.")
    schedule: Literal["linear", "polynomial", "cosine", "constant"] = option(
        "linear", "How the learning rate goes from its peak to final_learning_rate.")
    final_learning_rate: float = option(0.0, "Where the schedule ends.")
    decay_steps: Optional[int] = option(
        None, "Update at which the schedule has ended and the rate stays; null is train.steps.")
    decay_power: float = option(1.0, "Power of the polynomial schedule.")
    weight_decay: float = option(0.01, "Decoupled weight decay.")
    decay_all_parameters: bool = option(
        False, "Decay biases and layer norms too, as Graphcore's LAMB recipes do.")
    beta1: float = option(0.9, "Decay of the first moment.")
    beta2: float = option(0.999, "Decay of the second moment.")
    epsilon: float = option(1e-6, "Added to the root of the second moment.")
    bias_correction: bool = option(
        True, "Correct the moments' start at zero; false is Google's AdamW and Graphcore's LAMB.")
    max_gradient_norm: float = option(
        1.0, "Clip the gradient to this global norm; 0 does not clip.")
    first_moment_precision: Literal["fp32", "fp16"] = option(
        "fp32", "How lamb keeps its first moment between updates; fp16 is Graphcore's.")
    second_moment_precision: Literal["fp32", "fp16"] = option(
        "fp32", "The same for the second moment.")
    moment_scale: float = option(
        1.0, "Factor on an fp16 first moment, its square on the second, so that small ones do "
             "not vanish; Graphcore's scaled optimizer state.")
    max_weight_norm: Optional[float] = option(
        None, "Most that lamb's trust ratio takes for the norm of a weight; null is no limit.")
    max_skipped_steps: int = option(
        20, "Updates in a row that may be skipped because loss or gradient is not finite.")
    log_every: int = option(10, "Updates between two lines of metrics.")
    evaluate_every: int = option(0, "Updates between evaluations; 0 evaluates at the end only.")
    evaluation_rows: int = option(512, "Held-out rows of an evaluation.")
    save_every: int = option(1000, "Updates between checkpoints; the last one is always saved.")
    keep_last: int = option(3, "Newest checkpoints that are kept; 0 keeps all.")
    keep_every: int = option(
        0, "Checkpoints of steps that this divides are kept for good; 0 keeps none so.")
    keep_best: bool = option(
        True, "Save at each evaluation that is the best so far, and keep the best checkpoint.")
    trackers: List[Literal["visualdl", "tensorboard", "wandb"]] = option(
        [], "Where metrics go beside metrics.jsonl: visualdl, tensorboard, wandb.")
    profile: List[int] = option(
        [], "First and last update to trace into profile.json, e.g. [10, 12]; empty is off.")
    initial_weights: Optional[str] = option(
        None, "Checkpoint folder to start from, e.g. phase 1's for phase 2; null starts anew.")

    def check(self):
        check_positive(self, "train", "steps", "epochs", "global_batch_size", "learning_rate", "epsilon",
                  "log_every", "evaluation_rows", "save_every", "decay_steps", "decay_power",
                  "moment_scale", "max_weight_norm")
        check_not_negative(self, "train", "seed", "warmup_steps", "weight_decay",
                      "max_gradient_norm", "evaluate_every", "final_learning_rate",
                      "max_skipped_steps", "keep_last", "keep_every")
        check_share(self, "train", "warmup_ratio")
        self._check_length()
        self._check_schedule()
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise InputError(f"train.{key}", f"{getattr(self, key)} is outside [0, 1)",
                                 "write e.g. 0.9")
        if self.optimizer == "adamw":
            self._refuse_what_only_lamb_has()
        if self.moment_scale != 1 and "fp16" not in (self.first_moment_precision,
                                                     self.second_moment_precision):
            raise InputError("train.moment_scale", "both moments are kept in fp32",
                             "remove it, or write train.first_moment_precision: fp16")
        if self.profile and (len(self.profile) != 2 or not 1 <= self.profile[0] <= self.profile[1]):
            raise InputError("train.profile", f"{self.profile} is not a first and a last update",
                             "write e.g. [10, 12]")

    @property
    def warmup(self):
        """Updates of the warm-up, however they were given."""
        return round(self.warmup_ratio * self.steps) if self.warmup_ratio else self.warmup_steps

    def _check_length(self):
        if self.steps is None and self.epochs is None:
            raise InputError("train.steps", "is missing", "add it, or train.epochs")
        if self.steps is not None and self.epochs is not None:
            raise InputError("train.epochs", "train.steps is given too", "write null for one")

    def _check_schedule(self):
        if self.warmup_ratio and self.warmup_steps:
            raise InputError("train.warmup_ratio", "warmup_steps is given too", "write one of them")
        if self.steps and self.decay_steps is not None and self.decay_steps <= self.warmup:
            raise InputError("train.decay_steps", f"{self.decay_steps} is not after the warm-up of "
                             f"{self.warmup} updates", "write more")
        if self.final_learning_rate > self.learning_rate:
            raise InputError("train.final_learning_rate", f"{self.final_learning_rate} is above "
                             f"learning_rate {self.learning_rate}", "write less")
        for key, kinds in (("decay_power", ("polynomial",)),
                           ("final_learning_rate", ("linear", "polynomial", "cosine")),
                           ("decay_steps", ("linear", "polynomial", "cosine"))):
            if self.is_set(key) and self.schedule not in kinds:
                raise InputError(f"train.{key}", f"has no meaning in a {self.schedule} schedule",
                                 f"remove it, or write train.schedule: {kinds[0]}")

    def _refuse_what_only_lamb_has(self):
        for key in ("first_moment_precision", "second_moment_precision", "moment_scale",
                    "max_weight_norm"):
            if self.is_set(key):
                value = str(getattr(self, key)).lower()
                raise InputError(f"train.{key}", f"{value} is offered for lamb only",
                                 "remove it, or write train.optimizer: lamb")

    def is_set(self, key):
        """Whether a key differs from its default."""
        return getattr(self, key) != type(self).__dataclass_fields__[key].default


@dataclass(frozen=True)
class RunConfig:
    """The machine: how the same recipe is laid on it."""

    micro_batch_size: int = option(REQUIRED, "Rows that are computed at once.")
    device: Literal["cpu", "gpu", "ipu", "ipu_model"] = option(
        "cpu", "What computes: cpu, gpu, ipu, or ipu_model (IPUs emulated on the CPU).")
    replicas: int = option(
        1, "Copies of the model that share a global batch; the local engine computes them in turn.")
    accumulation_steps: Optional[int] = option(
        None, "Micro batches a replica adds up before an update; null derives it.")
    pipeline: List[str] = option(
        [], "Stages of a replica in order, each 'PART, PART on IPU'. Parts: embeddings, layer.N, "
            "layer.N-M, layer.N.attention, layer.N.feed_forward, pooler, heads, and -1 for the "
            "layers that no stage names, evenly over all stages with a -1. The local engine "
            "computes the stages in turn. Empty is one stage.")
    ipus: Optional[int] = option(
        None, "IPUs of the pod: replicas x IPUs a replica may not exceed them; null is unchecked.")
    precision: Literal["fp32", "fp16", "bf16"] = option(
        "fp32", "Arithmetic: fp32 everywhere, fp16 on GPU and IPU, bf16 on GPU.")
    loss_scale: Optional[float] = option(
        None, "Factor of the loss in fp16, where gradients would vanish; null adapts it during "
              "training (GPU alone). Without effect in fp32 and bf16.")
    recompute: bool = option(
        False, "Compute the activations inside a layer anew in the backward pass, for memory.")
    shard_optimizer: bool = option(
        False, "Spread the optimizer's state over the replicas: ZeRO 1, on IPUs replicated tensor "
               "sharding.")
    data_workers: int = option(
        0, "Processes that make batches ahead; 0 makes them in the training process.")
    threads: Optional[int] = option(None, "CPU threads; null takes every core it may use.")
    peak_flops: Optional[float] = option(
        None, "FLOP/s of the machine, for the mfu figure; null measures a matrix product at start.")
    batches_per_step: int = option(
        1, "IPU: updates in one call of the device, all at the learning rate of the first.")
    # What follows tunes IPUs and changes no result beyond rounding: other devices pass over it,
    # so that a pod's file runs on them.
    available_memory_proportion: List[float] = option(
        [], "IPU: share of the memory that a matrix product may take while it runs; one value, or "
            "one for each IPU of a replica. Empty is the compiler's default.")
    half_partials: bool = option(False, "IPU: add up the products of fp16 numbers in fp16.")
    stochastic_rounding: bool = option(
        False, "IPU: round to fp16 at random, right on average, so that small updates count.")
    optimizer_state_on_chip: bool = option(
        False, "IPU: keep the optimizer's state on the IPUs instead of in the pod's DDR memory.")
    embedding_serialization_factor: int = option(
        1, "IPU: pieces in which the product with the word embedding is computed; divides "
           "model.vocab_size.")
    tied_gather: bool = option(
        False, "IPU: keep one layout of the word embedding and one accumulator of its gradient for "
               "its look-up and its product with the heads, by PopART's patterns TiedGather and "
               "TiedGatherAccumulate; for heads that predict tokens.")
    prefetch_depth: int = option(1, "IPU: micro batches that the host sends ahead.")
    outline_threshold: float = option(
        1.0, "IPU: how much code must repeat to be compiled once; larger is faster code and more "
             "of it.")
    engine_cache: Optional[str] = option(
        None, "IPU: folder that keeps compiled programs; null compiles at every start.")
    ipu_operators: Optional[str] = option(
        None, "IPU: library that python -m engines.ipu.custom_ops compiled, by which recompute "
              "starts anew at every layer instead of every stage, and no gradient of masks is "
              "built; null does without.")
    adam_decays_all: bool = option(
        False, "IPU: let adamw decay biases and layer norms too where the recipe spares them, "
               "which IPUs cannot; the one key by which their numbers differ from others'.")

    def check(self):
        check_not_negative(self, "run", "data_workers")
        check_positive(self, "run", "micro_batch_size", "replicas", "accumulation_steps", "ipus",
                  "loss_scale", "threads", "peak_flops", "embedding_serialization_factor",
                  "batches_per_step", "prefetch_depth", "outline_threshold")
        if any(not 0 < share <= 1 for share in self.available_memory_proportion):
            raise InputError("run.available_memory_proportion", "a share is outside (0, 1]",
                             "write e.g. [0.28]")
        if self.batches_per_step > 1 and not self.on_ipus:
            raise InputError("run.batches_per_step", f"{self.batches_per_step} updates that share "
                             f"a learning rate are made on IPUs alone, not on {self.device}",
                             "write 1")
        self._check_precision()

    @property
    def on_ipus(self):
        """Whether IPUs compute, real or emulated."""
        return self.device in ("ipu", "ipu_model")

    def _check_precision(self):
        known = {"cpu": ("fp32",), "gpu": ("fp32", "fp16", "bf16")}.get(
            self.device, ("fp32", "fp16"))
        if self.precision not in known:
            raise InputError("run.precision", f"{self.precision} is not computed on {self.device}",
                             f"write {' or '.join(known)}")
        if self.precision == "fp16" and self.loss_scale is None and self.device != "gpu":
            raise InputError("run.loss_scale", f"null adapts it, which {self.device} cannot",
                             "write a number, e.g. 512")


@dataclass(frozen=True)
class Config:
    """A whole resolved recipe."""

    model: ModelConfig
    data: Union[DataConfig, SquadConfig, ClassifyConfig]
    train: TrainConfig
    run: RunConfig

    @property
    def accumulation_steps(self):
        """Micro batches a replica adds up before a weight update."""
        return self.train.global_batch_size // (self.run.micro_batch_size * self.run.replicas)

    def with_steps(self, rows):
        """The config with ``train.steps`` for its ``train.epochs`` over so many rows."""
        if self.train.epochs is None:
            return self
        steps = math.ceil(self.train.epochs * rows / self.train.global_batch_size)
        config = dataclasses.replace(
            self, train=dataclasses.replace(self.train, steps=steps, epochs=None))
        config.check()
        return config

    def check(self):
        """Raise InputError where values contradict one another."""
        for section in (self.model, self.data, self.train, self.run):
            section.check()
        if self.data.task != "pretrain":
            self._refuse_what_only_pretraining_has()
        self._check_batch_arithmetic()
        if self.model.vocab_size % self.run.embedding_serialization_factor:
            raise InputError(
                "run.embedding_serialization_factor",
                f"{self.run.embedding_serialization_factor} does not divide model.vocab_size "
                f"{self.model.vocab_size}", "choose a divisor, or 1")
        if self.data.sequence_length > self.model.max_position_embeddings:
            raise InputError(
                "data.sequence_length",
                f"{self.data.sequence_length} tokens, but model.max_position_embeddings is "
                f"{self.model.max_position_embeddings}", "shorten the rows or take another model")
        if self.data.has_pairs and self.model.type_vocab_size < 2:
            raise InputError("model.type_vocab_size", "1 row, but a pair has two segments",
                             "write 2 or more")

    def _refuse_what_only_pretraining_has(self):
        if self.run.data_workers:
            raise InputError("run.data_workers", "fine-tuning makes its rows in the training "
                             "process", "write 0")
        if self.train.is_set("evaluation_rows"):
            raise InputError("train.evaluation_rows", "fine-tuning scores the whole of "
                             "data.evaluation_file", "remove it")

    def _check_batch_arithmetic(self):
        train, run = self.train, self.run
        together = run.micro_batch_size * run.replicas
        if train.global_batch_size % together:
            raise InputError(
                "train.global_batch_size",
                f"{train.global_batch_size} is no multiple of run.micro_batch_size "
                f"{run.micro_batch_size} x run.replicas {run.replicas}",
                "change one of the three")
        if run.accumulation_steps not in (None, self.accumulation_steps):
            raise InputError(
                "run.accumulation_steps",
                f"micro batch {run.micro_batch_size} x accumulation {run.accumulation_steps} x "
                f"replicas {run.replicas} = {together * run.accumulation_steps}, but "
                f"train.global_batch_size is {train.global_batch_size}",
                f"write {self.accumulation_steps}, or null to derive it")


SECTIONS = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig, "run": RunConfig}
TASKS = {kind.task: kind for kind in (DataConfig, SquadConfig, ClassifyConfig)}
"""What the section ``data`` is, by its key ``task``"""
