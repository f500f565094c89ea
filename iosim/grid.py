"""The axes of a sweep: what is combined with what, and how a person writes a range."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from iosim import tuning
from iosim.analysis import DEFAULT_GRANULARITY, DEFAULT_PROFILE
from iosim.errors import UsageError
from iosim.interpret.footprint import MODELS

MAX_AXIS = 1_000_000
"""Most values of one axis: a longer one is a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The axes of a sweep; every combination is one point, the last axis fastest.

    `seq` sets seq_q and seq_k together; None follows the other (kv_heads heads, value_dim head_dim). `sram_bytes`
    None is the profile's per-block limit. `dtypes` and `options` hold for all points.
    `levels` simulates the L2 of every point, with `level_policies` as fields of `Policies`.
    `seq_lens`: every point is this ragged batch; then `seq` and `batch` are those of the padded alternative, or `seq_q`
    the queries of every sequence and `seq_k` the longest keys.
    """

    algorithm: Sequence[str] = ("flash2",)
    profile: Sequence[str] = (DEFAULT_PROFILE,)
    mask: Sequence[str] = ("none",)
    batch: Sequence[int] = (1,)
    heads: Sequence[int] = (1,)
    kv_heads: Sequence[int | None] = (None,)
    head_dim: Sequence[int] = (128,)
    value_dim: Sequence[int | None] = (None,)
    seq: Sequence[int] | None = None
    seq_q: Sequence[int] | None = None
    seq_k: Sequence[int] | None = None
    sram_bytes: Sequence[int | None] = (None,)
    tiles: Sequence[str] = ("best",)
    granularity: int = DEFAULT_GRANULARITY
    footprint_model: str = "paper"
    dtypes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    levels: bool = False
    level_policies: Mapping[str, Any] = field(default_factory=dict)
    seq_lens: Sequence[int] = ()

    def __post_init__(self) -> None:
        if self.seq is None and (self.seq_q is None or self.seq_k is None):
            raise UsageError("seq: give seq, or both seq_q and seq_k")
        if self.seq is not None and (self.seq_q is not None or self.seq_k is not None):
            raise UsageError("seq: give either seq, or seq_q and seq_k, not both")
        empty = [name for name, values in self.axes().items() if not values]
        if empty:
            raise UsageError(f"{empty[0]}: the grid is empty; give at least one value")
        if self.footprint_model not in MODELS:
            raise UsageError(
                f"footprint: unknown model {self.footprint_model!r}; allowed: {', '.join(MODELS)}"
            )
        tuning.step(self.granularity, self.footprint_model)

    def best_splits(self, algorithm: str) -> bool:
        """Whether each point of this algorithm looks for its own number of splits."""
        return self.options.get(algorithm, {}).get("splits") == "best"

    def axes(self) -> dict[str, Sequence[Any]]:
        """The axes in their order, outermost first."""
        lengths = (
            {"seq": self.seq}
            if self.seq is not None
            else {"seq_q": self.seq_q or (), "seq_k": self.seq_k or ()}
        )
        names = (
            "algorithm",
            "profile",
            "mask",
            "tiles",
            "batch",
            "heads",
            "kv_heads",
            "head_dim",
            "value_dim",
        )
        return {n: getattr(self, n) for n in names} | lengths | {"sram_bytes": self.sram_bytes}

    def __len__(self) -> int:
        size = 1
        for values in self.axes().values():
            size *= len(values)
        return size

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination as a dictionary of axis values."""
        axes = self.axes()
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The grid as plain values, for a sidecar or a fingerprint."""
        return asdict(self)


def parse_axis(name: str, text: str, parse: Callable[[str], int]) -> tuple[int, ...]:
    """Values of one axis: a list `64,128`, a range `512:131072:x2` (times 2) or `16:256:16` (plus 16).

    `parse` reads one value with its unit. Items may be mixed: `1,64:512:x2`. The end is included when it is hit.
    Errors: `UsageError` naming the axis.
    """
    values: list[int] = []
    for item in text.split(","):
        parts = item.strip().split(":")
        if len(parts) == 1 and parts[0]:
            values.append(parse(parts[0]))
        elif len(parts) == 3:
            values += _range(name, item, parse(parts[0]), parse(parts[1]), parts[2].strip(), parse)
        else:
            raise UsageError(
                f"{name}: cannot read {item!r}; write a value, a list 64,128 or a range 512:4096:x2"
            )
    if len(values) > MAX_AXIS:
        raise UsageError(f"{name}: {len(values)} values on one axis; at most {MAX_AXIS}")
    return tuple(dict.fromkeys(values))


def _range(name: str, item: str, start: int, stop: int, step: str, parse: Callable[[str], int]) -> list[int]:
    if start > stop:
        raise UsageError(f"{name}: the range {item!r} is empty: {start} is past {stop}")
    times = step[:1] in ("x", "×", "*")
    try:
        factor = float(step[1:]) if times else parse(step)
    except ValueError:
        raise UsageError(f"{name}: cannot read the step {step!r} of {item!r}; write x2 or 16") from None
    if not (1.0 < factor < float("inf") if times else factor >= 1):
        raise UsageError(f"{name}: the step of {item!r} must be more than {'x1' if times else '0'}")
    if not times:
        count = (stop - start) // int(factor) + 1
        if count > MAX_AXIS:
            raise UsageError(f"{name}: {count} values on one axis; at most {MAX_AXIS}")
        return list(range(start, stop + 1, int(factor)))
    values: list[int] = []
    exact = float(start)
    while round(exact) <= stop and len(values) <= MAX_AXIS:
        values.append(round(exact))
        exact *= factor
    return values
