"""What a run returns: frozen records with units in their names, to plain dictionaries and to tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iosim.problem import AttentionProblem, TileShape

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
TENSOR_ORDER = (*("Q", "K", "V", "O", "S", "P", "LSE", "M", "L"), *("dO", "dQ", "dK", "dV", "D", "dP", "dS"))


def in_order(tensors: Iterable[str]) -> list[str]:
    """Tensor names in the order every table shows them: the known ones first, others by name."""
    names = set(tensors)
    return [t for t in TENSOR_ORDER if t in names] + sorted(names - set(TENSOR_ORDER))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTraffic:
    """Bytes of one tensor across one boundary, re-reads included."""

    tensor: str
    level: str
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes between slow memory and the SMs. Traffic of parts adds up."""

    sm_read_bytes: int
    sm_write_bytes: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            sm_read_bytes=self.sm_read_bytes + other.sm_read_bytes,
            sm_write_bytes=self.sm_write_bytes + other.sm_write_bytes,
        )

    @property
    def total_bytes(self) -> int:
        """Reads and writes together."""
        return self.sm_read_bytes + self.sm_write_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBytes:
    """Simulated bytes below the SMs: arriving at the L2 slices, between L2 partitions, at HBM."""

    l2_read_bytes: int
    l2_write_bytes: int
    l2_fabric_bytes: int
    hbm_read_bytes: int
    hbm_write_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCount:
    """Operations. An FMA is 2 flops; useful and executed count matmul flops, the field's convention.

    `useful_flops`: of unmasked pairs. `executed_flops` = `tensor_flops`: of every tile that is computed, masked
    parts included. `vector_flops`: everything else but exp, log and reciprocal, which are `special_ops`.
    `padded_executed_flops`: the executed ones of a kernel that pads the head dimension; None where none was named.
    """

    useful_flops: int
    executed_flops: int
    tensor_flops: int
    vector_flops: int
    special_ops: int
    padded_executed_flops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferUse:
    """A value on chip at the worst moment; `counted` tells whether M pays for it in this footprint model."""

    kernel: str
    name: str
    tensor: str | None
    place: str
    bytes: int
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SramUse:
    """Live bytes on chip against the capacity M of one thread block, in a named footprint model."""

    model: str
    live_bytes: int
    capacity_bytes: int
    fits: bool
    register_bytes: int
    register_capacity_bytes: int | None
    buffers: tuple[BufferUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundValue:
    """A lower bound as it applies to one run; `bytes` is None where it does not apply, and `reason` says why."""

    name: str
    bytes: int | None
    valid: bool
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What the formulas say, beside what the program counts.

    `closed_form_bytes` is None for a program without one (a user's own).
    """

    closed_form_bytes: int | None
    compulsory_bytes: int
    lower_bound_bytes: int
    bounds: tuple[BoundValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One attention by one algorithm on one GPU: bytes, work, on-chip use and theory."""

    problem: AttentionProblem
    algorithm: str
    options: Mapping[str, str]
    tiles: TileShape | None
    profile: str
    profile_sha256: str
    traffic: Traffic
    traffic_by_tensor: tuple[TensorTraffic, ...]
    work: WorkCount
    sram: SramUse
    theory: Theory
    level_bytes: LevelBytes | None = None
    warnings: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim simulate`: plain dicts, lists, strings and numbers."""
        from dataclasses import asdict

        tiles = (
            {"rows": self.tiles.rows, "cols": self.tiles.cols} if self.tiles else {"rows": None, "cols": None}
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "problem": self.problem.to_dict(),
            "algorithm": self.algorithm,
            "options": dict(self.options),
            "tiles": tiles,
            "profile": self.profile,
            "profile_sha256": self.profile_sha256,
            "traffic": asdict(self.traffic) | (asdict(self.level_bytes) if self.level_bytes else {}),
            "traffic_by_tensor": [asdict(t) for t in self.traffic_by_tensor],
            "work": asdict(self.work),
            "sram": asdict(self.sram) | {"buffers": [asdict(b) for b in self.sram.buffers]},
            "theory": asdict(self.theory) | {"bounds": [asdict(b) for b in self.theory.bounds]},
            "warnings": list(self.warnings),
            **self.notes,
        }

    def to_row(self) -> dict[str, Any]:
        """The sizes, the traffic by tensor and direction, the work, on-chip use and bounds, by name of column."""
        sizes = {k: v for k, v in self.problem.to_dict().items() if k not in ("scale", "softmax_scale")}
        row: dict[str, Any] = {**sizes, "algorithm": self.algorithm, "profile": self.profile}
        row |= {"tile_rows": self.tiles and self.tiles.rows, "tile_cols": self.tiles and self.tiles.cols}
        row |= {"sm_read_bytes": self.traffic.sm_read_bytes, "sm_write_bytes": self.traffic.sm_write_bytes}
        if self.level_bytes:
            row |= {name: getattr(self.level_bytes, name) for name in self.level_bytes.__dataclass_fields__}
        for item in self.traffic_by_tensor:
            row[f"{item.tensor}_read_bytes"] = item.read_bytes
            row[f"{item.tensor}_write_bytes"] = item.write_bytes
        work = self.work
        row |= {name: getattr(work, name) for name in work.__dataclass_fields__}
        row |= {"sram_live_bytes": self.sram.live_bytes, "sram_bytes": self.sram.capacity_bytes}
        row |= {"fits": self.sram.fits, "closed_form_bytes": self.theory.closed_form_bytes}
        row |= {"compulsory_bytes": self.theory.compulsory_bytes}
        row["lower_bound_bytes"] = self.theory.lower_bound_bytes
        return row

    def to_frame(self) -> pd.DataFrame:
        """`to_row` as a table of one row."""
        import pandas as pd

        return pd.DataFrame([self.to_row()])

    def _repr_html_(self) -> str:
        """Bytes by tensor and level, bounds and work as small tables, in a notebook."""
        from iosim.display import html_table
        from iosim.units import format_bytes

        tile = f", tile {self.tiles}" if self.tiles else ""
        p = self.problem
        heads = f"{p.heads}" if p.heads == p.kv_heads else f"{p.heads}:{p.kv_heads}"
        about = f"batch {p.batch}, heads {heads}, {p.seq_q:,} × {p.seq_k:,}, d {p.head_dim}, {p.mask}"
        moved = [(t.tensor, t.read_bytes, t.write_bytes) for t in self.traffic_by_tensor]
        moved.append(("into and out of the SMs", self.traffic.sm_read_bytes, self.traffic.sm_write_bytes))
        if (low := self.level_bytes) is not None:
            moved.append(("at the L2 slices", low.l2_read_bytes, low.l2_write_bytes))
            moved.append(("at HBM", low.hbm_read_bytes, low.hbm_write_bytes))
        bytes_table = html_table(
            f"{self.algorithm}{tile} on {self.profile}: {about}",
            ("", "read, B", "written, B"),
            [[name, f"{read:,}", f"{written:,}"] for name, read, written in moved],
            right=(1, 2),
        )
        total, theory = self.traffic.total_bytes, self.theory
        facts = [
            ["total", f"{total:,} B", format_bytes(total)],
            ["compulsory", f"{theory.compulsory_bytes:,} B", format_bytes(theory.compulsory_bytes)],
            ["lower bound", f"{theory.lower_bound_bytes:,} B", f"the total is {_times(total, theory)} it"],
            ["on chip", f"{self.sram.live_bytes:,} B", f"of M = {format_bytes(self.sram.capacity_bytes)}"],
            ["matmul flops", f"{self.work.executed_flops:,}", f"{self.work.useful_flops:,} of them useful"],
        ]
        notes = [f"warning: {line}" for line in self.warnings]
        return bytes_table + html_table("", (), facts, right=(1,), notes=notes)


def _times(total_bytes: int, theory: Theory) -> str:
    return (
        f"{total_bytes / theory.lower_bound_bytes:.3f} times" if theory.lower_bound_bytes else "no multiple"
    )
