"""What is measured of a case: one implementation with one tile, as a plan of ours or a peer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from iosim.block_mask import pattern
from iosim.errors import UsageError
from iosim.kernels import kernels_by_measurement
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.cases import Case, by_name
from iosim_validation.gpu import Arrays, Gpu, Job
from iosim_validation.launch import Build, GpuFacts, Plan
from iosim_validation.peers import CUDNN, PEERS, UNFUSED, UNFUSED_KERNELS, does, unfused_bytes
from iosim_validation.rung import Rung

OURS = "iosim_"
DECODE_QUERIES = 8  # below it cuDNN launches another tile than that of its kernel card


class Key(NamedTuple):
    """What tells measurements apart. `tile`: as `128x64`, empty where unknown."""

    case: str
    impl: str
    tile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One measurement to make. `plan` and `rung` are None for a peer."""

    case: Case
    impl: str
    tile: TileShape | None
    rung: Rung | None = None
    plan: Plan | None = None

    @property
    def key(self) -> Key:
        """Its key."""
        return Key(self.case.name, self.impl, str(self.tile or ""))

    @property
    def builds(self) -> tuple[Build, ...]:
        """What has to be compiled for it."""
        return tuple(launch.build for launch in self.plan.launches) if self.plan else ()

    @property
    def code(self) -> str:
        """A fingerprint of its kernels' texts, constants and grids; empty for a peer."""
        if self.plan is None:
            return ""
        digest = sha256()
        for launch in self.plan.launches:
            build = launch.build
            digest.update(repr((build.architecture, build.threads, build.shared_bytes, launch.grid)).encode())
            digest.update(build.source().encode())
        return digest.hexdigest()[:12]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its launches, as far as they are known before it runs."""
        if self.rung is not None and self.plan is not None:
            return self.rung.kernels[: len(self.plan.launches)]
        return UNFUSED_KERNELS if self.impl == UNFUSED else ("flash_fwd",)

    def job(self, gpu: Gpu, arrays: Arrays) -> Job | None:
        """It, ready to run on these arrays; None where a peer is not there."""
        if self.plan is not None:
            return gpu.job(self.plan, arrays)
        return gpu.peer(self.impl, self.case.problem, arrays)

    def scratch_bytes(self) -> int:
        """Memory that it takes beside q, k, v, o and lse."""
        if self.plan is None:
            return unfused_bytes(self.case.problem) if self.impl == UNFUSED else 0
        return sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in self.plan.scratch.values())

    def mask(self) -> np.ndarray | None:
        """Its block mask, and a causal one with it, as booleans [seq_q, seq_k]; None without a block mask."""
        if self.case.block_mask is None or self.tile is None:
            return None
        p, tile = self.case.problem, self.tile
        blocks = pattern(self.case.block_mask, -(-p.seq_q // tile.rows), -(-p.seq_k // tile.cols))
        wide = np.repeat(np.repeat(blocks, tile.rows, axis=0), tile.cols, axis=1)
        seen = np.ascontiguousarray(wide[: p.seq_q, : p.seq_k])
        return np.tril(seen, p.key_offset) if p.mask.kind == "causal" else seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A measurement that cannot be made, and why."""

    case: str
    impl: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Everything to measure, the items of one attention together, and what was refused before any launch."""

    items: tuple[tuple[Item, ...], ...]
    refusals: tuple[Refusal, ...]

    @property
    def all_items(self) -> tuple[Item, ...]:
        """All items in order."""
        return tuple(item for group in self.items for item in group)

    @property
    def builds(self) -> tuple[Build, ...]:
        """What has to be compiled, each once."""
        return tuple(dict.fromkeys(build for item in self.all_items for build in item.builds))


def find_work(
    cases: Iterable[Case], rungs: Mapping[str, Rung], gpu: GpuFacts, *, peers: Sequence[str] = PEERS
) -> Work:
    """The items of some cases, every key once; no GPU is touched."""
    groups, refusals = [], []
    for same in by_name(cases).values():
        found: dict[Key, Item] = {}
        for case in same:
            for answer in (*_ours(case, rungs, gpu), *_peers(case, peers)):
                if isinstance(answer, Refusal):
                    refusals.append(answer)
                else:
                    found.setdefault(answer.key, answer)
        if found:
            groups.append(tuple(found.values()))
    return Work(items=tuple(groups), refusals=tuple(dict.fromkeys(refusals)))


def tensor_bytes(problem: AttentionProblem) -> int:
    """Bytes of q, k, v, o and lse."""
    p = problem
    rows, keys = p.batch * p.heads * p.seq_q, p.batch * p.kv_heads * p.seq_k
    return (
        rows * (p.head_dim * p.dtype_q.itemsize + p.value_dim * p.dtype_o.itemsize + 4)
        + keys * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    )  # fmt: skip


def _ours(case: Case, rungs: Mapping[str, Rung], gpu: GpuFacts) -> Iterator[Item | Refusal]:
    for name, plain in rungs.items():
        rung = plain.masked(case.block_mask) if case.block_mask else plain
        if rung is None or not case.takes(name):
            continue
        tiles: tuple[TileShape | None, ...] = rung.tiles(case.problem, gpu)
        for tile in (tiles if case.every_tile else tiles[:1]) or (None,):
            try:
                plan = rung.plan(case.problem, gpu, tile)
            except UsageError as error:
                yield Refusal(case=case.name, impl=OURS + name, reason=str(error))
            else:
                yield Item(case=case, impl=OURS + name, tile=tile, rung=rung, plan=plan)


def _peers(case: Case, peers: Sequence[str]) -> Iterator[Item]:
    for name in peers if case.peers else ():
        if does(name, case.problem):
            yield Item(case=case, impl=name, tile=_peer_tile(name, case.problem))


def _peer_tile(name: str, problem: AttentionProblem) -> TileShape | None:
    facts = kernels_by_measurement().get(name)
    other_tile = name == CUDNN and problem.seq_q < DECODE_QUERIES
    if facts is None or name == UNFUSED or other_tile:
        return None
    return facts.tile(problem.head_dim)
