"""The hardware profile: one GPU's numbers, each with unit, source and kind. load.py reads the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iosim.errors import ProfileError
from iosim.hardware.schema import FIELDS, TENSOR_DTYPES, VECTOR_DTYPES
from iosim.units import Dimension, Number, format_quantity, format_rate

REGISTER_BYTES = 4
MAIN = (
    "compute.sm_count",
    "compute.clocks.boost",
    "compute.tensor_dense.fp16",
    "compute.special_per_sm",
    "memory.sram.per_block",
    "memory.l2.capacity",
    "memory.hbm.capacity",
    "memory.hbm.bandwidth",
)
"""What a profile shows first in a notebook."""
OVERRIDE = "override:"
"""How the source of a what-if number begins."""
PEAK_DTYPES = tuple(dict.fromkeys((*TENSOR_DTYPES, *VECTOR_DTYPES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number of a profile, in the base unit of its field.

    `kind` is "theoretical" (printed or derived) or "measured". `clock` names the entry of compute.clocks that
    a rate holds at. `value` is None when the number is not known; `unknown` then says why.
    """

    key: str
    value: Number | None
    unit: str
    source: str
    kind: str = "theoretical"
    clock: str | None = None
    note: str | None = None
    unknown: str | None = None

    @property
    def is_what_if(self) -> bool:
        """Whether it was given with --set, and is no number of the GPU."""
        return self.source.startswith(OVERRIDE)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the keys that do not apply are left out."""
        out: dict[str, Any] = {
            "value": self.value,
            "unit": self.unit,
            "source": self.source,
            "kind": self.kind,
        }
        extra = {"clock": self.clock, "note": self.note, "unknown": self.unknown}
        return out | {key: value for key, value in extra.items() if value is not None}

    def __str__(self) -> str:
        if self.value is None:
            return "unknown"
        dimension = FIELDS[self.key].dimension
        if dimension is Dimension.FLOP_PER_S:  # integer dtypes count OP/s
            return format_rate(self.value, self.unit, digits=5)
        return format_quantity(self.value, dimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of the hierarchy: all of its instances on the GPU together."""

    name: str
    capacity_bytes: int
    bandwidth_bytes_per_s: float
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """The units that run one dtype: "tensor" or "vector", their dense peak and the clock it holds at."""

    name: str
    dtype: str
    peak_flops_per_s: float
    clock_hz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """One GPU. Numbers come by property or by key; an unknown one raises `ProfileError` when asked for."""

    name: str
    title: str
    architecture: str
    compute_capability: str
    counter_data: bool
    """Hardware counters of this GPU were compared with the model; others are shown as extrapolated."""
    aliases: tuple[str, ...] = ()
    quantities: Mapping[str, Quantity]
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.sha256)

    def quantity(self, key: str) -> Quantity:
        """The entry with unit, source and kind; `ProfileError` when the profile has none."""
        found = self.quantities.get(key)
        if found is None:
            raise ProfileError(f"{self.name}: {key}: this profile has no such number")
        return found

    def number(self, key: str) -> Number:
        """The value of an entry in its base unit; `ProfileError` with the reason when it is unknown."""
        found = self.quantity(key)
        if found.value is None:
            raise ProfileError(
                f"{self.name}: {key}: unknown: {found.unknown}; give one with --set {key}=VALUE"
            )
        return found.value

    def has(self, key: str) -> bool:
        """True when the number is there and known."""
        found = self.quantities.get(key)
        return found is not None and found.value is not None

    def _count(self, key: str) -> int:
        return int(self.number(key))

    # compute -----------------------------------------------------------------------------------------------
    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors of the product (not of the full die)."""
        return self._count("compute.sm_count")

    @property
    def clock_hz(self) -> float:
        """The highest SM clock (boost)."""
        return self.number("compute.clocks.boost")

    @property
    def special_ops_per_clk_sm(self) -> float:
        """Special-function results (exp2, reciprocal ...) per clock and SM."""
        return self.number("compute.special_per_sm")

    def compute_unit(self, dtype: str) -> ComputeUnit:
        """The units of a dtype: tensor cores where they take it, else vector lanes of that same dtype."""
        name = str(dtype).strip().lower()
        if name not in PEAK_DTYPES:
            raise ProfileError(f"{self.name}: no peak for dtype {dtype!r}; known: {', '.join(PEAK_DTYPES)}")
        for unit, section in (("tensor", "tensor_dense"), ("vector", "vector")):
            key = f"compute.{section}.{name}"
            if key in self.quantities:
                peak = self.number(key)
                clock = self.quantities[key].clock or "boost"
                return ComputeUnit(
                    name=unit,
                    dtype=name,
                    peak_flops_per_s=peak,
                    clock_hz=self.number(f"compute.clocks.{clock}"),
                )
        known = ", ".join(d for d in PEAK_DTYPES if self._has_peak(d))
        raise ProfileError(f"{self.name}: this GPU has no {name} peak; it has: {known}")

    def _has_peak(self, dtype: str) -> bool:
        return self.has(f"compute.tensor_dense.{dtype}") or self.has(f"compute.vector.{dtype}")

    def peak_flops_per_s(self, dtype: str) -> float:
        """Dense peak of a dtype, an FMA being 2. Never another dtype's and never the 2:4 sparse figure."""
        name = str(dtype).strip().lower()
        for section in ("tensor_dense", "vector"):
            if f"compute.{section}.{name}" in self.quantities:
                return self.number(f"compute.{section}.{name}")
        return self.compute_unit(dtype).peak_flops_per_s  # raises, saying which there are

    # occupancy ---------------------------------------------------------------------------------------------
    @property
    def max_warps_per_sm(self) -> int:
        """Resident warps an SM can hold."""
        return self._count("limits.warps_per_sm")

    @property
    def max_threads_per_sm(self) -> int:
        """Resident threads an SM can hold."""
        return self._count("limits.threads_per_sm")

    @property
    def max_blocks_per_sm(self) -> int:
        """Resident thread blocks an SM can hold."""
        return self._count("limits.blocks_per_sm")

    @property
    def max_threads_per_block(self) -> int:
        """Threads one block may have."""
        return self._count("limits.threads_per_block")

    @property
    def max_registers_per_thread(self) -> int:
        """32-bit registers one thread may use."""
        return self._count("limits.registers_per_thread")

    @property
    def registers_per_sm(self) -> int:
        """32-bit registers of an SM."""
        return self.register_bytes_per_sm // REGISTER_BYTES

    # memory ------------------------------------------------------------------------------------------------
    @property
    def register_bytes_per_sm(self) -> int:
        """Register file of one SM."""
        return self._count("memory.registers.per_sm")

    @property
    def sram_per_block_bytes(self) -> int:
        """Shared memory one thread block can opt in to: the default M."""
        return self._count("memory.sram.per_block")

    @property
    def sram_per_sm_bytes(self) -> int:
        """Shared memory of an SM, for all of its blocks together."""
        return self._count("memory.sram.per_sm")

    @property
    def sram_combined_per_sm_bytes(self) -> int:
        """L1 and shared memory of an SM as one array."""
        return self._count("memory.sram.combined_per_sm")

    @property
    def sram_reserved_per_block_bytes(self) -> int:
        """Shared memory that the system takes for each resident block."""
        return self._count("memory.sram.reserved_per_block")

    @property
    def sram_bandwidth_bytes_per_clk_sm(self) -> float:
        """Shared-memory bytes per clock and SM."""
        return self.number("memory.sram.bandwidth_per_sm")

    @property
    def l2_capacity_bytes(self) -> int:
        """L2 of the whole GPU."""
        return self._count("memory.l2.capacity")

    @property
    def l2_partitions(self) -> int:
        """L2 partitions; each keeps its own copy of data read from both sides."""
        return self._count("memory.l2.partitions")

    @property
    def l2_coalescer(self) -> bool:
        """Reads of one line by several SMs in step are merged before they reach the L2 slices."""
        return bool(self.number("memory.l2.request_coalescer"))

    @property
    def l2_line_bytes(self) -> int:
        """L2 line (the tag's reach)."""
        return self._count("memory.l2.line")

    @property
    def l2_sector_bytes(self) -> int:
        """L2 sector (the unit of a fill)."""
        return self._count("memory.l2.sector")

    @property
    def hbm_capacity_bytes(self) -> int:
        """Device memory as the vendor prints it (decimal GB)."""
        return self._count("memory.hbm.capacity")

    @property
    def hbm_bandwidth_bytes_per_s(self) -> float:
        """Theoretical device-memory bandwidth."""
        return self.number("memory.hbm.bandwidth")

    def level(self, name: str) -> MemoryLevel:
        """`sram`, `l2` or `hbm` of the whole GPU (SRAM: sm_count private memories together)."""
        if name == "sram":
            clocked = self.sm_count * self.sram_bandwidth_bytes_per_clk_sm
            sizes = (self.sm_count * self.sram_per_sm_bytes, clocked * self.clock_hz, self.sm_count)
        elif name == "l2":
            clocked = self.number("memory.l2.read_bandwidth")
            sizes = (self.l2_capacity_bytes, clocked * self.clock_hz, self.l2_partitions)
        elif name == "hbm":
            sizes = (self.hbm_capacity_bytes, self.hbm_bandwidth_bytes_per_s, 1)
        else:
            raise ProfileError(f"{self.name}: unknown memory level {name!r}; allowed: sram, l2, hbm")
        capacity, bandwidth, instances = sizes
        return MemoryLevel(
            name=name, capacity_bytes=capacity, bandwidth_bytes_per_s=bandwidth, instances=instances
        )

    # identity ----------------------------------------------------------------------------------------------
    @property
    def sha256(self) -> str:
        """Hash of all content after overrides; equal hashes mean equal results."""
        content = self._content()
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "aliases": list(self.aliases),
            "architecture": self.architecture,
            "compute_capability": self.compute_capability,
            "counter_data": self.counter_data,
            "quantities": {key: q.to_dict() for key, q in self.quantities.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: header, sha256, warnings and every number by its dotted key."""
        return self._content() | {"sha256": self.sha256, "warnings": list(self.warnings)}

    def _repr_html_(self) -> str:
        """The main numbers as a small table, and behind a click all of them with their sources, in a notebook."""
        from iosim.display import folded, html_table

        def row(key: str, quantity: Quantity) -> list[str]:
            return [key, str(quantity), quantity.kind]

        counters = (
            "checked with hardware counters" if self.counter_data else "L2 and HBM results extrapolated"
        )
        main = [row(key, self.quantities[key]) for key in MAIN if key in self.quantities]
        top = html_table(
            f"{self.name}: {self.title}",
            ("", "value", "kind"),
            main,
            right=(1,),
            notes=[
                f"{self.architecture}, compute capability {self.compute_capability}, {counters}",
                *self.warnings,
            ],
        )
        every = [
            [*row(key, q), f"unknown: {q.unknown}" if q.unknown else q.source]
            for key, q in self.quantities.items()
        ]
        return top + folded(
            f"all {len(every)} numbers with their sources",
            html_table("", ("", "value", "kind", "source"), every, right=(1,)),
        )
