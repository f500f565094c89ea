"""How long a production kernel takes on a GPU: its levels simulated, a lower bound, and apart from it a prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from iosim.algorithms.registry import find_algorithm
from iosim.audit.compare import DECODE_QUERIES
from iosim.audit.times import uncounted_loop, work_of
from iosim.audit.unfused import UnfusedBytes, unfused_bytes
from iosim.errors import IosimError, ProfileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.kernels import CLASSES, KernelFacts
from iosim.levels import LevelTraffic, kernel_policies, simulate_levels
from iosim.onchip import on_chip
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline import LowerBound, Machine, Prediction, attention_bound, predict_both
from iosim.roofline.backward import backward_work
from iosim.roofline.combine import combine_time
from iosim.roofline.lower_bound import compulsory_bytes
from iosim.roofline.prediction import PAUSE_S
from iosim.roofline.tiled_gemm import predict_tiled_gemm, tiled_gemm
from iosim.roofline.unfused import (
    GEMMS,
    KERNELS,
    SOFTMAX_NOTE,
    aligned,
    predict_gemm,
    streaming_time,
    unfused_bound,
)
from iosim.splits import best_split, split_table

DEFAULT_KERNELS = MappingProxyType({"hopper": "cudnn-sdpa", "ampere": "torch-flash2", "ada": "torch-flash2"})
"""The fused kernel that torch prefers, by architecture."""

DECODE_NOTE = (
    "decode: another kernel of the library runs, whose tile is not known; its bytes alone are counted"
)
OUTER_KEYS = (
    "the output comes from memory and goes back for every key tile, and its card does not count the instructions of "
    "that loop"
)
GEMM_BLOCKS = 2
"""Thread blocks an SM of a GEMM whose instructions its card counts: its registers leave room for two."""
SPLIT_NOTE = "its bytes at the read bandwidth: the keys are divided over all SMs"
WAITS_ASSUMED = (
    "latencies, hand-overs between warps, stores of an SM, turns of blocks: as on an H200 where unknown"
)
JOIN_NOTE = "right behind the kernel that wrote the parts: they are in the L2"
DIVIDED_KEYS = "so few blocks go to another kernel of the library, which divides their keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTime:
    """One kernel launch: one run, and each of many in a row (None where that is not modelled)."""

    kernel: str
    once: Prediction
    repeated: Prediction | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kernel": self.kernel,
            "one_shot": self.once.to_dict(),
            "sustained": self.repeated.to_dict() if self.repeated else None,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Bound, prediction and bytes of one attention by one production kernel.

    `launches` is empty where `reason` says why nothing is predicted. `shared_bytes`: through shared memory, None where
    unknown; `sm_bytes`: between L2 and the SMs; `hbm_bytes`: at HBM; all simulated or counted.
    """

    kernel: str
    kernel_class: str
    passes: str
    profile: str
    problem: AttentionProblem
    tile: TileShape | None
    bound: LowerBound
    launches: tuple[LaunchTime, ...]
    reason: str | None
    useful_flops: int
    shared_bytes: int | None
    sm_bytes: int | None
    hbm_bytes: int | None
    assumed: tuple[str, ...]

    @property
    def once_s(self) -> float | None:
        """Seconds of one run, all launches together."""
        return sum(x.once.seconds for x in self.launches) if self.launches else None

    @property
    def repeated_s(self) -> float | None:
        """Seconds of each of many runs; None where a launch has none."""
        found = [x.repeated.seconds for x in self.launches if x.repeated]
        return sum(found) if found and len(found) == len(self.launches) else None

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim explain`."""
        return {
            "schema_version": 1,
            "kernel": self.kernel,
            "kernel_class": self.kernel_class,
            "pass": self.passes,
            "profile": self.profile,
            "problem": self.problem.to_dict(),
            "tiles": {"rows": self.tile.rows, "cols": self.tile.cols} if self.tile else None,
            "useful_flops": self.useful_flops,
            "bytes": {"shared": self.shared_bytes, "sm": self.sm_bytes, "hbm": self.hbm_bytes},
            "lower_bound": self.bound.to_dict(),
            "prediction": {
                "one_shot_s": self.once_s,
                "sustained_s": self.repeated_s,
                "launches": [x.to_dict() for x in self.launches],
                "reason": self.reason,
                "assumed": list(self.assumed),
            },
        }


def default_kernel(profile: HardwareProfile) -> str:
    """The kernel meant where none is named; on other architectures the one that runs everywhere."""
    return DEFAULT_KERNELS.get(profile.architecture, "torch-flash2")


def time_kernel(
    facts: KernelFacts,
    problem: AttentionProblem,
    profile: HardwareProfile,
    *,
    passes: str = "fwd",
    pause_s: float = PAUSE_S,
) -> Timing:
    """Everything about the time of one attention by one kernel.

    `passes`: fwd or bwd. `pause_s`: between repeated runs. Errors: `UsageError` for a head dimension that the kernel
    is not built for or a backward that it has not; `ProfileError` for a GPU without the dtype's peak.
    """
    machine = Machine.of(profile, str(problem.dtype_k))
    if passes not in ("fwd", "bwd"):
        raise UsageError(f"pass: unknown pass {passes!r}; allowed: fwd, bwd")
    tile = facts.tile(problem.head_dim) if passes == "fwd" else facts.backward_tile(problem.head_dim)
    if tile is None:
        what = "is not built for" if passes == "fwd" else "has no known backward at"
        raise UsageError(f"--kernel: {facts.name} {what} head-dim {problem.head_dim}")
    if passes == "bwd":
        run = _Run.backward(facts, problem, tile, machine, pause_s)
    elif facts.kernel_class == "unfused":
        run = _Run.unfused(facts, problem, profile, machine)
    elif facts.algorithm == "decode" and problem.seq_q < DECODE_QUERIES:
        run = _Run.split_keys(facts, problem, profile, machine)
    elif problem.seq_q < DECODE_QUERIES and facts.few_queries_elsewhere:
        run, tile = _Run.streaming(facts, problem, machine), None
    else:
        run = _Run.fused(facts, problem, tile, profile, machine, pause_s)
    bound = attention_bound(problem, machine, passes=passes, recompute=passes == "bwd")
    return Timing(
        kernel=facts.name,
        kernel_class=facts.kernel_class,
        passes=passes,
        profile=profile.name,
        problem=problem,
        tile=tile,
        bound=bound,
        launches=run.launches,
        reason=run.reason,
        useful_flops=problem.useful_flops * (5 if passes == "bwd" else 2) // 2,
        shared_bytes=run.shared_bytes,
        sm_bytes=run.sm_bytes,
        hbm_bytes=run.hbm_bytes,
        assumed=(*machine.assumed, *((WAITS_ASSUMED,) if machine.assumed and _waits(facts) else ())),
    )


def _waits(facts: KernelFacts) -> bool:
    """Whether a kernel has terms that stand on small rates of a GPU: latencies, hand-overs, stores, turns of blocks."""
    return bool(facts.instructions) or facts.warps_divide == "keys" or facts.algorithm == "decode"


def simulate_kernel(
    facts: KernelFacts, problem: AttentionProblem, tile: TileShape, profile: HardwareProfile
) -> LevelTraffic:
    """The levels of a fused forward kernel on the problem as its grid sees it."""
    seen = facts.packed(problem)
    policies = kernel_policies(facts, seen, tile, profile)
    return simulate_levels(
        find_algorithm(facts.algorithm), seen, facts.options, tile, profile, policies, in_step=facts.in_step
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    launches: tuple[LaunchTime, ...] = ()
    reason: str | None = None
    shared_bytes: int | None = None
    sm_bytes: int | None = None
    hbm_bytes: int | None = None

    @classmethod
    def fused(
        cls,
        facts: KernelFacts,
        problem: AttentionProblem,
        tile: TileShape,
        profile: HardwareProfile,
        machine: Machine,
        pause_s: float,
    ) -> _Run:
        levels = simulate_kernel(facts, problem, tile, profile)
        launches: tuple[LaunchTime, ...] = ()
        reason = OUTER_KEYS if uncounted_loop(facts) else None
        divided = facts.divides_keys(problem, profile.sm_count)
        if divided and problem.seq_q < DECODE_QUERIES:
            reason = f"{DIVIDED_KEYS}; see --kernel iosim-decode"
        try:
            launches = () if reason else _fused_launch(facts, problem, tile, levels, machine, pause_s)
            if divided:
                launches = tuple(replace(launch, note=f"undivided; {DIVIDED_KEYS}") for launch in launches)
        except ProfileError as error:
            reason = str(error)
        moved, shared = levels.sm_read_bytes + levels.sm_write_bytes, _shared_bytes(facts, problem, tile)
        if shared is not None and shared < moved and problem.seq_q > problem.seq_k:
            shared = None  # most blocks have no key: what they load and store is no part of a tile's steps
        return cls(
            launches=launches,
            reason=reason,
            shared_bytes=shared,
            sm_bytes=moved,
            hbm_bytes=levels.hbm_read_bytes + levels.hbm_write_bytes,
        )

    @classmethod
    def streaming(cls, facts: KernelFacts, problem: AttentionProblem, machine: Machine) -> _Run:
        """A decode kernel that is not the one of the card: only its bytes are known."""
        read, written = compulsory_bytes(problem)
        try:
            CLASSES[facts.kernel_class].share_on(machine.architecture)
        except ProfileError as error:
            return cls(reason=str(error))
        found = streaming_time(machine, read, written, attention_bound(problem, machine))
        return cls(
            launches=(LaunchTime(kernel=facts.name, once=found, repeated=found, note=DECODE_NOTE),),
            hbm_bytes=read + written,
        )

    @classmethod
    def split_keys(
        cls, facts: KernelFacts, problem: AttentionProblem, profile: HardwareProfile, machine: Machine
    ) -> _Run:
        """A decode whose keys are split over the SMs: its bytes, and a second kernel that joins the splits."""
        run = cls.streaming(facts, problem, machine)
        tile, algorithm = facts.tile(problem.head_dim), find_algorithm(facts.algorithm)
        if not run.launches or tile is None:
            return run
        table = split_table(problem, algorithm, facts.options, tile, profile.sm_count)
        splits = best_split(table).splits
        main = replace(run.launches[0], note=SPLIT_NOTE)
        if splits == 1:
            return replace(run, launches=(main,))
        after = combine_time(machine, splits, again=True)
        joined = LaunchTime(kernel=f"{facts.name} combine", once=after, repeated=after, note=JOIN_NOTE)
        return replace(run, launches=(main, joined))

    @classmethod
    def backward(
        cls,
        facts: KernelFacts,
        problem: AttentionProblem,
        tile: TileShape,
        machine: Machine,
        pause_s: float,
    ) -> _Run:
        try:
            work = backward_work(problem, tile)
            once, repeated = predict_both(work, machine, CLASSES[facts.kernel_class], pause_s=pause_s)
        except ProfileError as error:
            return cls(reason=str(error))
        note = "HBM bytes of the backward are the compulsory ones"
        return cls(
            launches=(LaunchTime(kernel=f"{facts.name} backward", once=once, repeated=repeated, note=note),)
        )

    @classmethod
    def unfused(
        cls, facts: KernelFacts, problem: AttentionProblem, profile: HardwareProfile, machine: Machine
    ) -> _Run:
        found = {kernel: unfused_bytes(kernel, problem, facts, profile) for kernel in KERNELS}
        hbm = round(sum(f.hbm_read_bytes + f.hbm_write_bytes for f in found.values()))
        if not aligned(problem) and not facts.instructions:
            reason = "rows of S do not start on 16 bytes: another GEMM runs, not modelled"
            return cls(reason=reason, hbm_bytes=hbm)
        try:
            launches = tuple(_unfused_launch(k, moved, problem, facts, machine) for k, moved in found.items())
        except ProfileError as error:
            return cls(reason=str(error), hbm_bytes=hbm)
        return cls(launches=launches, hbm_bytes=hbm)


def _fused_launch(
    facts: KernelFacts,
    problem: AttentionProblem,
    tile: TileShape,
    levels: LevelTraffic,
    machine: Machine,
    pause_s: float,
) -> tuple[LaunchTime, ...]:
    work = work_of(problem, facts, tile, levels)
    once, repeated = predict_both(work, machine, CLASSES[facts.kernel_class], pause_s=pause_s)
    return (LaunchTime(kernel=facts.name, once=once, repeated=repeated),)


def _unfused_launch(
    kernel: str, moved: UnfusedBytes, problem: AttentionProblem, facts: KernelFacts, machine: Machine
) -> LaunchTime:
    read, written = moved.hbm_read_bytes, moved.hbm_write_bytes
    if kernel not in GEMMS:
        floor = streaming_time(machine, read, written, unfused_bound(kernel, problem, machine))
        return LaunchTime(kernel=kernel, once=floor, note=f"a floor: {SOFTMAX_NOTE}")
    kind, hbm = CLASSES[facts.kernel_class], {"hbm_read_bytes": read, "hbm_write_bytes": written}
    tile = facts.tile(problem.head_dim)
    work = tiled_gemm(kernel, problem, facts, tile, residents=GEMM_BLOCKS) if tile else None
    if work is None:
        return LaunchTime(kernel=kernel, once=predict_gemm(kernel, problem, machine, kind, **hbm))
    return LaunchTime(kernel=kernel, once=predict_tiled_gemm(work, machine, kind.stream_share, **hbm))


def _shared_bytes(facts: KernelFacts, problem: AttentionProblem, tile: TileShape) -> int | None:
    """Through shared memory by all tiles; None where the tile does not divide among the warps."""
    padded = facts.padded(problem)
    scheme = "split-q" if CLASSES[facts.kernel_class].operands_by_warp else "wgmma"
    try:
        step = on_chip(padded, tile, scheme, warps=facts.threads_per_block // 32).step
    except IosimError:
        return None
    return step.total_bytes * tile_steps(facts.packed(problem), tile)
