"""The shipped algorithms by name, their options, and loading a program from a user's own file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from iosim.algorithms.algorithm import Algorithm, Option
from iosim.algorithms.decode import decode
from iosim.algorithms.flash1 import flash1
from iosim.algorithms.flash2 import flash2
from iosim.algorithms.linear import linear
from iosim.algorithms.masked_standard import masked_standard
from iosim.algorithms.mla import mla
from iosim.algorithms.online import online_attention
from iosim.algorithms.options import (
    BIAS,
    BLOCK_MASK,
    OFF_ON,
    PACK_GQA,
    PAGE,
    PASS,
    SPLITS,
    block_mask_conflict,
    standard_conflict,
    tile,
)
from iosim.algorithms.seed_flash import seed_flash
from iosim.algorithms.small_cache import gemm, small_cache
from iosim.algorithms.standard import standard
from iosim.errors import ProgramError, UsageError
from iosim.program.builder import ProgramFunction

__all__ = ["ALGORITHMS", "Algorithm", "Option", "find_algorithm"]

_SHIPPED = [
    Algorithm(
        name="standard",
        function=standard,
        summary="three kernels, S and P in slow memory (idealised: each matmul reads each operand once)",
        source="Dao et al. 2022, Algorithms 0 and 3",
        tiled=False,
        idealised=True,
        options={
            "softmax": Option(
                values=("fused", "naive", "safe", "online"), help="passes of the softmax over S"
            ),
            "gemm-tiles": Option(
                values=("off",), help="count the re-reads of real tiles", takes="RxC", parse=tile
            ),
            "scale-pass": Option(values=OFF_ON, help="scale S in a kernel of its own"),
            "additive-mask": Option(values=OFF_ON, help="add a mask tensor to S in a kernel of its own"),
            "dropout": Option(values=OFF_ON, help="drop entries of P in a kernel of its own"),
            "bias": BIAS,
            "pass": PASS,
        },
        conflict=standard_conflict,
    ),
    Algorithm(
        name="online_attention",
        function=online_attention,
        summary="the one-pass recurrence, a query row and a key at a time, no tiles",
        source="Milakov & Gimelshein 2018; Rabe & Staats 2021",
        tiled=False,
    ),
    Algorithm(
        name="flash1",
        function=flash1,
        summary="outer K and V, inner Q; O, m and l go through slow memory each pass",
        source="Dao et al. 2022, Algorithms 1 and 4",
        outer="k",
        options={
            "variant": Option(
                values=("literal", "skip-first-read", "fp32-between"),
                help="store and read back the initial zeros; or not; or O in fp32 between its key tiles",
            ),
            "pass": PASS,
            "block-mask": BLOCK_MASK,
        },
        conflict=block_mask_conflict,
    ),
    Algorithm(
        name="flash2",
        function=flash2,
        summary="outer Q, inner K and V; O stays on chip, one rescale at the end",
        source="Dao 2023, Algorithms 1 and 2",
        options={
            "lse": Option(values=OFF_ON, help="write the log-sum-exp, 4 bytes a row"),
            "bias": BIAS,
            "dropout": Option(values=OFF_ON, help="drop entries of P on chip, by random numbers made there"),
            "page": PAGE,
            "pass": PASS,
            "block-mask": BLOCK_MASK,
        },
        conflict=block_mask_conflict,
    ),
    Algorithm(
        name="decode",
        function=decode,
        summary="few queries, many keys: heads of a group packed into one tile, the keys split over thread blocks",
        source="Flash-Decoding (Dao, Haziza, Massa, Sizov 2023)",
        options={"splits": SPLITS, "pack-gqa": PACK_GQA, "page": PAGE},
    ),
    Algorithm(
        name="mla",
        function=mla,
        summary="absorbed latent attention: one latent row is key and value of all heads, read once a sequence",
        source="DeepSeek-V2 (2024), absorbed form",
        computes="latent attention",
        latent=True,
        options={"splits": SPLITS, "pack-gqa": PACK_GQA, "page": PAGE},
    ),
    Algorithm(
        name="seed_flash",
        function=seed_flash,
        summary="the textbook listing: outer Q, no 1/√d, saves m and l",
        source="textbook form of Dao et al. 2022 with the loops swapped",
        scaled=False,
        options={"save-stats": Option(values=("m+l", "lse", "none"), help="row statistics that are written")},
    ),
    Algorithm(
        name="small_cache",
        function=small_cache,
        summary="both matmuls blocked along d too, S and P in slow memory; for M < d²",
        source="Saha & Ye 2024 (regime M < d²); blocked matmul after Smith et al. 2017",
    ),
    Algorithm(
        name="masked_standard",
        function=masked_standard,
        summary="unfused attention that skips the matmuls of hidden tiles; S and P stay dense in slow memory",
        source="sparse attention before FlashAttention, as in Child et al. 2019 and Beltagy et al. 2020",
        idealised=True,
        options={"block-mask": BLOCK_MASK},
    ),
    Algorithm(
        name="linear",
        function=linear,
        summary="linear attention, φ(Q)(φ(K)ᵀV) with φ = elu + 1: not softmax attention, no mask",
        source="Katharopoulos et al. 2020",
        computes="linear attention",
        scaled=False,
        masks=("none",),
    ),
    Algorithm(
        name="gemm",
        function=gemm,
        summary="the matmul S = Q Kᵀ alone, against 2mnk/√M",
        source="Smith et al. 2017; Kwasniewski et al. 2019",
        computes="scores",
        scaled=False,
    ),
]

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({a.name: a for a in _SHIPPED})


def find_algorithm(name: str) -> Algorithm:
    """A shipped algorithm by name, or `path/to/file.py:function` for a user's own tile program.

    Errors: `UsageError` naming what is known; `ProgramError` for a file that cannot be read or run.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ".py" not in name:
        raise UsageError(
            f"algorithm: unknown algorithm {name!r}; known: {', '.join(ALGORITHMS)}, "
            "or a file such as ./mine.py:program"
        )
    path, _, function = name.partition(".py:")
    file = Path(f"{path}.py" if function else name)
    if not file.is_file():
        raise ProgramError(f"algorithm: {file} is not a file")
    return _load_file(file, function or "program", file.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _load_file(path: Path, function: str, changed: int) -> Algorithm:
    """Run a user's Python file and take one function from it; once for each state of the file (`changed`)."""
    spec = importlib.util.spec_from_file_location(f"iosim_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"algorithm: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"algorithm: {path}: {type(error).__name__}: {error}") from error
    program = getattr(module, function, None)
    if not callable(program):
        names = [
            n
            for n, v in vars(module).items()
            if callable(v) and getattr(v, "__module__", "") == module.__name__
        ]
        raise ProgramError(
            f"algorithm: {path} has no function {function!r}; it has: {', '.join(names) or 'none'}"
        )
    summary = (program.__doc__ or "a program of your own").strip().splitlines()[0]
    return Algorithm(
        name=path.stem, function=_guarded(program, path), summary=summary, source=path.name, user_defined=True
    )


def _guarded(program: ProgramFunction, path: Path) -> ProgramFunction:
    """Errors of a user's function become one line that names the file."""

    def guarded(p) -> None:  # type: ignore[no-untyped-def]
        try:
            program(p)
        except UsageError as error:
            raise type(error)(f"{path.name}: {error}") from error
        except (Exception, SystemExit) as error:
            raise ProgramError(f"{path.name}: {type(error).__name__}: {error}") from error

    return guarded
