"""Micro-benchmarks of what a block waits for: small terms of docs/time.md that no bandwidth and no peak explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iosim_validation.launch import Build, GpuFacts, Launch, Pointer
from iosim_validation.microbenchmarks import Micro

SOURCE = "measure_waits.cu"
HOPS = 2048
SWEEP_L2S = 3  # the sweep reads as many times the L2
SECTOR_BYTES = 16  # a vector that the sweep touches; a load brings at least 32 bytes
STEPS, HAND_OVERS = 4096, 2
STORE_TILES, STORE_PASSES, TILE_BYTES = 8, 8, 128 * 64 * 4
TURN_BLOCKS_PER_SM, TURN_RESIDENTS = 1000, 2
TURN_THREADS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One figure: its key, the launch, and what its clocks (or `bytes` a clock) are divided by."""

    key: str
    title: str
    unit: str
    note: str
    micro: Micro
    times: int = 1


def waits(gpu: GpuFacts) -> tuple[Wait, ...]:
    """Everything that is counted in the clocks of an SM."""
    swept = SWEEP_L2S * gpu.l2_bytes // SECTOR_BYTES
    stored = STORE_TILES * STORE_PASSES * TILE_BYTES
    return (
        Wait(
            key="hbm_latency",
            title="latency of HBM",
            unit="clk",
            note="dependent loads of lines that are not in the L2",
            micro=Micro(launch=_chase(gpu, swept)),
            times=HOPS,
        ),
        Wait(
            key="l2_latency",
            title="latency of the L2",
            unit="clk",
            note="the same lines again",
            micro=Micro(launch=_chase(gpu, 0)),
            times=HOPS,
        ),
        Wait(
            key="exchange_latency",
            title="store, barrier, load",
            unit="clk",
            note="4 warps: a store to shared memory, a barrier, a load of another warp's",
            micro=Micro(
                launch=Launch(
                    build=_build(gpu, "exchange", 128),
                    grid=(gpu.sms, 1, 1),
                    arguments=(np.int32(STEPS), Pointer("cycles"), Pointer("sink")),
                )
            ),
            times=HAND_OVERS * STEPS,
        ),
        Wait(
            key="store_bandwidth_per_sm",
            title="stores of one SM",
            unit="B/clk",
            note="8 bytes a lane, as accumulators lie; one SM alone",
            micro=Micro(launch=_store(gpu, 1), bytes_moved=stored),
        ),
        Wait(
            key="store_bandwidth_per_sm_all",
            title="stores of each SM",
            unit="B/clk",
            note="the same by all SMs at once",
            micro=Micro(launch=_store(gpu, gpu.sms), bytes_moved=stored),
        ),
    )


def turn_micro(gpu: GpuFacts) -> Micro:
    """Blocks one after the other in TURN_RESIDENTS places of an SM; half of an SM's shared memory keeps others out."""
    build = _build(
        gpu, "turn", TURN_THREADS, shared_bytes=gpu.shared_bytes_per_block // TURN_RESIDENTS // 1024 * 1024
    )
    grid = (gpu.sms * TURN_BLOCKS_PER_SM, 1, 1)
    return Micro(launch=Launch(build=build, grid=grid, arguments=(Pointer("sink"),)))


def turn_clocks(seconds: float, clock_hz: float) -> float:
    """From the end of a block to the start of the next in its place, of the time of `turn_micro`."""
    return seconds * clock_hz * TURN_RESIDENTS / TURN_BLOCKS_PER_SM


def wait_builds(gpu: GpuFacts) -> tuple[Build, ...]:
    """Everything that these compile."""
    launches = [*(w.micro.launch for w in waits(gpu)), turn_micro(gpu).launch]
    return tuple(dict.fromkeys(launch.build for launch in launches))


def _chase(gpu: GpuFacts, swept: int) -> Launch:
    arguments = (
        Pointer("data"),
        np.int32(HOPS),
        np.uint64(swept),
        np.uint32(0),
        Pointer("cycles"),
        Pointer("sink"),
    )
    return Launch(build=_build(gpu, "chase", 1024), grid=(1, 1, 1), arguments=arguments)


def _store(gpu: GpuFacts, blocks: int) -> Launch:
    arguments = (Pointer("data"), np.int32(STORE_TILES), np.int32(STORE_PASSES), Pointer("cycles"))
    return Launch(build=_build(gpu, "store_pairs", 256), grid=(blocks, 1, 1), arguments=arguments)


def _build(gpu: GpuFacts, entry: str, threads: int, *, shared_bytes: int = 0) -> Build:
    return Build(
        rung="measure",
        entry=entry,
        architecture=gpu.architecture,
        sources=(SOURCE,),
        defines=(),
        threads=threads,
        shared_bytes=shared_bytes,
        registers_at_most=64,
    )
