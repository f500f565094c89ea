"""The rates of one GPU that time needs: peaks for the lower bound, measured rates for the prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iosim.errors import ProfileError
from iosim.hardware import HardwareProfile

FMA_FLOPS = 2
SCHEDULERS = 4
"""Warp schedulers of an SM, each issuing for its own warps (CUDA C++ Programming Guide, compute capability 7 to 10)."""
WARP_LANES = 32
ISSUE_LANES = SCHEDULERS * WARP_LANES
"""Lane instructions an SM issues in a clock, FP32 and integer together: a warp instruction a scheduler."""
READ_SHARE = 0.967
COPY_SHARE = 0.883
"""Of the printed memory bandwidth, on an H200 (its profile: 4.64 and 4.24 of 4.8 TB/s). Taken for GPUs that nobody
measured; on six other GPUs reads reach 0.92 to 0.97 and copies 0.86 to 0.90."""
START_S = 5.5e-6
"""Start of a kernel on an H200 (its profile); taken for GPUs that nobody measured."""

BUSY_W, JOULE_PER_FLOP, JOULE_PER_HBM_BYTE = 460.0, 0.91e-12, 66e-12
"""Power of an H200 (its profile); taken for other products of the same die with the same limit."""
TENSOR_CLOCK_SHARE, FULL_CLOCK_FLOPS = 0.907, 1827.0
"""Clock of one launch on an H200 (its profile): of the highest, with the tensor cores in use; and the FLOP a clock and
SM from which on even the highest could not be kept. Taken for other Hoppers, at dense 16-bit rates."""
SAME_DIE = ("hopper", 132, 700.0)
"""Architecture, SMs and board limit in W of those products."""
HBM_LATENCY_CLK, L2_LATENCY_CLK = 684.0, 303.0
EXCHANGE_CLK, BLOCK_TURN_CLK = 55.5, 456.0
STORE_ALONE_BYTES_PER_CLK, STORE_ALL_BYTES_PER_CLK = 29.1, 12.5
L2_READ_BYTES_PER_CLK = 36.0
"""Small things that a few kernels wait for, of an H200: until HBM or the L2 answers; a store to shared memory, barrier
and another warp's load; from the end of a block to the start of the next in its place; what one SM stores as
accumulators lie, alone and with all others; what it reads of the L2 with all others. Micro-benchmarks of our own, none
of them a time of a kernel (validation/measurements/h200/measured_profile.yaml). Taken for GPUs that nobody measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What sets the clock of long runs: board limit, draw at the highest clock without matmuls, and energies."""

    limit_w: float
    busy_w: float
    joule_per_flop: float
    joule_per_hbm_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One GPU computing in one dtype.

    `tensor_flops_per_clk_sm`: of the units that run the dtype, dense. `vector_lanes`: FP32 lanes of an SM.
    `hbm_peak_*` is printed; `hbm_read_*` and `hbm_write_*` are measured, or assumed where `assumed` says so.
    """

    name: str
    architecture: str
    sms: int
    clock_hz: float
    unit: str
    tensor_flops_per_clk_sm: float
    special_ops_per_clk_sm: float
    vector_lanes: float
    shared_bytes_per_clk_sm: float
    l2_bytes: int
    hbm_peak_bytes_per_s: float
    hbm_read_bytes_per_s: float
    hbm_write_bytes_per_s: float
    start_s: float
    power: Power | None
    assumed: tuple[str, ...]
    tensor_clock_hz: float | None = None
    full_clock_flops: float | None = None
    hbm_latency_clk: float = HBM_LATENCY_CLK
    l2_latency_clk: float = L2_LATENCY_CLK
    exchange_clk: float = EXCHANGE_CLK
    block_turn_clk: float = BLOCK_TURN_CLK
    store_alone_bytes_per_clk: float = STORE_ALONE_BYTES_PER_CLK
    store_all_bytes_per_clk: float = STORE_ALL_BYTES_PER_CLK
    l2_bytes_per_clk_sm: float = L2_READ_BYTES_PER_CLK

    @classmethod
    def of(cls, profile: HardwareProfile, dtype: str) -> Machine:
        """The rates of a profile for a dtype. `ProfileError` where a peak is missing."""
        unit = profile.compute_unit(dtype)
        assumed: list[str] = []
        read, write = _bandwidths(profile, assumed)
        if any(q.is_what_if for q in profile.quantities.values()):
            assumed.append(
                "what-if: constants of kernels and every number not given stay those of the real GPU"
            )
        clocks = _clocks(profile, assumed)
        if (
            "full_clock_flops" in clocks
        ):  # of 16-bit values; half as wide ones are twice as many for the same power
            clocks["full_clock_flops"] *= (
                unit.peak_flops_per_s / profile.compute_unit("fp16").peak_flops_per_s
            )
        vector = profile.number("compute.vector.fp32") / (FMA_FLOPS * profile.sm_count * profile.clock_hz)
        return cls(
            name=profile.name,
            architecture=profile.architecture,
            sms=profile.sm_count,
            clock_hz=profile.clock_hz,
            unit=unit.name,
            tensor_flops_per_clk_sm=_per_clock(unit.peak_flops_per_s / (profile.sm_count * unit.clock_hz)),
            special_ops_per_clk_sm=profile.special_ops_per_clk_sm,
            vector_lanes=_per_clock(vector),
            shared_bytes_per_clk_sm=profile.sram_bandwidth_bytes_per_clk_sm,
            l2_bytes=profile.l2_capacity_bytes,
            hbm_peak_bytes_per_s=profile.hbm_bandwidth_bytes_per_s,
            hbm_read_bytes_per_s=read,
            hbm_write_bytes_per_s=write,
            start_s=_start(profile, assumed),
            power=_power(profile, assumed),
            assumed=tuple(assumed),
            **clocks,
            **_small(profile),
        )

    def at_work(self, flops_per_clk_sm: float) -> Machine:
        """The same at the clock of one launch whose tensor cores do so much while a tile is at work.

        With tensor cores in use the clock stays below the highest, and past a rate it gives way as the cube root. The
        vector lanes keep the highest.
        """
        if self.unit != "tensor":
            return self
        clock = min(self.clock_hz, self.tensor_clock_hz or self.clock_hz)
        if self.full_clock_flops and flops_per_clk_sm > 0:
            clock = min(clock, self.clock_hz * (self.full_clock_flops / flops_per_clk_sm) ** (1 / 3))
        return self.at(clock)

    def at(self, clock_hz: float) -> Machine:
        """The same at a known clock of the SMs; what lies behind them keeps its own, and its rates in seconds."""
        slower = self.clock_hz / clock_hz
        return replace(
            self,
            clock_hz=clock_hz,
            tensor_clock_hz=None,
            full_clock_flops=None,
            hbm_latency_clk=self.hbm_latency_clk / slower,
            l2_latency_clk=self.l2_latency_clk / slower,
            store_all_bytes_per_clk=self.store_all_bytes_per_clk * slower,
            l2_bytes_per_clk_sm=self.l2_bytes_per_clk_sm * slower,
        )

    def store_bytes_per_clk(self, busy_sms: float) -> float:
        """Of one SM, as accumulators lie: between one alone and all together, on a straight line."""
        along = (min(busy_sms, self.sms) - 1) / max(1, self.sms - 1) if busy_sms > 1 else 0.0
        return self.store_alone_bytes_per_clk + along * (
            self.store_all_bytes_per_clk - self.store_alone_bytes_per_clk
        )

    @property
    def tensor_flops_per_s(self) -> float:
        """Dense peak at the highest clock: FLOP a clock and SM, times SMs, times clock."""
        return self.tensor_flops_per_clk_sm * self.sms * self.clock_hz

    @property
    def special_ops_per_s(self) -> float:
        """Special-function results at the highest clock."""
        return self.special_ops_per_clk_sm * self.sms * self.clock_hz

    @property
    def vector_flops_per_s(self) -> float:
        """FP32 peak at the highest clock."""
        return FMA_FLOPS * self.vector_lanes * self.sms * self.clock_hz


