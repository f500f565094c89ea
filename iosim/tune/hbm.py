"""HBM bytes of a design: by a rule for all of them, by the simulated hierarchy for the few that matter."""

from __future__ import annotations

from dataclasses import replace

from iosim.algorithms.registry import find_algorithm
from iosim.levels import SKEW, simulate_levels
from iosim.memory.hierarchy import Policies
from iosim.roofline.lower_bound import compulsory_bytes
from iosim.tune.cost import Workload, blocks_of
from iosim.tune.design import Design

WHOLE_WAVES = 3
"""Waves of blocks that a simulation follows; further heads repeat them."""


def hbm_estimate(load: Workload, design: Design, blocks_per_sm: int) -> tuple[int, int, bool]:
    """(read, written, compulsory): K and V once if those of the heads in flight fit half of the L2, else once a wave.

    docs/hierarchy.md: each of two partitions holds a copy of what all SMs read. An estimate; `simulate` gives more.
    """
    p = load.problem
    read, written = compulsory_bytes(p, load.passes)
    gpu = load.gpu
    if load.backward or load.packed or not gpu.has("memory.l2.capacity"):
        return read, written, True
    tiles = -(-p.seq_q // design.tile.rows)
    slots = gpu.sm_count * blocks_per_sm
    in_flight = min(p.batch * p.heads, -(-slots // tiles) + (1 if slots % tiles else 0))
    kv_head = p.visible_keys * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    kv_heads = -(-in_flight // p.group_size)
    if kv_heads * kv_head <= gpu.l2_capacity_bytes // gpu.l2_partitions:
        return read, written, True
    waves = -(-tiles * p.batch * p.heads // slots)
    again = max(0, waves * min(kv_heads, -(-slots // tiles)) - p.batch * p.kv_heads)
    return read + again * kv_head, written, False


def simulated_hbm(load: Workload, design: Design, blocks_per_sm: int) -> tuple[int, int]:
    """(read, written) at HBM by the simulated hierarchy: WHOLE_WAVES of heads, and the rest like them.

    Errors: `ProfileError` for an unknown L2.
    """
    p = load.problem
    slots = load.gpu.sm_count * blocks_per_sm
    heads = p.kv_heads * p.batch if load.packed else p.heads * p.batch
    a_head = max(1, blocks_of(load, design) // heads)
    groups = -(-WHOLE_WAVES * slots // a_head)
    kept, scale = load, 1.0
    if groups < heads:
        size = 1 if load.packed else p.group_size
        kv = max(1, -(-groups // size))
        one = replace(p, batch=1, kv_heads=kv, heads=kv * p.group_size)
        kept, scale = replace(load, problem=one), (p.batch * p.kv_heads) / kv
    algorithm = find_algorithm("decode" if load.packed else "flash2")
    given = {"pack-gqa": "on", "splits": str(design.splits)} if load.packed else {}
    policies = Policies(
        sms=load.gpu.sm_count,
        blocks_per_sm=blocks_per_sm,
        launch=design.order,
        kv_walk=design.walk,
        skew=SKEW,
    )
    found = simulate_levels(
        algorithm, kept.problem, algorithm.resolve(given), design.tile, load.gpu, policies
    )
    return round(found.hbm_read_bytes * scale), round(found.hbm_write_bytes * scale)
