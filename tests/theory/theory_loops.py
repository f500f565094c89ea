"""Loop counters written apart from the closed forms: they look at a boolean mask, pair by pair."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from iosim.problem import AttentionProblem, TileShape


@dataclass
class Tally:
    """Bytes read and written, by tensor."""

    read: Counter[str] = field(default_factory=Counter)
    write: Counter[str] = field(default_factory=Counter)

    def loads(self, tensor: str, size: int) -> None:
        self.read[tensor] += size

    def stores(self, tensor: str, size: int) -> None:
        self.write[tensor] += size

    def result(self) -> tuple[dict[str, int], dict[str, int]]:
        return ({k: v for k, v in self.read.items() if v}, {k: v for k, v in self.write.items() if v})


def sees(p: AttentionProblem, row: int, key: int) -> bool:
    if p.mask.kind == "none":
        return True
    if p.mask.prefix is not None and key < p.mask.prefix:
        return True
    own = row + p.seq_k - p.seq_q
    if p.mask.window is not None and own - key >= p.mask.window:
        return False
    return key <= own


def spans(length: int, tile: int) -> list[range]:
    return [range(a, min(a + tile, length)) for a in range(0, length, tile)]


def visible(p: AttentionProblem, rows: range, keys: range) -> bool:
    return any(sees(p, r, c) for r in rows for c in keys)


def heads(p: AttentionProblem) -> range:
    return range(p.batch * p.heads)


def outer_q(p: AttentionProblem, tiles: TileShape, saved: tuple[str, ...]) -> Tally:
    t = Tally()
    for _ in heads(p):
        for rows in spans(p.seq_q, tiles.rows):
            t.loads("Q", len(rows) * p.head_dim * p.dtype_q.itemsize)
            for keys in spans(p.seq_k, tiles.cols):
                if visible(p, rows, keys):
                    t.loads("K", len(keys) * p.head_dim * p.dtype_k.itemsize)
                    t.loads("V", len(keys) * p.value_dim * p.dtype_v.itemsize)
            t.stores("O", len(rows) * p.value_dim * p.dtype_o.itemsize)
            for name in saved:
                t.stores(name, 4 * len(rows))
    return t


def flash1(p: AttentionProblem, tiles: TileShape, *, literal: bool) -> Tally:
    t = Tally()
    row_tiles = spans(p.seq_q, tiles.rows)

    def move(action: str, rows: range) -> None:
        for name, size in (("O", p.value_dim * p.dtype_o.itemsize), ("L", 4), ("M", 4)):
            getattr(t, action)(name, len(rows) * size)

    for _ in heads(p):
        touched: set[range] = set(row_tiles) if literal else set()
        if literal:
            for rows in row_tiles:
                move("stores", rows)
        for keys in spans(p.seq_k, tiles.cols):
            visitors = [rows for rows in row_tiles if visible(p, rows, keys)]
            if visitors:
                t.loads("K", len(keys) * p.head_dim * p.dtype_k.itemsize)
                t.loads("V", len(keys) * p.value_dim * p.dtype_v.itemsize)
            for rows in visitors:
                t.loads("Q", len(rows) * p.head_dim * p.dtype_q.itemsize)
                if rows in touched:
                    move("loads", rows)
                touched.add(rows)
                move("stores", rows)
        for rows in row_tiles:
            if rows not in touched:
                move("stores", rows)
    return t


def standard(p: AttentionProblem, options: dict[str, str]) -> Tally:
    t = Tally()
    s_o = p.dtype_o.itemsize
    square = p.seq_q * p.seq_k
    bm, bn = p.seq_q, max(p.seq_k, p.value_dim)
    if options.get("gemm-tiles", "off") != "off":
        bm, bn = (int(x) for x in options["gemm-tiles"].split("x"))
    reads_of_s = {"fused": 1, "naive": 2, "safe": 3, "online": 2}[options.get("softmax", "fused")]
    for _ in heads(p):
        for rows in spans(p.seq_q, bm):
            for keys in spans(p.seq_k, bn):
                t.loads("Q", len(rows) * p.head_dim * p.dtype_q.itemsize)
                t.loads("K", len(keys) * p.head_dim * p.dtype_k.itemsize)
                t.stores("S", len(rows) * len(keys) * s_o)
        for name in ("scale-pass", "additive-mask"):
            if options.get(name) == "on":
                t.loads("S", square * s_o)
                t.stores("S", square * s_o)
        if options.get("additive-mask") == "on":
            t.loads("MASK", square * s_o)
        for _row in range(p.seq_q):
            for _pass in range(reads_of_s):
                t.loads("S", p.seq_k * s_o)
            t.stores("P", p.seq_k * s_o)
        if options.get("dropout") == "on":
            t.loads("P", square * s_o)
            t.stores("P", square * s_o)
            t.stores("DROPOUT", square)
        for rows in spans(p.seq_q, bm):
            for columns in spans(p.value_dim, bn):
                t.loads("P", len(rows) * p.seq_k * s_o)
                t.loads("V", p.seq_k * len(columns) * p.dtype_v.itemsize)
                t.stores("O", len(rows) * len(columns) * s_o)
    return t


def small_cache(p: AttentionProblem, tiles: TileShape) -> Tally:
    t = Tally()
    s_o = p.dtype_o.itemsize
    for _ in heads(p):
        for rows in spans(p.seq_q, tiles.rows):
            for keys in spans(p.seq_k, tiles.cols):
                if not visible(p, rows, keys):
                    continue
                for _k in range(p.head_dim):
                    t.loads("Q", len(rows) * p.dtype_q.itemsize)
                    t.loads("K", len(keys) * p.dtype_k.itemsize)
                t.stores("S", len(rows) * len(keys) * s_o)
                for _pass in range(2):
                    t.loads("S", len(rows) * len(keys) * s_o)
                t.stores("P", len(rows) * len(keys) * s_o)
            for columns in spans(p.value_dim, tiles.cols):
                for key in range(p.seq_k):
                    if visible(p, rows, range(key, key + 1)):
                        t.loads("P", len(rows) * s_o)
                        t.loads("V", len(columns) * p.dtype_v.itemsize)
                t.stores("O", len(rows) * len(columns) * s_o)
    return t


def gemm(p: AttentionProblem, tiles: TileShape) -> Tally:
    t = Tally()
    for _ in heads(p):
        for rows in spans(p.seq_q, tiles.rows):
            for keys in spans(p.seq_k, tiles.cols):
                for _k in range(p.head_dim):
                    t.loads("Q", len(rows) * p.dtype_q.itemsize)
                    t.loads("K", len(keys) * p.dtype_k.itemsize)
                t.stores("S", len(rows) * len(keys) * p.dtype_o.itemsize)
    return t