def _clocks(profile: HardwareProfile, assumed: list[str]) -> dict[str, float]:
    """What the tensor cores leave of the highest clock, where somebody has looked; each number by itself."""
    keys = {
        "tensor_clock_hz": "measured.tensor_clock",
        "full_clock_flops": "measured.full_clock_flops_per_sm",
    }
    if _whatif(profile, "compute.clocks.boost") and not _whatif(profile, keys["tensor_clock_hz"]):
        del keys["tensor_clock_hz"]  # measured below another highest clock than the one given
    found = {name: float(profile.number(key)) for name, key in keys.items() if profile.has(key)}
    if profile.architecture != SAME_DIE[0]:
        if not found:
            assumed.append("clock under matmuls: the highest, nobody has looked")
        return found
    if len(found) < 2:
        assumed.append("clock under matmuls: the same share of the highest as on an H200")
    return {
        "tensor_clock_hz": TENSOR_CLOCK_SHARE * profile.clock_hz,
        "full_clock_flops": FULL_CLOCK_FLOPS,
    } | found


def _small(profile: HardwareProfile) -> dict[str, float]:
    """Latencies and rates of one SM that the profile knows; the others stay those of an H200."""
    keys = {
        "hbm_latency_clk": "hbm_latency",
        "l2_latency_clk": "l2_latency",
        "exchange_clk": "exchange_latency",
        "block_turn_clk": "block_turnover",
        "store_alone_bytes_per_clk": "store_bandwidth_per_sm",
        "store_all_bytes_per_clk": "store_bandwidth_per_sm_all",
    }
    found = {
        name: float(profile.number(f"measured.{key}"))
        for name, key in keys.items()
        if profile.has(f"measured.{key}")
    }
    if profile.has("measured.l2_read_bandwidth"):
        rate = float(profile.number("measured.l2_read_bandwidth"))
        found["l2_bytes_per_clk_sm"] = rate / profile.sm_count / profile.clock_hz
    return found


