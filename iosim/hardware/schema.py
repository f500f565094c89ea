"""The keys of a hardware profile: one table that the loader, the overrides and the errors all read."""

from __future__ import annotations

from dataclasses import dataclass

from iosim.units import Dimension

TENSOR_DTYPES = ("fp64", "tf32", "fp16", "bf16", "fp8", "int8")
VECTOR_DTYPES = ("fp64", "fp32")
HEADER_KEYS = (
    "name", "title", "aliases", "architecture", "compute_capability", "counter_data", "source", "sources",
)  # fmt: skip
SECTIONS = ("compute", "limits", "memory", "measured")
ENTRY_KEYS = ("value", "unit", "source", "kind", "clock", "note", "unknown")
KINDS = ("theoretical", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One number of a profile: its dotted key, what it measures, whether a profile must have it."""

    key: str
    dimension: Dimension
    required: bool = False
    on_chip: bool = False
    """On-chip sizes are binary; a decimal unit there earns a warning."""

    @property
    def unit(self) -> str:
        """The unit that values of this field are in; empty for counts and flags."""
        if self.dimension in (Dimension.COUNT, Dimension.FLAG):
            return ""
        return "OP/s" if self.key.endswith(".int8") else self.dimension.value


def _must(key: str, dimension: Dimension, on_chip: bool = False) -> FieldSpec:
    return FieldSpec(key=key, dimension=dimension, required=True, on_chip=on_chip)


def _may(key: str, dimension: Dimension, on_chip: bool = False) -> FieldSpec:
    return FieldSpec(key=key, dimension=dimension, on_chip=on_chip)


_D = Dimension
_FIELDS = (
    _must("compute.sm_count", _D.COUNT),
    _must("compute.clocks.boost", _D.HERTZ),
    _may("compute.clocks.tensor", _D.HERTZ),
    _may("compute.clocks.base", _D.HERTZ),
    _must("compute.special_per_sm", _D.OPS_PER_CLK),
    *(_may(f"compute.tensor_dense.{dtype}", _D.FLOP_PER_S) for dtype in TENSOR_DTYPES),
    *(_may(f"compute.tensor_sparse_2to4.{dtype}", _D.FLOP_PER_S) for dtype in TENSOR_DTYPES),
    *(_may(f"compute.vector.{dtype}", _D.FLOP_PER_S) for dtype in VECTOR_DTYPES),
    _may("compute.board_power", _D.WATTS),
    _must("limits.warps_per_sm", _D.COUNT),
    _must("limits.threads_per_sm", _D.COUNT),
    _must("limits.blocks_per_sm", _D.COUNT),
    _must("limits.threads_per_block", _D.COUNT),
    _must("limits.registers_per_thread", _D.COUNT),
    _must("memory.registers.per_sm", _D.BYTES, on_chip=True),
    _must("memory.sram.combined_per_sm", _D.BYTES, on_chip=True),
    _must("memory.sram.per_sm", _D.BYTES, on_chip=True),
    _must("memory.sram.per_block", _D.BYTES, on_chip=True),
    _must("memory.sram.reserved_per_block", _D.BYTES, on_chip=True),
    _must("memory.sram.bandwidth_per_sm", _D.BYTES_PER_CLK),
    _must("memory.l2.capacity", _D.BYTES, on_chip=True),
    _must("memory.l2.partitions", _D.COUNT),
    _must("memory.l2.request_coalescer", _D.FLAG),
    _must("memory.l2.line", _D.BYTES, on_chip=True),
    _must("memory.l2.sector", _D.BYTES, on_chip=True),
    _may("memory.l2.read_bandwidth", _D.BYTES_PER_CLK),
    _must("memory.hbm.capacity", _D.BYTES),
    _must("memory.hbm.bandwidth", _D.BYTES_PER_S),
    _may("measured.hbm_read_bandwidth", _D.BYTES_PER_S),
    _may("measured.hbm_write_bandwidth", _D.BYTES_PER_S),
    _may("measured.hbm_copy_bandwidth", _D.BYTES_PER_S),
    _may("measured.hbm_triad_bandwidth", _D.BYTES_PER_S),
    _may("measured.l2_read_bandwidth", _D.BYTES_PER_S),
    _may("measured.l2_shared_read_bandwidth", _D.BYTES_PER_S),
    _may("measured.l2_shared_read_capacity", _D.BYTES, on_chip=True),
    _may("measured.l2_own_read_capacity", _D.BYTES, on_chip=True),
    _may("measured.l1_read_bandwidth_per_sm", _D.BYTES_PER_CLK),
    _may("measured.sram_read_bandwidth_per_sm", _D.BYTES_PER_CLK),
    _may("measured.special_per_sm", _D.OPS_PER_CLK),
    _may("measured.fp32_per_sm", _D.OPS_PER_CLK),
    *(
        _may(f"measured.{way}_{dtype}_per_sm", _D.OPS_PER_CLK)
        for dtype in ("fp16", "bf16")
        for way in ("mma", "wgmma")
    ),
    _may("measured.matrix_clock", _D.HERTZ),
    _may("measured.tensor_clock", _D.HERTZ),
    _may("measured.full_clock_flops_per_sm", _D.OPS_PER_CLK),
    _may("measured.l1_latency", _D.CYCLES),
    _may("measured.l2_latency", _D.CYCLES),
    _may("measured.hbm_latency", _D.CYCLES),
    _may("measured.exchange_latency", _D.CYCLES),
    _may("measured.block_turnover", _D.CYCLES),
    _may("measured.store_bandwidth_per_sm", _D.BYTES_PER_CLK),
    _may("measured.store_bandwidth_per_sm_all", _D.BYTES_PER_CLK),
    _may("measured.stream_launch", _D.SECONDS),
    _may("measured.graph_launch", _D.SECONDS),
    _may("measured.grid_sync", _D.SECONDS),
    _may("measured.kernel_start", _D.SECONDS),
    _may("measured.busy_power", _D.WATTS),
    _may("measured.energy_per_flop", _D.JOULES),
    _may("measured.energy_per_hbm_byte", _D.JOULES),
)
FIELDS: dict[str, FieldSpec] = {field.key: field for field in _FIELDS}
GROUPS = frozenset(key.rsplit(".", n)[0] for key in FIELDS for n in range(1, key.count(".") + 1))
"""Every mapping on the way to a number: compute, compute.clocks, memory.l2 ..."""
