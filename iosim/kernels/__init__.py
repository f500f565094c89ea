"""Production kernels: the facts that turn a program into what a library runs."""

from iosim.kernels.classes import CLASSES, Constant, KernelClass
from iosim.kernels.facts import KernelFacts, SpillFact, TileFact
from iosim.kernels.load import kernel_names, kernels_by_measurement, load_kernel, measured_kernel

__all__ = [
    "CLASSES",
    "Constant",
    "KernelClass",
    "KernelFacts",
    "SpillFact",
    "TileFact",
    "kernel_names",
    "kernels_by_measurement",
    "load_kernel",
    "measured_kernel",
]
