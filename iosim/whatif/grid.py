"""Time on a map of two memories: SRAM an SM by HBM bandwidth, everything else as on one GPU.

At each point the fastest design of a kernel class that fits (`iosim.tune`: its tile, warps, copies in flight, and any
number of blocks an SM that SRAM and registers allow) is taken, so that more of either memory never costs time:

    time = max(compute of the design, its bytes at HBM / bandwidth) + start

Compute is the prediction of docs/time.md with the class's constants. Two readings of the bytes at HBM: all that the SMs
read and write (`no L2`, the papers' machine), and what this GPU's L2 leaves (`behind the L2`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iosim.errors import ProfileError, TileError, UsageError
from iosim.hardware import HardwareProfile, load_profile, profile_names
from iosim.kernels import CLASSES
from iosim.memory.occupancy import SHARED_GRANULE_BYTES
from iosim.problem import AttentionProblem
from iosim.roofline import Machine
from iosim.tune.cost import Workload, check_blocks, l2_bytes_per_s, sm_bytes, times
from iosim.tune.design import Choices, Design, Fit, check, fit, padded, shapes
from iosim.tune.hbm import hbm_estimate
from iosim.tune.search import default_class, workload
from iosim.whatif.machine import fixed
from iosim.whatif.require import NO_L2, WITH_L2

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
READINGS = (NO_L2, WITH_L2)
SRAM_BYTES = tuple(float(2 ** (k / 8)) for k in range(8 * 14, 8 * 20 + 1))
"""16 KiB to 1 MiB, eight steps an octave."""
HBM_BYTES_PER_S = tuple(2.5e11 * 2 ** (k / 8) for k in range(8 * 6 + 1))
"""0.25 to 16 TB/s."""
LEFT_OUT = ("toy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Where a real GPU's SRAM of a thread block and HBM bandwidth lie. `own`: the GPU whose compute the map has."""

    name: str
    sram_bytes: int
    hbm_bytes_per_s: float
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Seconds [SRAM, HBM] under each reading; infinity where no design fits.

    `fixed`: what stays. `own_s`: at this GPU's own point, by reading.
    """

    problem: AttentionProblem
    profile: str
    kernel_class: str
    sram_bytes: tuple[float, ...]
    hbm_bytes_per_s: tuple[float, ...]
    seconds: dict[str, Floats]
    own_s: dict[str, float]
    dots: tuple[Dot, ...]
    fixed: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def best_s(self) -> float:
        """The least time on the map."""
        return float(min(s.min() for s in self.seconds.values()))

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim what-if`; None where no design fits."""
        return {
            "schema_version": 1,
            "problem": self.problem.to_dict(),
            "profile": self.profile,
            "kernel_class": self.kernel_class,
            "sram_bytes": list(self.sram_bytes),
            "hbm_bytes_per_s": list(self.hbm_bytes_per_s),
            "seconds": {
                name: [[v if np.isfinite(v) else None for v in row] for row in s.tolist()]
                for name, s in self.seconds.items()
            },
            "own_seconds": self.own_s,
            "gpus": [
                {
                    "name": d.name,
                    "sram_bytes": d.sram_bytes,
                    "hbm_bytes_per_s": d.hbm_bytes_per_s,
                    "own": d.own,
                }
                for d in self.dots
            ],
            "fixed": list(self.fixed),
            "notes": list(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """A row a point and reading."""
        import pandas as pd

        rows = [
            {
                "reading": name,
                "sram_bytes": m,
                "hbm_bytes_per_s": y,
                "seconds": s[i, j] if np.isfinite(s[i, j]) else None,
            }
            for name, s in self.seconds.items()
            for i, m in enumerate(self.sram_bytes)
            for j, y in enumerate(self.hbm_bytes_per_s)
        ]
        return pd.DataFrame(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Designs:
    """Columns of designs.

    `need`: SRAM of an SM. `compute_s`: without HBM. `edge_bytes`: what beside that waits for HBM, as seconds x B/s.
    `moved`: bytes (read, written) by reading.
    """

    need: Floats
    compute_s: Floats
    edge_bytes: Floats
    moved: dict[str, Floats]


def what_if(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    *,
    kernel_class: str | None = None,
    sram_bytes: Sequence[float] = SRAM_BYTES,
    hbm_bytes_per_s: Sequence[float] = HBM_BYTES_PER_S,
) -> Map:
    """The time of the forward pass at every pair of SRAM and HBM bandwidth.

    Errors: `ProfileError` for a GPU on which nobody knows the class, `TileError` where no design fits in any SRAM.
    """
    check(problem)
    load = workload(problem, gpu, kernel_class or default_class(gpu), "fwd")
    machine = Machine.of(gpu, str(problem.dtype_k))
    CLASSES[load.kernel_class].share_on(machine.architecture)
    designs = _designs(load, machine, max(sram_bytes))
    most = l2_bytes_per_s(gpu)
    shares = (
        machine.hbm_read_bytes_per_s / machine.hbm_peak_bytes_per_s,
        machine.hbm_write_bytes_per_s / machine.hbm_peak_bytes_per_s,
    )
    seconds = {
        name: _seconds(designs, name, sram_bytes, hbm_bytes_per_s, shares, machine, most) for name in READINGS
    }
    if not any(np.isfinite(s).any() for s in seconds.values()):
        raise TileError(
            f"what-if: no design of {load.kernel_class} fits in {max(sram_bytes):,.0f} bytes of SRAM"
        )
    own = (float(gpu.sram_per_block_bytes),), (machine.hbm_peak_bytes_per_s,)
    return Map(
        problem=problem,
        profile=gpu.name,
        kernel_class=load.kernel_class,
        sram_bytes=tuple(sram_bytes),
        hbm_bytes_per_s=tuple(hbm_bytes_per_s),
        seconds=seconds,
        own_s={name: float(_seconds(designs, name, *own, shares, machine, most)[0, 0]) for name in READINGS},
        dots=_dots(gpu),
        fixed=(*fixed(gpu, machine, "sram, hbm"), f"constants of {load.kernel_class}"),
        notes=machine.assumed,
    )


def _designs(load: Workload, machine: Machine, most_bytes: float) -> _Designs:
    """Every design whose registers fit, with every number of blocks an SM, timed without HBM."""
    roomy = _with_sram(load.gpu, int(most_bytes))
    reserved = load.gpu.sram_reserved_per_block_bytes
    found: list[tuple[Design, Fit]] = []
    for design in shapes(padded(load.seen), load.kernel_class, Choices(), backward=False):
        held = fit(design, padded(load.problem), load.kernel_class, roomy, backward=False)
        found += [(design, replace(held, blocks_per_sm=k)) for k in range(1, held.blocks_per_sm + 1)]
    if not found:
        raise TileError(f"what-if: no design of {load.kernel_class} fits; use a smaller head dimension")
    check_blocks(load, [d for d, _ in found])
    moved = sm_bytes(load, [d for d, _ in found])
    fast = replace(machine, hbm_read_bytes_per_s=l2_bytes_per_s(load.gpu))
    apart = 1 / machine.hbm_read_bytes_per_s - 1 / fast.hbm_read_bytes_per_s
    need, compute, edges, whole, least = [], [], [], [], []
    for (design, held), amount in zip(found, moved, strict=True):
        one = -(-(held.needs.shared_bytes + reserved) // SHARED_GRANULE_BYTES) * SHARED_GRANULE_BYTES
        need.append(float(held.blocks_per_sm * one - reserved))
        quick, own = (times(load, m, design, held, amount, (0, 0)).seconds for m in (fast, machine))
        edges.append(max(0.0, own - quick) / apart if apart > 0 else 0.0)
        compute.append(quick - edges[-1] / fast.hbm_read_bytes_per_s)
        read, written, _ = hbm_estimate(load, design, held.blocks_per_sm)
        whole.append((amount - written, written))
        least.append((read, written))
    return _Designs(
        need=np.array(need),
        compute_s=np.array(compute),
        edge_bytes=np.array(edges),
        moved={NO_L2: np.array(whole, dtype=float), WITH_L2: np.array(least, dtype=float)},
    )


def _with_sram(gpu: HardwareProfile, size: int) -> HardwareProfile:
    """The GPU with that much SRAM for one thread block."""
    from iosim.hardware.overrides import apply_overrides

    reserved = gpu.sram_reserved_per_block_bytes
    return apply_overrides(
        gpu, [f"memory.sram.per_block={size} B", f"memory.sram.per_sm={size + reserved} B"]
    )


def _seconds(
    designs: _Designs,
    reading: str,
    sram: Sequence[float],
    hbm: Sequence[float],
    shares: tuple[float, float],
    machine: Machine,
    most: float,
) -> Floats:
    """[SRAM, HBM]: the fastest design that fits."""
    bandwidth = np.asarray(hbm, dtype=float)
    read, written = designs.moved[reading].T
    memory = (read / shares[0] + written / shares[1])[:, None] / bandwidth[None, :] + machine.start_s
    waits = designs.edge_bytes[:, None] / np.minimum(shares[0] * bandwidth, most)[None, :]
    total = np.maximum(designs.compute_s[:, None] + waits, memory)
    out = np.full((len(sram), len(bandwidth)), np.inf)
    for i, size in enumerate(sram):
        keep = designs.need <= size
        if keep.any():
            out[i] = total[keep].min(axis=0)
    return out


def _dots(gpu: HardwareProfile) -> tuple[Dot, ...]:
    """Every profile of the package, and the GPU itself where it is not one of them."""
    found = [load_profile(name) for name in profile_names() if name not in (*LEFT_OUT, gpu.name)]
    rows = []
    for profile in [*found, gpu]:
        try:
            size, speed = profile.sram_per_block_bytes, float(profile.hbm_bandwidth_bytes_per_s)
        except ProfileError:
            continue
        rows.append(Dot(name=profile.name, sram_bytes=size, hbm_bytes_per_s=speed, own=profile is gpu))
    return tuple(rows)


def parse_range(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Ascending, distinct and above zero; `UsageError` names the option."""
    out = tuple(sorted(set(values)))
    if len(out) < 2 or out[0] <= 0:
        raise UsageError(f"{name}: two or more amounts above zero, got {len(out)}")
    return out
