"""The micro-benchmarks as launches: which kernel, how large a grid, and how much work it does. Pure data, no GPU.

Arrays by name: `data` and `other` (`DATA_BYTES` each), `cycles` (one u64 a block), `sink` (never written).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from iosim_validation.launch import Build, GpuFacts, Launch, Pointer

DATA_BYTES = 4 << 30
VECTOR_BYTES = 16
MEMORY, COMPUTE, WGMMA = "measure_memory.cu", "measure_compute.cu", "measure_wgmma.cu"
THREADS = 1024
CHAINS = 8  # independent results of a thread, as in the kernel
DEPTH = 4  # loads of a thread in flight, as in the kernel
TILE_VECTORS = DEPTH * THREADS
STREAM_BLOCKS_PER_SM = 2
STEPS = 4096
LONGER = 8  # for what takes too little time beside its launch

# Sign and mantissa bits that a hash fills, and the exponent of one, of two 16-bit numbers.
SPREAD = {
    "fp16": (("NOISE_BITS", "0x83FF83FFu"), ("ONE_BITS", "0x3C003C00u")),
    "bf16": (("NOISE_BITS", "0x807F807Fu"), ("ONE_BITS", "0x3F803F80u")),
}
PTX_TYPE = {"fp16": "f16", "bf16": "bf16"}
MMA_FLOP = 2 * 16 * 8 * 16
WGMMA_STEP_FLOP = 2 * 64 * 256 * 64
WGMMA_GROUPS = 2
WGMMA_SHARED_BYTES = (64 * WGMMA_GROUPS + 256) * 128

Way = Literal["read", "write", "copy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """One launch and its work. `bytes_moved`: through the level it measures; `operations`: one SM's, of the unit."""

    launch: Launch
    bytes_moved: int = 0
    operations_per_sm: int = 0


def stream_micro(gpu: GpuFacts, way: Way, footprint_bytes: int) -> Micro:
    """Read, write or copy a large footprint once, tiles dealt to the blocks in turn."""
    blocks = gpu.sms * STREAM_BLOCKS_PER_SM
    count = footprint_bytes // (VECTOR_BYTES * blocks) // TILE_VECTORS * TILE_VECTORS
    sizes = (np.uint64(count), np.uint64(TILE_VECTORS), np.uint64(blocks * TILE_VECTORS))
    data, other = Pointer("data"), Pointer("other")
    arguments = {
        "read": (data, *sizes, np.int32(1), Pointer("sink")),
        "write": (data, *sizes, np.uint32(12345)),
        "copy": (data, other, *sizes),
    }
    build = _build(gpu, MEMORY, f"{way}_tiles")
    moved = blocks * count * VECTOR_BYTES * (2 if way == "copy" else 1)
    return Micro(launch=Launch(build=build, grid=(blocks, 1, 1), arguments=arguments[way]), bytes_moved=moved)


def reuse_micro(gpu: GpuFacts, footprint_bytes: int, *, passes: int, in_step: bool) -> Micro:
    """Read a footprint again and again: every block all of it, in step, or each block its own share.

    One block an SM: of two that read the same bytes, the second could find them in L1.
    """
    blocks = gpu.sms
    count = footprint_bytes // (VECTOR_BYTES * (1 if in_step else blocks))
    sizes = (np.uint64(count), np.uint64(0 if in_step else count), np.uint64(TILE_VECTORS))
    arguments = (Pointer("data"), *sizes, np.int32(passes), Pointer("sink"))
    build = _build(gpu, MEMORY, "read_tiles")
    launch = Launch(build=build, grid=(blocks, 1, 1), arguments=arguments)
    return Micro(launch=launch, bytes_moved=blocks * count * VECTOR_BYTES * passes)


def shared_micro(gpu: GpuFacts) -> Micro:
    """16-byte loads of shared memory by 1024 threads an SM."""
    build = _build(gpu, MEMORY, "read_shared", shared_bytes=THREADS * VECTOR_BYTES)
    read = STEPS * DEPTH * THREADS * VECTOR_BYTES
    return Micro(launch=_on_each_sm(gpu, build, STEPS), bytes_moved=read)


def vector_micro(gpu: GpuFacts, entry: Literal["fma_rate", "exp_rate"]) -> Micro:
    """FP32 multiply-adds (two operations each) or exponentials."""
    done = STEPS * CHAINS * THREADS * (2 if entry == "fma_rate" else 1)
    return Micro(launch=_on_each_sm(gpu, _compute(gpu, entry, "fp16"), STEPS), operations_per_sm=done)