def _per_clock(value: float) -> float:
    """A rate a clock comes in whole warps of units; the print is rounded (989.4 TFLOP/s is 4096 FLOP a clock)."""
    whole = round(value / WARP_LANES) * WARP_LANES
    return float(whole) if whole and abs(value / whole - 1) < 0.005 else value


def _whatif(profile: HardwareProfile, key: str) -> bool:
    return profile.has(key) and profile.quantity(key).is_what_if


def _bandwidths(profile: HardwareProfile, assumed: list[str]) -> tuple[float, float]:
    """Read and write bandwidth; a copy reads and writes half of its bytes each, so 2/copy = 1/read + 1/write.

    What was measured says nothing about another printed bandwidth that a what-if gives.
    """
    peak = profile.hbm_bandwidth_bytes_per_s
    other = _whatif(profile, "memory.hbm.bandwidth")
    found = []
    for name, share in (("hbm_read_bandwidth", READ_SHARE), ("hbm_copy_bandwidth", COPY_SHARE)):
        key = f"measured.{name}"
        if profile.has(key) and (not other or _whatif(profile, key)):
            found.append(float(profile.number(key)))
        else:
            found.append(share * peak)
            assumed.append(f"{name.replace('_', ' ')}: {share} of the printed bandwidth, as on an H200")
    read, copy = found
    if 2 * read <= copy:
        raise ProfileError(
            f"{profile.name}: measured.hbm_copy_bandwidth: must be below twice the read bandwidth"
        )
    return read, 1 / (2 / copy - 1 / read)


def _start(profile: HardwareProfile, assumed: list[str]) -> float:
    if profile.has("measured.kernel_start"):
        return float(profile.number("measured.kernel_start"))
    assumed.append(f"kernel start: {START_S * 1e6:g} us, as on an H200")
    return START_S


def _power(profile: HardwareProfile, assumed: list[str]) -> Power | None:
    keys = ("busy_power", "energy_per_flop", "energy_per_hbm_byte")
    limit = float(profile.number("compute.board_power")) if profile.has("compute.board_power") else 0.0
    if limit and all(profile.has(f"measured.{key}") for key in keys):
        busy, flop, byte = (float(profile.number(f"measured.{key}")) for key in keys)
    elif (profile.architecture, profile.sm_count, limit) == SAME_DIE:
        busy, flop, byte = BUSY_W, JOULE_PER_FLOP, JOULE_PER_HBM_BYTE
        assumed.append("power of long runs: as on an H200, the same die and limit")
    else:
        assumed.append("clock of long runs: the highest, the power of this GPU is not known")
        return None
    return Power(limit_w=limit, busy_w=busy, joule_per_flop=flop, joule_per_hbm_byte=byte)
