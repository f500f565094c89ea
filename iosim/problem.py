"""What is computed: the shape, masks and dtypes of one attention. Frozen, validated, without hardware."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from iosim.errors import ProblemError

MAX_SIZE = 2**40
"""Largest accepted size of one axis; beyond it is a typing error, not an attention."""


@dataclass(frozen=True, slots=True)
class DType:
    """A storage type: its name and its size in bytes."""

    name: str
    itemsize: int

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def parse(name: str | DType) -> DType:
        """Look a dtype up by name; `ProblemError` lists what is known (never a fallback)."""
        if isinstance(name, DType):
            return name
        try:
            return DTYPES[name.strip().lower()]
        except (KeyError, AttributeError):
            raise ProblemError(f"dtype: unknown dtype {name!r}; known: {', '.join(DTYPES)}") from None


DTYPES: dict[str, DType] = {
    name: DType(name, size)
    for name, size in {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}.items()
}
"""tf32 is stored as four bytes; fp8 stands for both e4m3 and e5m2."""


MASK_KINDS = ("none", "causal", "window", "prefix")


@dataclass(frozen=True, slots=True)
class Mask:
    """Which (query, key) pairs are computed.

    `none`: all. `causal`: bottom-right aligned, query row r sees keys up to r + seq_k − seq_q.
    `window:w`: causal, and of those only the last w keys (a query sees itself and the w − 1 before it).
    `prefix:p`: causal, and the first p keys for every query (prefix language models).
    """

    kind: str = "none"
    window: int | None = None
    prefix: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in MASK_KINDS:
            raise ProblemError(f"mask: unknown mask {self.kind!r}; allowed: none, causal, window:W, prefix:P")
        if self.kind == "window":
            if self.window is None:
                raise ProblemError("mask: a window needs its width, as in window:1024")
            _check_size("mask window", self.window)
        elif self.window is not None:
            raise ProblemError(f"mask: {self.kind} takes no width")
        if self.kind == "prefix":
            if self.prefix is None:
                raise ProblemError("mask: a prefix needs its length, as in prefix:512")
            _check_size("mask prefix", self.prefix)
        elif self.prefix is not None:
            raise ProblemError(f"mask: {self.kind} takes no prefix")

    @staticmethod
    def parse(text: str | Mask) -> Mask:
        """Read `none`, `causal`, `window:1024` or `prefix:512`."""
        if isinstance(text, Mask):
            return text
        word = text.strip().lower()
        if word in ("none", "causal"):
            return Mask(word)
        match = re.fullmatch(r"(window|prefix):([0-9]{1,40})", word)
        if not match:
            raise ProblemError(
                f"mask: cannot read {text!r}; allowed: none, causal, window:W with W >= 1, prefix:P with P >= 1"
            )
        return (
            Mask("window", window=int(match[2]))
            if match[1] == "window"
            else Mask("prefix", prefix=int(match[2]))
        )

    @property
    def is_causal(self) -> bool:
        """True for every mask but none: keys to the right of a query are hidden, but for a prefix."""
        return self.kind != "none"

    def __str__(self) -> str:
        width = {"window": f":{self.window}", "prefix": f":{self.prefix}"}.get(self.kind, "")
        return f"{self.kind}{width}"


def _check_size(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProblemError(f"{name}: must be a whole number, got {value!r}")
    if not 1 <= value <= MAX_SIZE:
        raise ProblemError(f"{name}: must be between 1 and 2^40, got {value}")


_FP16 = DTYPES["fp16"]
_FP32 = DTYPES["fp32"]
SIZE_FIELDS = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "value_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionProblem:
    """One attention: softmax(scale · Q Kᵀ + mask) V for every batch entry and head.

    Shapes: Q [batch, heads, seq_q, head_dim], K [batch, kv_heads, seq_k, head_dim],
    V [batch, kv_heads, seq_k, value_dim], O [batch, heads, seq_q, value_dim].
    The head dimension is an input and is never derived from a hidden size. `scale` None is 1/√head_dim.
    Use `AttentionProblem.of` for the short form with defaults and dtype names.
    """

    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    seq_q: int
    seq_k: int
    head_dim: int
    value_dim: int
    mask: Mask = field(default_factory=Mask)
    scale: float | None = None
    dtype_q: DType = _FP16
    dtype_k: DType = _FP16
    dtype_v: DType = _FP16
    dtype_o: DType = _FP16
    dtype_acc: DType = _FP32

    def __post_init__(self) -> None:
        for name in SIZE_FIELDS:
            _check_size(name, getattr(self, name))
        if self.heads % self.kv_heads:
            raise ProblemError(
                f"heads: must be a multiple of kv_heads, got heads={self.heads} and kv_heads={self.kv_heads}"
            )
        if self.scale is not None and not (isinstance(self.scale, int | float) and math.isfinite(self.scale)):
            raise ProblemError(f"scale: must be a finite number, got {self.scale!r}")

    @staticmethod
    def of(
        *,
        seq: int | None = None,
        seq_q: int | None = None,
        seq_k: int | None = None,
        head_dim: int,
        value_dim: int | None = None,
        batch: int = 1,
        heads: int = 1,
        kv_heads: int | None = None,
        mask: str | Mask = "none",
        scale: float | None = None,
        dtype: str | DType = "fp16",
        dtype_q: str | DType | None = None,
        dtype_k: str | DType | None = None,
        dtype_v: str | DType | None = None,
        dtype_o: str | DType | None = None,
        dtype_acc: str | DType = "fp32",
    ) -> AttentionProblem:
        """Build a problem from the short form of the command line.

        `seq` sets seq_q and seq_k; kv_heads defaults to heads, value_dim to head_dim, each dtype to `dtype`.
        """
        if seq is not None and (seq_q is not None or seq_k is not None):
            raise ProblemError("seq: give either seq, or seq_q and seq_k, not both")
        seq_q = seq if seq_q is None else seq_q
        seq_k = seq if seq_k is None else seq_k
        if seq_q is None or seq_k is None:
            raise ProblemError("seq: give seq, or both seq_q and seq_k")
        return AttentionProblem(
            batch=batch,
            heads=heads,
            kv_heads=heads if kv_heads is None else kv_heads,
            seq_q=seq_q,
            seq_k=seq_k,
            head_dim=head_dim,
            value_dim=head_dim if value_dim is None else value_dim,
            mask=Mask.parse(mask),
            scale=scale,
            dtype_q=DType.parse(dtype if dtype_q is None else dtype_q),
            dtype_k=DType.parse(dtype if dtype_k is None else dtype_k),
            dtype_v=DType.parse(dtype if dtype_v is None else dtype_v),
            dtype_o=DType.parse(dtype if dtype_o is None else dtype_o),
            dtype_acc=DType.parse(dtype_acc),
        )

    @property
    def softmax_scale(self) -> float:
        """The factor on Q Kᵀ: `scale`, or 1/√head_dim."""
        return self.scale if self.scale is not None else 1.0 / math.sqrt(self.head_dim)

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def key_offset(self) -> int:
        """seq_k − seq_q: query row r stands at key r + key_offset (bottom-right alignment)."""
        return self.seq_k - self.seq_q

    @property
    def visible_queries(self) -> int:
        """Query rows of one head that see at least one key."""
        everyone = self.mask.kind in ("none", "prefix")
        return self.seq_q if everyone else min(self.seq_q, self.seq_k)

    @property
    def visible_keys(self) -> int:
        """Keys of one head that at least one query row sees."""
        if self.mask.window is None:
            return self.seq_k
        return min(self.seq_k, self.visible_queries + self.mask.window - 1)

    @property
    def pairs(self) -> int:
        """Unmasked (query, key) pairs of one head."""
        if not self.mask.is_causal:
            return self.seq_q * self.seq_k
        first = max(0, self.key_offset)  # keys before the first visible query's own
        rows = min(self.seq_q, self.seq_k)
        triangle = rows * first + rows * (rows + 1) // 2
        if self.mask.prefix is not None:
            return triangle + self._prefix_pairs(min(self.mask.prefix, self.seq_k))
        if self.mask.window is None:
            return triangle
        # each row sees min(first + t + 1, window) keys; take off what reaches further back than the window
        beyond = max(0, first + rows - self.mask.window)
        start = max(0, first - self.mask.window)
        return triangle - (beyond * (beyond + 1) - start * (start + 1)) // 2

    def _prefix_pairs(self, prefix: int) -> int:
        """Pairs that a prefix adds to the triangle: prefix − t for a row that sees t < prefix keys without it."""
        blind = max(0, self.seq_q - self.seq_k)
        low, high = max(1, self.key_offset + 1), prefix - 1  # what the other rows see, one more each
        many = max(0, high - low + 1)
        return blind * prefix + many * prefix - (low + high) * many // 2

    @property
    def useful_flops(self) -> int:
        """Matmul flops of the unmasked pairs of all heads: 2 (head_dim + value_dim) each, an FMA being 2."""
        return 2 * (self.head_dim + self.value_dim) * self.pairs * self.heads * self.batch

    def padded(self, multiple: int) -> AttentionProblem:
        """The problem as a kernel's matmuls see it: head_dim and value_dim rounded up to `multiple`; same scale."""
        _check_size("padding", multiple)
        return replace(
            self,
            head_dim=-(-self.head_dim // multiple) * multiple,
            value_dim=-(-self.value_dim // multiple) * multiple,
            scale=self.softmax_scale,
        )

    def packed_heads(self) -> AttentionProblem:
        """A single query's heads as the rows of one tile a kv-head, as decode kernels run it; others as they are.

        The one query sees every key, so a causal mask falls away; a window stays as it is, unpacked.
        """
        if self.seq_q != 1 or self.group_size == 1 or self.mask.window is not None:
            return self
        return replace(self, heads=self.kv_heads, seq_q=self.group_size, mask=Mask())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: sizes as ints, mask and dtypes by name."""
        out: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            out[item.name] = str(value) if isinstance(value, Mask | DType) else value
        out["softmax_scale"] = self.softmax_scale
        return out

    def _repr_html_(self) -> str:
        """The tensors as a small table, in a notebook."""
        from iosim.display import html_table
        from iosim.units import format_bytes

        tensors = (
            ("Q", self.heads, self.seq_q, self.head_dim, self.dtype_q),
            ("K", self.kv_heads, self.seq_k, self.head_dim, self.dtype_k),
            ("V", self.kv_heads, self.seq_k, self.value_dim, self.dtype_v),
            ("O", self.heads, self.seq_q, self.value_dim, self.dtype_o),
        )
        rows = []
        for name, heads, seq, width, dtype in tensors:
            size = self.batch * heads * seq * width * dtype.itemsize
            shape = f"{self.batch} × {heads} × {seq:,} × {width}"
            rows.append([name, shape, str(dtype), f"{size:,} B", format_bytes(size)])
        seen = self.pairs / (self.seq_q * self.seq_k)
        notes = [
            f"mask {self.mask}: {self.pairs:,} pairs a head, {seen:.1%} of all",
            f"scale {self.softmax_scale:.4g}; useful flops {self.useful_flops:,}",
        ]
        headers = ("tensor", "batch × heads × rows × columns", "dtype", "bytes", "")
        return html_table("Attention", headers, rows, right=(1, 3, 4), notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """A tile of `rows` rows of Q by `cols` rows of K (Br × Bc)."""

    rows: int
    cols: int

    def __post_init__(self) -> None:
        _check_size("tile rows", self.rows)
        _check_size("tile cols", self.cols)

    @staticmethod
    def parse(text: str) -> TileShape:
        """Read `128x64`: 128 rows of Q by 64 rows of K."""
        match = re.fullmatch(r"([0-9]{1,40})[x×]([0-9]{1,40})", text.strip().lower())
        if not match:
            raise ProblemError(f"tiles: cannot read {text!r}; write rows x cols, as in 128x64")
        return TileShape(rows=int(match[1]), cols=int(match[2]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"
