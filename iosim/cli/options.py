"""The options that commands share: one name, one meaning, one default each.

A command takes whole groups of them as parameters (`problem: ProblemOptions`); `with_options` shows their fields
to typer one by one. Sizes arrive as text, so that a sweep can read the same options as axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import typer

from iosim.errors import UsageError
from iosim.problem import MAX_SIZE, AttentionProblem

if TYPE_CHECKING:
    from iosim.algorithms.registry import Algorithm
    from iosim.models import ModelShape

DEFAULT_SEQ = 4096
DEFAULTS = {"heads": "1", "head_dim": "128", "mask": "none", "dtype": "fp16"}
"""What holds where neither the command line nor a model says anything."""

PROBLEM, ALGORITHM, HARDWARE, OUTPUT = "Problem", "Algorithm", "Hardware", "Output"
_SUFFIXES = {"": 1, "k": 1024, "m": 1024**2}


def _problem(*names: str, help: str, metavar: str | None = "SIZE") -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=PROBLEM)


def algorithm_option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=ALGORITHM)


def _hardware(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=HARDWARE)


Text = str | None

Model = Annotated[
    Text,
    _problem(
        "--model",
        metavar="NAME",
        help="Fill heads, kv-heads, head-dim, window and dtype: `iosim models list`, or a config.json.",
    ),
]
Batch = Annotated[str, _problem("--batch", help="Sequences in the batch. Sizes take K and M: 8K is 8192.")]
Heads = Annotated[Text, _problem("--heads", help="Query heads [1].")]
KvHeads = Annotated[
    Text, _problem("--kv-heads", help="Key/value heads; a divisor of the query heads [heads].")
]
Seq = Annotated[Text, _problem("--seq", help=f"Queries and keys of a sequence [{DEFAULT_SEQ}].")]
SeqQ = Annotated[Text, _problem("--seq-q", help="Queries of a sequence, instead of --seq.")]
SeqK = Annotated[Text, _problem("--seq-k", help="Keys of a sequence, instead of --seq.")]
HeadDim = Annotated[Text, _problem("--head-dim", help="Elements of a query and a key of one head [128].")]
ValueDim = Annotated[Text, _problem("--value-dim", help="Elements of a value of one head [head-dim].")]
MaskText = Annotated[
    Text,
    _problem(
        "--mask",
        metavar="MASK",
        help="none, causal (bottom-right), window:W (causal, the last W keys) or prefix:P (causal, but all see the "
        "first P keys) [none].",
    ),
]
Scale = Annotated[
    float | None, _problem("--scale", metavar="NUMBER", help="Factor on the scores [1/sqrt(head-dim)].")
]
DTypeText = Annotated[
    Text,
    _problem("--dtype", metavar="DTYPE", help="Q, K, V and O: fp64 fp32 tf32 bf16 fp16 fp8 int8 [fp16]."),
]
DTypeQ = Annotated[Text, _problem("--dtype-q", metavar="DTYPE", help="Q [dtype].")]
DTypeK = Annotated[Text, _problem("--dtype-k", metavar="DTYPE", help="K [dtype].")]
DTypeV = Annotated[Text, _problem("--dtype-v", metavar="DTYPE", help="V [dtype].")]
DTypeO = Annotated[
    Text, _problem("--dtype-o", metavar="DTYPE", help="O, and S and P in slow memory [dtype].")
]
DTypeAcc = Annotated[str, _problem("--dtype-acc", metavar="DTYPE", help="The accumulators.")]

AlgorithmText = Annotated[
    str,
    algorithm_option(
        "--algorithm",
        metavar="NAMES",
        help="One or more, with commas; see `iosim algorithms list`. Your own: ./mine.py:program.",
    ),
]
Tiles = Annotated[
    str,
    algorithm_option(
        "--tiles", metavar="TILES", help="best, paper, paper-literal, or rows of Q x rows of K: 128x64."
    ),
]
Granularity = Annotated[
    str, algorithm_option("--granularity", metavar="SIZE", help="Best tiles are multiples of this.")
]
FootprintModel = Annotated[
    str,
    algorithm_option(
        "--footprint",
        metavar="MODEL",
        help="What counts against SRAM: paper (the Q, K, V, O tiles) or kernel (stages, fp32, registers).",
    ),
]
Hw = Annotated[
    str,
    _hardware("--hw", "--gpu", metavar="NAME", help="A profile (`iosim hw list`), or your own YAML file."),
]
Sram = Annotated[
    Text,
    _hardware(
        "--sram",
        metavar="SIZE",
        help="M, on chip for one thread block: 163KiB, or elements of K: 98304el [profile].",
    ),
]
Overrides = Annotated[
    list[str] | None,
    _hardware(
        "--set", metavar="KEY=VALUE", help="Override a number: memory.l2.capacity=100MiB (repeatable)."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.", rich_help_panel=OUTPUT)
]


def parse_size(option: str, text: str) -> int:
    """Read a size: a whole number from 1 to 2^40; K and M mean 1024 and 1024². Errors name the option."""
    match = re.fullmatch(r"\s*([+-]?\d[\d_]{0,29})([kKmM]?)\s*", text, flags=re.ASCII)
    size = int(match[1].rstrip("_").replace("_", "")) * _SUFFIXES[match[2].lower()] if match else 0
    if not 1 <= size <= MAX_SIZE:
        raise UsageError(
            f"--{option}: must be a whole number from 1 to 2^40, as 8192 or 8K, got {text.strip()!r}"
        )
    return size


def _maybe_size(option: str, text: str | None) -> int | None:
    return None if text is None else parse_size(option, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions:
    """What is computed, as text from the command line; None where nothing was said."""

    model: Model = None
    batch: Batch = "1"
    heads: Heads = None
    kv_heads: KvHeads = None
    seq: Seq = None
    seq_q: SeqQ = None
    seq_k: SeqK = None
    head_dim: HeadDim = None
    value_dim: ValueDim = None
    mask: MaskText = None
    scale: Scale = None
    dtype: DTypeText = None
    dtype_q: DTypeQ = None
    dtype_k: DTypeK = None
    dtype_v: DTypeV = None
    dtype_o: DTypeO = None
    dtype_acc: DTypeAcc = "fp32"

    def shape(self) -> ModelShape | None:
        """The model that was named; `UsageError` lists the known ones."""
        if self.model is None:
            return None
        from iosim.models import find_model

        return find_model(self.model)

    def remarks(self, settled: Collection[str] = ()) -> list[str]:
        """What the model leaves open or had to derive; nothing about options that are `settled` otherwise."""
        shape = self.shape()
        return [] if shape is None else shape.remarks({*self._given(), *settled})

    def _given(self) -> dict[str, Any]:
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def as_run_by(self, algorithms: Sequence[Algorithm]) -> Self:
        """For `mla` alone a model with latent attention stands for its cached row, not for its expanded heads."""
        shape = self.shape()
        if shape is None or [a.name for a in algorithms] != ["mla"]:
            return self
        return replace(self, **{**shape.absorbed(), **self._given()})

    def completed(self) -> Self:
        """The options with what was given first, then what the model says, then the defaults."""
        shape, given = self.shape(), self._given()
        filled = {} if shape is None else shape.fills(set(given))
        return replace(self, **{**DEFAULTS, **filled, **given})

    def problem(self) -> AttentionProblem:
        """The problem; `UsageError` names the option that is wrong."""
        full = self.completed()
        seq, seq_q, seq_k = (
            _maybe_size(name, text)
            for name, text in (("seq", self.seq), ("seq-q", self.seq_q), ("seq-k", self.seq_k))
        )
        if seq is None and seq_q is None and seq_k is None:
            seq = DEFAULT_SEQ
        return AttentionProblem.of(
            seq=seq,
            seq_q=seq_q,
            seq_k=seq_k,
            batch=parse_size("batch", full.batch),
            heads=parse_size("heads", full.heads or ""),
            kv_heads=_maybe_size("kv-heads", full.kv_heads),
            head_dim=parse_size("head-dim", full.head_dim or ""),
            value_dim=_maybe_size("value-dim", full.value_dim),
            mask=full.mask or "",
            scale=full.scale,
            dtype=full.dtype or "",
            dtype_q=full.dtype_q,
            dtype_k=full.dtype_k,
            dtype_v=full.dtype_v,
            dtype_o=full.dtype_o,
            dtype_acc=full.dtype_acc,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TileOptions:
    """Block sizes, and what counts against the on-chip memory."""

    tiles: Tiles = "best"
    granularity: Granularity = "16"
    footprint: FootprintModel = "paper"

    def step(self) -> int:
        """The granularity as a number."""
        return parse_size("granularity", self.granularity)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareOptions:
    """One GPU, what to change in it, and M."""

    hw: Hw = "h100-sxm"
    sram: Sram = None
    overrides: Overrides = None

    def sram_bytes(self, problem: AttentionProblem, warnings: list[str] | None = None) -> int | None:
        """M in bytes, None for the profile's; elements are as wide as K's."""
        from iosim.units import parse_sram

        if self.sram is None:
            return None
        size = parse_sram(self.sram, problem.dtype_k.itemsize, warnings)
        p = problem
        row = p.head_dim * (p.dtype_q.itemsize + p.dtype_k.itemsize) + p.value_dim * p.dtype_v.itemsize
        if warnings is not None and size < row:
            warnings.append(
                f"sram: {size:,} B is less than one row each of Q, K and V ({row:,} B): no fused tile fits"
            )
        return size


def split_algorithms(text: str) -> list[Algorithm]:
    """The algorithms of a comma list; `UsageError` for an unknown, empty or repeated name."""
    from iosim.algorithms.registry import find_algorithm

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"--algorithm: empty name in {text!r}; write one or more, as standard,flash2")
    if repeated := [name for index, name in enumerate(names) if name in names[:index]]:
        raise UsageError(f"--algorithm: {repeated[0]} is given twice")
    return [find_algorithm(name) for name in names]


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of the option groups among `function`'s parameters, and put the groups together again."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    flat: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            flat += _fields_as_parameters(kind)
        else:
            flat.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind))

    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{item.name: values.pop(item.name) for item in fields(group)})
        function(**values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {p.name: p.annotation for p in flat}
    command.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    return command


def _fields_as_parameters(group: Any) -> list[Parameter]:
    hints: Mapping[str, Any] = get_type_hints(group, include_extras=True)
    return [
        Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name])
        for item in fields(group)
    ]
