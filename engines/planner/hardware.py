"""The IPUs and pods that a plan can be made for.

Sources: Graphcore's datasheets of IPU-M2000, Bow-2000 and their pods; Jia et al. 2019
(arXiv:1912.03413) for Mk1; tile memory of Mk2 from PopART's tests. FLOP/s are what the matrix
units do at most, tiles x multiply-adds a cycle x 2 x clock, and agree with the published peaks
(Mk1 125 and 31, Mk2 250 and 62.5, Bow 350 and 87.5 TFLOP/s in fp16 and fp32).
"""

from typing import NamedTuple

MIB = 1024 ** 2
GIB = 1024 ** 3


class Ipu(NamedTuple):
    """One generation of IPUs and the pods that are made of it."""

    name: str
    tiles: int
    tile_bytes: int
    clock: float
    """Hz"""
    products_a_cycle: dict
    """Multiply-adds of a tile in a cycle, by precision; ``half_partials`` is fp16 that is added
    up in fp16, ``fp16`` what is added up in fp32 (Mk2 and Bow: half of it, as on Mk1's unit)."""
    link_bandwidth: float
    """Bytes/s of all IPU-Links of an IPU in one direction"""
    off_chip_bytes: int
    """Streaming memory of an IPU; 0 where there is none"""
    off_chip_bandwidth: float
    """Bytes/s between an IPU and what lies off chip, in one direction"""
    pods: dict
    """Names of the systems that are sold, by their number of IPUs"""

    @property
    def memory(self):
        """Bytes on the chip."""
        return self.tiles * self.tile_bytes

    def peak_flops(self, precision, half_partials):
        """FLOP/s of the matrix units, for ``run.precision`` and ``run.half_partials``."""
        kind = "half_partials" if precision == "fp16" and half_partials else precision
        return 2 * self.tiles * self.products_a_cycle[kind] * self.clock

    def pod(self, ipus):
        """Name of the smallest system with so many IPUs, e.g. ``Bow Pod16``."""
        size = next((size for size in self.pods if size >= ipus), None)
        return self.pods.get(size, f"{ipus} IPUs (larger than any pod)")


_MK2 = Ipu(name="Mk2 (GC200)", tiles=1472, tile_bytes=638_976, clock=1.33e9,
           products_a_cycle={"half_partials": 64, "fp16": 32, "fp32": 16},
           link_bandwidth=160e9, off_chip_bytes=64 * GIB, off_chip_bandwidth=32e9,
           pods={size: f"IPU-POD{size}" for size in (4, 16, 64, 128, 256)})

IPUS = {
    "mk1": Ipu(name="Mk1 (GC2)", tiles=1216, tile_bytes=262_144, clock=1.6e9,
               products_a_cycle={"half_partials": 32, "fp16": 32, "fp32": 8},
               link_bandwidth=160e9, off_chip_bytes=0, off_chip_bandwidth=16e9,
               pods={16: "DSS8440"}),
    "mk2": _MK2,
    "bow": _MK2._replace(name="Bow", clock=1.85e9,
                         pods={size: f"Bow Pod{size}" for size in (4, 16, 64, 128, 256)}),
}