def mma_micro(gpu: GpuFacts, dtype: str) -> Micro:
    """mma.sync m16n8k16 with fp32 accumulators by 32 warps an SM."""
    done = STEPS * CHAINS * THREADS // 32 * MMA_FLOP
    return Micro(launch=_on_each_sm(gpu, _compute(gpu, "mma_rate", dtype), STEPS), operations_per_sm=done)


def few_mma_micro(gpu: GpuFacts, dtype: str) -> Micro:
    """The same by one warp an SM: tensor cores in use, and far from what the board allows."""
    micro = mma_micro(gpu, dtype)
    build = replace(micro.launch.build, threads=32)
    steps = LONGER * STEPS
    return Micro(launch=_on_each_sm(gpu, build, steps), operations_per_sm=steps * CHAINS * MMA_FLOP)


def wgmma_micro(gpu: GpuFacts, dtype: str) -> Micro | None:
    """wgmma m64n256k16 by two warpgroups an SM; None where the GPU has no wgmma."""
    if gpu.architecture != "sm_90a":
        return None
    build = Build(
        rung="measure",
        entry="wgmma_rate",
        architecture=gpu.architecture,
        sources=(WGMMA,),
        defines=SPREAD[dtype],
        prelude=_wgmma_macro(PTX_TYPE[dtype]),
        threads=128 * WGMMA_GROUPS,
        shared_bytes=WGMMA_SHARED_BYTES,
    )
    return Micro(
        launch=_on_each_sm(gpu, build, STEPS), operations_per_sm=STEPS * WGMMA_GROUPS * WGMMA_STEP_FLOP
    )


def matrix_micro(gpu: GpuFacts, dtype: str) -> Micro:
    """The fastest matmul that the GPU has."""
    return wgmma_micro(gpu, dtype) or mma_micro(gpu, dtype)


def spin_launch(gpu: GpuFacts, clocks: int) -> Launch:
    """A kernel that waits, so that the launches behind it queue up."""
    return Launch(build=_build(gpu, MEMORY, "spin"), grid=(1, 1, 1), arguments=(np.uint64(clocks),))


def empty_launch(gpu: GpuFacts) -> Launch:
    """A kernel that does nothing."""
    return Launch(build=_build(gpu, MEMORY, "nothing"), grid=(1, 1, 1), arguments=())


def builds(gpu: GpuFacts) -> tuple[Build, ...]:
    """Everything that a measurement compiles."""
    micros = [
        *(stream_micro(gpu, way, DATA_BYTES) for way in ("read", "write", "copy")),
        shared_micro(gpu),
        vector_micro(gpu, "fma_rate"),
        vector_micro(gpu, "exp_rate"),
        *(mma_micro(gpu, dtype) for dtype in SPREAD),
        *(micro for dtype in SPREAD if (micro := wgmma_micro(gpu, dtype))),
    ]
    launches = [micro.launch for micro in micros]
    return tuple(
        dict.fromkeys(launch.build for launch in (*launches, spin_launch(gpu, 0), empty_launch(gpu)))
    )


def _build(gpu: GpuFacts, source: str, entry: str, *, shared_bytes: int = 0) -> Build:
    return Build(
        rung="measure",
        entry=entry,
        architecture=gpu.architecture,
        sources=(source,),
        defines=(),
        threads=1 if entry in ("spin", "nothing") else THREADS,
        shared_bytes=shared_bytes,
        registers_at_most=64,
    )


def _compute(gpu: GpuFacts, entry: str, dtype: str) -> Build:
    return Build(
        rung="measure",
        entry=entry,
        architecture=gpu.architecture,
        sources=(COMPUTE,),
        defines=(("T16", f'"{PTX_TYPE[dtype]}"'), *SPREAD[dtype]),
        threads=THREADS,
        shared_bytes=0,
        registers_at_most=64,
    )


def _on_each_sm(gpu: GpuFacts, build: Build, steps: int) -> Launch:
    arguments = (np.int32(steps), Pointer("cycles"), Pointer("sink"))
    return Launch(build=build, grid=(gpu.sms, 1, 1), arguments=arguments)


def _wgmma_macro(ptx_type: str) -> str:
    """WGMMA(d, a, b): d[128] += A B for one m64n256k16, both operands by descriptor."""
    accumulators = ", ".join(f"%{i}" for i in range(128))
    outputs = ", ".join(f'"+f"((d)[{i}])' for i in range(128))
    instruction = f"wgmma.mma_async.sync.aligned.m64n256k16.f32.{ptx_type}.{ptx_type}"
    return (
        "typedef unsigned int u32;\ntypedef unsigned long long u64;\n"
        f'#define WGMMA(d, a, b) asm volatile("{instruction} {{{accumulators}}}, %128, %129, 1, 1, 1, 0, 0;" '
        f': {outputs} : "l"(a), "l"(b))\n'
    )
