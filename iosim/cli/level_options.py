"""Options of the simulated hierarchy, shared by the commands that can show every level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.hardware import HardwareProfile
    from iosim.kernels import KernelFacts
    from iosim.results import RunRecord

LEVELS = "Levels"
ORDERS = ("grid", "reverse", "longest-first", "shortest-first", "head-major", "batch-major")
WALKS = ("forward", "backward", "sawtooth")


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=LEVELS)


LevelsFlag = Annotated[
    bool,
    _option("--levels", help="Simulate the L2: add bytes at its slices, between its partitions and at HBM."),
]
Kernel = Annotated[
    str | None,
    _option(
        "--kernel",
        metavar="NAME",
        help="Tiles and schedule of a kernel card (`iosim kernels list`), as torch-flash2, or of your own file.",
    ),
]
Order = Annotated[str | None, _option("--order", metavar="ORDER", help=f"Launch order: {', '.join(ORDERS)}.")]
KvWalk = Annotated[
    str | None, _option("--kv-walk", metavar="WALK", help=f"K and V tiles: {', '.join(WALKS)}.")
]
BlocksPerSm = Annotated[
    int | None,
    _option("--blocks-per-sm", metavar="NUMBER", help="Resident thread blocks [by on-chip bytes]."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOptions:
    """Whether to simulate the levels, and the assumptions to replace."""

    levels: LevelsFlag = False
    kernel: Kernel = None
    order: Order = None
    kv_walk: KvWalk = None
    blocks_per_sm: BlocksPerSm = None

    @property
    def wanted(self) -> bool:
        """True where any of these options was given."""
        return self.levels or any(
            v is not None for v in (self.kernel, self.order, self.kv_walk, self.blocks_per_sm)
        )

    def facts(self) -> KernelFacts | None:
        """The kernel's facts; `ProfileError` for an unknown one."""
        from iosim.kernels import load_kernel

        return None if self.kernel is None else load_kernel(self.kernel)

    def policies(self) -> dict[str, Any]:
        """The fields of `Policies` that were chosen; `UsageError` names what is wrong."""
        out: dict[str, Any] = {}
        if self.order is not None:
            if self.order not in ORDERS:
                raise UsageError(f"--order: unknown order {self.order!r}; allowed: {', '.join(ORDERS)}")
            if self.order == "head-major":
                out["grid_order"] = ("row_tile", "head", "batch")
            elif self.order == "batch-major":
                out["grid_order"] = ("row_tile", "batch", "head")
            else:
                out["launch"] = self.order
        if self.kv_walk is not None:
            if self.kv_walk not in WALKS:
                raise UsageError(f"--kv-walk: unknown walk {self.kv_walk!r}; allowed: {', '.join(WALKS)}")
            out["kv_walk"] = self.kv_walk
        if self.blocks_per_sm is not None:
            if not 1 <= self.blocks_per_sm <= 64:
                raise UsageError(f"--blocks-per-sm: must be between 1 and 64, got {self.blocks_per_sm}")
            out["blocks_per_sm"] = self.blocks_per_sm
        return out


def level_lines(record: RunRecord) -> list[str]:
    """The assumptions of a simulated record in one line each, for people."""
    from iosim.units import counted

    note = record.notes["levels"]
    policies = note["policies"]
    order = ", ".join(policies["grid_order"])
    lines = [
        f"levels: {policies['sms']} SMs x {counted(note['blocks_per_sm'], 'block')}, so a wave is "
        f"{counted(policies['sms'] * note['blocks_per_sm'], 'block')}; index {order} (fastest first), "
        f"launch {policies['launch']}, K/V {policies['kv_walk']}, skew {policies['skew']}"
        + (", extrapolated" if note["extrapolated"] else "")
    ]
    for kernel in note["kernels"]:
        lines.append(
            f"  {kernel['kernel']}: {counted(kernel['blocks'], 'block')}, {counted(kernel['full_waves'], 'full wave')} "
            f"and {counted(kernel['tail_blocks'], 'block')}, L2 hit rate {kernel['hit_rate']:.1%}"
        )
    return lines


def profile_of(name: str, overrides: list[str] | None) -> HardwareProfile:
    """The profile of a command line."""
    from iosim.hardware import load_profile

    return load_profile(name, overrides or ())
