"""A real GPU, through CuPy: its facts, machine code loaded, plans made ready and launched.

bf16 arrays are CuPy arrays of uint16 that hold the bits: CuPy has no type for them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from iosim.errors import DeviceError, RunError
from iosim_validation.gpu import Arrays
from iosim_validation.launch import Argument, Build, GpuFacts, Launch, Plan, Pointer, Stride, TensorMap
from iosim_validation.nvrtc import cached_cubin

NEEDED = "CuPy is not there; install it with: pip install 'iosim[gpu]'"
# Of cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
MAP_TYPES = {"float16": 6, "uint16": 9}
SWIZZLE_128B, PROMOTE_256B = 3, 3
MAP_BYTES, MAP_COLUMNS = 128, 64


def cupy() -> Any:
    """The CuPy module, with a usable GPU behind it. Errors: `DeviceError` says what is missing, and how to get it."""
    try:
        import cupy as module
    except ImportError as error:
        raise DeviceError(NEEDED) from error
    try:
        module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"CuPy finds no usable NVIDIA GPU: {error}; see `nvidia-smi`") from error
    return module


@lru_cache(maxsize=1)
def gpu_facts() -> GpuFacts:
    """What plans need to know of GPU 0. Hopper's own instructions need the architecture with an `a`."""
    found = cupy().cuda.runtime.getDeviceProperties(0)
    number = 10 * found["major"] + found["minor"]
    return GpuFacts(
        name=found["name"].decode(),
        architecture=f"sm_{number}a" if number == 90 else f"sm_{number}",
        sms=found["multiProcessorCount"],
        shared_bytes_per_block=found["sharedMemPerBlockOptin"],
        l2_bytes=found["l2CacheSize"],
    )


@lru_cache(maxsize=512)
def load(build: Build) -> Any:
    """The kernel of a build, ready to launch; compiled once a machine and source text."""
    path, _ = cached_cubin(build.source(), build.architecture, build.entry)
    kernel = cupy().RawModule(path=str(path)).get_function(build.entry)
    # Always opted into: at exactly 48 KiB, static shared memory included, a launch fails without it.
    kernel.max_dynamic_shared_size_bytes = build.shared_bytes
    return kernel


def make_ready(plan: Plan, arrays: Arrays) -> Callable[[], None]:
    """A function that launches the plan on CuPy's current stream; arguments and scratch are made here, once.

    Two of them may run on two streams at once: each has scratch of its own.
    """
    module = cupy()
    own = {
        name: module.asarray(s.data) if s.data is not None else module.empty(s.shape, s.dtype)
        for name, s in plan.scratch.items()
    }
    known = {**arrays, **own}
    ready = [
        (
            load(launch.build),
            launch.grid,
            (launch.build.threads, 1, 1),
            _arguments(launch, known),
            launch.build.shared_bytes,
        )
        for launch in plan.launches
    ]

    def run() -> None:
        for kernel, grid, block, arguments, shared in ready:
            kernel(grid, block, arguments, shared_mem=shared)

    # The addresses in `arguments` are numbers; what they point to must live as long as they do.
    run.keeps = known  # type: ignore[attr-defined]
    return run


def _arguments(launch: Launch, arrays: Arrays) -> tuple[Any, ...]:
    strided = {a.array for a in launch.arguments if isinstance(a, Stride)}
    for argument in launch.arguments:
        # A kernel that is not told strides would read other elements without a word.
        if isinstance(argument, Pointer) and argument.array not in strided:
            array = arrays[argument.array]
            if not array.flags.c_contiguous:
                raise RunError(
                    f"{launch.build.rung}: {argument.array} must be contiguous, got strides {array.strides}"
                )
    return tuple(_argument(a, arrays) for a in launch.arguments)


def _argument(argument: Argument, arrays: Arrays) -> Any:
    if isinstance(argument, Stride):
        array = arrays[argument.array]
        return np.int64(array.strides[argument.axis] // array.dtype.itemsize)
    if isinstance(argument, Pointer):
        return np.uintp(arrays[argument.array].data.ptr)
    if isinstance(argument, TensorMap):
        return encode_map(arrays[argument.array], argument)
    return argument


def encode_map(array: Any, wanted: TensorMap) -> np.ndarray:
    """The driver's 128-byte tensor map of a [batch, heads, rows, columns] array with any strides but the last.

    Rows past the end of one head are then read as zeros and not written. Errors: `RunError` when the driver refuses.
    """
    batch, heads, rows, columns = array.shape
    item = array.dtype.itemsize
    if array.strides[3] != item or array.data.ptr % 16 or any(s % 16 for s in array.strides[:3]):
        raise RunError(f"{wanted.array}: the copy engine needs contiguous rows and strides of 16 bytes")
    raw = np.zeros(2 * MAP_BYTES, np.uint8)
    aligned = raw[-raw.ctypes.data % MAP_BYTES :][:MAP_BYTES]  # the driver refuses other addresses
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(aligned.ctypes.data),
        MAP_TYPES[array.dtype.name],
        4,
        ctypes.c_void_p(array.data.ptr),
        (u64 * 4)(columns, rows, heads, batch),
        (u64 * 3)(array.strides[2], array.strides[1], array.strides[0]),
        (u32 * 4)(MAP_COLUMNS, wanted.box_rows, 1, 1),
        (u32 * 4)(1, 1, 1, 1),
        0,
        SWIZZLE_128B,
        PROMOTE_256B,
        0,
    )
    if status:
        raise RunError(f"{wanted.array}: cuTensorMapEncodeTiled failed with {status}")
    return aligned.view("V128")
