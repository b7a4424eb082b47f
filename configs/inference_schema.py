"""Settings of a predictor: a flat YAML file, and what each key means."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional

from configs.errors import InputError
from configs.fields import check_positive, option
from configs.load import load_flat

_SECTION = "inference"


@dataclass(frozen=True)
class InferenceConfig:
    """How answers are computed; nothing here changes them beyond rounding."""

    device: Literal["cpu", "gpu", "ipu", "ipu_model"] = option(
        "cpu", "What computes: cpu, gpu, ipu, or ipu_model (IPUs emulated on the CPU). IPUs need a "
               "folder that export_model.py --inference made.")
    threads: Optional[int] = option(None, "CPU threads; null takes every core it may use.")
    processes: Optional[int] = option(
        None, "Processes that compute beside the one that reads and answers, each with a copy of "
              "the model and its share of the threads; null is none for one text, and for a stream "
              "or a server one a thread on a CPU, 4 at most, and one on other devices.")
    onednn: Optional[bool] = option(
        None, "CPU: compute by oneDNN; null does where the processor has AVX-512, below which "
              "Paddle's own operators are faster on short batches.")
    precision: Literal["fp32", "fp16", "bf16"] = option(
        "fp32", "Arithmetic: bf16 on CPUs with such instructions and on GPUs, fp16 on GPU and IPU.")
    batch_tokens: int = option(2048, "Slots that are computed at once, padding included.")
    most_rows: int = option(128, "Rows that are computed at once.")
    fixed_rows: Optional[int] = option(
        None, "Rows of every batch, filled up with empty ones, for devices with fixed shapes.")
    fixed_length: Optional[int] = option(None, "Slots of every row, likewise.")
    fixed_masks: int = option(
        4, "[MASK]s of every row of fill-mask in a model for IPUs, with which it is exported.")
    gpu_number: int = option(0, "Which GPU.")
    gpu_memory: int = option(1000, "GPU: megabytes that are taken at the start.")
    ipus: int = option(
        1, "IPUs of a replica; Paddle shares the operators out evenly, in their order.")
    ipu_replicas: int = option(1, "IPU: copies of the model, each on one IPU.")
    ipu_pipelining: bool = option(False, "IPU: compute several batches in a pipeline of IPUs.")
    ipu_batches_per_step: int = option(1, "IPU: batches in one call of the device.")
    ipu_available_memory_proportion: float = option(
        1.0, "IPU: share of the memory that a matrix product may take while it runs.")
    ipu_half_partials: bool = option(False, "IPU: add up the products of fp16 numbers in fp16.")

    def check(self):
        """Raise InputError where values contradict one another."""
        check_positive(self, _SECTION, "threads", "processes", "batch_tokens", "most_rows",
                       "fixed_rows", "fixed_length", "fixed_masks", "gpu_memory", "ipus",
                       "ipu_replicas", "ipu_batches_per_step",
                       "ipu_available_memory_proportion")
        known = {"cpu": ("fp32", "bf16"), "gpu": ("fp32", "fp16", "bf16"),
                 "ipu": ("fp32", "fp16"), "ipu_model": ("fp32", "fp16")}[self.device]
        if self.precision not in known:
            raise InputError("inference.precision", f"{self.precision} is not computed on "
                             f"{self.device}", f"write {' or '.join(known)}")
        if self.precision == "bf16" and self.device == "cpu" and self.onednn is False:
            raise InputError("inference.onednn", "false, but only oneDNN computes bf16 on a CPU",
                             "write true or null")
        if self.threads and self.processes and self.processes > self.threads:
            raise InputError("inference.processes", f"{self.processes} share {self.threads} threads",
                             "write no more than threads")
        if (self.fixed_rows is None) != (self.fixed_length is None):
            raise InputError("inference.fixed_rows", "fixed_rows and fixed_length go together",
                             "give both or neither")
        if self.on_ipus:
            self._check_ipu()

    @property
    def on_ipus(self):
        """Whether IPUs compute, real or emulated."""
        return self.device in ("ipu", "ipu_model")

    @property
    def rows_at_once(self):
        """Rows that one replica computes at a time."""
        return self.fixed_rows // (self.ipu_replicas * self.ipu_batches_per_step)

    def _check_ipu(self):
        if self.processes not in (None, 1):
            raise InputError("inference.processes", f"{self.processes}, but one process drives the "
                             "IPUs", "write 1 or null")
        if self.fixed_rows is None:
            raise InputError("inference.fixed_rows", "null, but IPUs compute one shape",
                             "write fixed_rows and fixed_length")
        together = self.ipu_replicas * self.ipu_batches_per_step
        if self.fixed_rows % together:
            raise InputError("inference.fixed_rows", f"{self.fixed_rows} is no multiple of "
                             f"ipu_replicas x ipu_batches_per_step = {together}", "change one")
        if self.ipu_batches_per_step > 1 and not self.ipu_pipelining:
            raise InputError("inference.ipu_batches_per_step", f"{self.ipu_batches_per_step}, which "
                             "Paddle passes over without a pipeline",
                             "write 1, or ipu_pipelining: true")
        if self.ipus > 1 and self.ipu_replicas > 1:
            raise InputError("inference.ipu_replicas", f"{self.ipu_replicas}, but Paddle shares "
                             "the operators out over the IPUs of all replicas, where each replica "
                             f"has {self.ipus}", "write 1, or ipus: 1")
        if self.ipu_half_partials and self.precision != "fp16":
            raise InputError("inference.ipu_half_partials", "true, which Paddle passes over in "
                             f"{self.precision}", "write false, or precision: fp16")
        if self.ipu_pipelining and self.ipus == 1:
            raise InputError("inference.ipu_pipelining", "true, but one IPU is no pipeline",
                             "write false, or more ipus")
        if self.ipu_pipelining and self.ipu_batches_per_step < self.ipus:
            raise InputError("inference.ipu_batches_per_step", f"{self.ipu_batches_per_step} "
                             f"batches do not fill a pipeline of {self.ipus} IPUs",
                             f"write {self.ipus} or more")


def load_inference(path=None, overrides=()):
    """Settings from a YAML file (None: the defaults) and ``KEY=VALUE`` overrides.

    Raises:
        InputError: naming file, line and nearest key.
    """
    return load_flat(InferenceConfig, _SECTION, path and Path(path), overrides)


def describe_inference():
    """A line for every key, for ``--help``."""
    return "\n".join(f"  {field.name} (default {field.default})\n      {field.metadata['meaning']}"
                     for field in dataclasses.fields(InferenceConfig))
