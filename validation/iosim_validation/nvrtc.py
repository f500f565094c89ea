"""CUDA C++ text -> machine code, through NVRTC: the same way on a GPU machine and on one without a driver.

NVRTC is called directly rather than through CuPy, because CuPy asks for a device before it compiles, and names the
architecture itself (it would say sm_90 where Hopper's own instructions need sm_90a).
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Any

from iosim.errors import DeviceError, RunError
from iosim_validation.whole_file import written_whole

OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--ptxas-options=--warn-on-spills")
NEEDED = "NVRTC is not there; install it with: pip install 'iosim[gpu]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What ptxas says of one kernel. `notes`: its C75xx performance notes (serialised wgmma and the like)."""

    registers_per_thread: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """Machine code of one source text, and the resources of each kernel in it by name."""

    code: bytes
    resources: dict[str, Resources]
    log: str


def compile_cubin(source: str, architecture: str, name: str) -> Cubin:
    """Compile for one architecture, such as `sm_90a`. Errors: `RunError` with the compiler's own words."""
    nvrtc = _binding()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, None, None))
    options = [option.encode() for option in (f"-arch={architecture}", *OPTIONS)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    text = b" " * _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    nvrtc.nvrtcGetProgramLog(program, text)
    log = text.decode(errors="replace").strip("\0 \n")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RunError(f"{name} does not compile for {architecture}:\n{log}")
    code = b" " * _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return Cubin(code=code, resources=read_log(log), log=log)


def cached_cubin(source: str, architecture: str, name: str) -> tuple[Path, Cubin]:
    """The same, kept as a file: the path of the machine code, for a loader that wants one."""
    key = hashlib.sha256("\0".join((source, architecture, *OPTIONS, version())).encode()).hexdigest()[:24]
    path = cache_folder() / f"{name}-{architecture}-{key}.cubin"
    facts = path.with_suffix(".json")
    if path.exists() and facts.exists():
        kept = loads(facts.read_text())
        resources = {k: Resources(**{**v, "notes": tuple(v["notes"])}) for k, v in kept["resources"].items()}
        return path, Cubin(code=path.read_bytes(), resources=resources, log=kept["log"])
    made = compile_cubin(source, architecture, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_bytes(made.code)
    described = {"resources": {k: asdict(v) for k, v in made.resources.items()}, "log": made.log}
    with written_whole(facts) as part:
        part.write_text(dumps(described))
    return path, made


def cache_folder() -> Path:
    """Where machine code is kept: `$IOSIM_CACHE_DIR`, else the user's cache folder."""
    if own := os.environ.get("IOSIM_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iosim" / "cubin"


@lru_cache(maxsize=1)
def version() -> str:
    """NVRTC's version, such as `13.0`."""
    nvrtc = _binding()
    status, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}" if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else "unknown"


def read_log(log: str) -> dict[str, Resources]:
    """The resources of every kernel that the log of a compilation names."""
    found: dict[str, Resources] = {}
    starts = list(re.finditer(r"Compiling entry function '(\w+)'", log))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        part = log[start.end() : following.start() if following else len(log)]
        found[start[1]] = Resources(
            registers_per_thread=_number(r"Used (\d+) registers", part),
            spill_store_bytes=_number(r"(\d+) bytes spill stores", part),
            spill_load_bytes=_number(r"(\d+) bytes spill loads", part),
            static_shared_bytes=_number(r"(\d+) bytes smem", part),
            notes=tuple(sorted(set(re.findall(r"\((C75\d\d)\)", log)))),
        )
    return found


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _binding() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise DeviceError(NEEDED) from error
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # the binding is there, the library is not
        raise DeviceError(NEEDED) from error
    return nvrtc


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RunError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0]
