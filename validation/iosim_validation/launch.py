"""What the host hands to a GPU, as plain data: a plan of launches that can be read, refused and tested without one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parent / "kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """The GPU that a plan is made for. `architecture`: the target of the machine code, such as `sm_90a`."""

    name: str
    architecture: str
    sms: int
    shared_bytes_per_block: int
    l2_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One kernel text with its constants: what is compiled.

    `sources`: files of `kernels/`, joined in this order, without `#include` (a cache cannot see into included files).
    `prelude`: generated text between the constants and the files. `shared_bytes`: dynamic shared memory of a block.
    `registers_at_most`: what the launch needs to hold; the compile tests assert it, no spills and no notes.
    """

    rung: str
    entry: str
    architecture: str
    sources: tuple[str, ...]
    defines: tuple[tuple[str, int | str], ...]
    threads: int
    shared_bytes: int
    registers_at_most: int = 255
    prelude: str = ""

    @property
    def name(self) -> str:
        """The build in one word, for files and messages."""
        return "-".join((self.rung, *(f"{k.lower()}{v}" for k, v in self.defines), self.architecture))

    def source(self) -> str:
        """The whole text that the compiler sees."""
        constants = "".join(f"#define {name} {value}\n" for name, value in self.defines)
        files = "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in self.sources)
        return constants + self.prelude + files


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a named array: q, k, v, o, lse, or scratch of the plan."""

    array: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A tensor map by value, for the copy engine: boxes of rows × 64 columns of a named 4-D array, 128-byte swizzle."""

    array: str
    box_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stride:
    """The stride of a named [batch, heads, N, d] array along an axis, in elements (int64).

    A launch that names strides of an array takes it in any layout; one that does not is given contiguous arrays only.
    """

    array: str
    axis: int


Argument = Pointer | TensorMap | Stride | np.generic


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch; arguments in the order of the kernel's parameters."""

    build: Build
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Memory that the launches need beside the tensors. `data`: its content at the start; without it, unset.

    A kernel must leave scratch with `data` as it found it, or the plan cannot be launched twice.
    """

    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The launches of one attention, one after the other on one stream. `outputs`: arrays that it writes whole."""

    launches: tuple[Launch, ...]
    scratch: dict[str, Scratch] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("o", "lse")
