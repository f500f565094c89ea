"""`iosim explain`: where the time of a kernel goes, term by term, and how far that is from the lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.options import ALGORITHM, AsJson, Hw, Overrides, ProblemOptions, with_options
from iosim.cli.output import print_json, print_table, warn

if TYPE_CHECKING:
    from iosim.hardware import HardwareProfile
    from iosim.problem import AttentionProblem
    from iosim.roofline import Input, Prediction, Term
    from iosim.timing import Timing

Kernels = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="NAMES",
        help="Kernel cards, as torch-flash2,cudnn-sdpa (`iosim kernels list`), or your own file [by GPU].",
        rich_help_panel=ALGORITHM,
    ),
]
Pass = Annotated[str, typer.Option("--pass", metavar="PASS", help="fwd or bwd.", rich_help_panel=ALGORITHM)]
Pause = Annotated[
    str,
    typer.Option(
        "--pause", metavar="TIME", help="Between repeated runs, at low power.", rich_help_panel=ALGORITHM
    ),
]


@with_options
def explain(
    *,
    problem: ProblemOptions,
    kernel: Kernels = None,
    pass_name: Pass = "fwd",
    pause: Pause = "70us",
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Where the time of a kernel goes: each term with formula, numbers and share, and what limits it.

    The lower bound stands apart: it has no constants but the hardware's, and no kernel beats it.
    """
    from iosim.hardware import load_profile

    gpu = load_profile(hw, overrides or ())
    found = timings(problem.problem(), kernel, gpu, pass_name=pass_name, pause=pause)
    warn([*gpu.warnings, *problem.remarks()])
    if as_json:
        out = [timing.to_dict() for timing in found]
        print_json(out[0] if len(out) == 1 else out)
        return
    for timing in found:
        _show(timing)


def timings(
    problem: AttentionProblem,
    kernel: str | None,
    gpu: HardwareProfile,
    *,
    pass_name: str = "fwd",
    pause: str = "70us",
) -> list[Timing]:
    """The timing of each kernel of a comma list, by default the one that the GPU's libraries prefer."""
    from iosim.cli.drawing import split
    from iosim.errors import UsageError
    from iosim.kernels import load_kernel
    from iosim.timing import default_kernel, time_kernel
    from iosim.units import Dimension, parse_quantity

    try:
        pause_s = float(parse_quantity(pause, Dimension.SECONDS))
    except UsageError as error:
        raise UsageError(f"--pause: {error}") from None
    names = split(kernel) if kernel is not None else [default_kernel(gpu)]
    if not names:
        raise UsageError("--kernel: no name given; write one or more, as cudnn-sdpa,torch-flash2")
    return [time_kernel(load_kernel(n), problem, gpu, passes=pass_name, pause_s=pause_s) for n in names]


def _show(timing: Timing) -> None:
    p = timing.problem
    heads = f"{p.heads}" if p.heads == p.kv_heads else f"{p.heads}:{p.kv_heads}"
    print(
        f"{timing.kernel} ({timing.kernel_class}, {timing.passes}) on {timing.profile}: "
        f"batch {p.batch}, heads {heads}, {p.seq_q} x {p.seq_k}, d {p.head_dim}, {p.mask}, {p.dtype_k}, "
        f"tiles {timing.tile or 'unknown'}"
    )
    bound = timing.bound
    print(
        f"\nlower bound {_time(bound.seconds)}, set by {bound.limit}; holds with {'; '.join(bound.conditions)}"
    )
    _terms(bound.terms, bound.seconds)
    if timing.reason:
        print(f"\nno prediction: {timing.reason}\n")
        return
    for launch in timing.launches:
        name = launch.kernel if len(timing.launches) > 1 else "prediction"
        _show_prediction(f"{name}, one run", launch.once)
        if launch.note:
            print(launch.note)
        if launch.repeated is not None:
            _show_prediction(f"{name}, many runs", launch.repeated)
    once = timing.once_s
    if once:
        print(f"\none run {_time(once)}: the lower bound is {bound.seconds / once:.1%} of it")
    for line in timing.assumed:
        print(f"assumed: {line}")
    print()


def _show_prediction(title: str, found: Prediction) -> None:
    print(
        f"\n{title} {_time(found.seconds)} ({_time(found.low_s)} to {_time(found.high_s)}), limited by {found.limit}"
        f", at {found.clock_hz / 1e9:.3f} GHz"
    )
    _terms(found.terms, found.seconds)


def _terms(terms: Sequence[Term], total_s: float) -> None:
    rows = [
        [
            f"{t.name} (hidden)" if t.hidden else t.name,
            _time(t.seconds),
            f"{t.seconds / total_s:.1%}" if total_s else "-",
            t.formula,
            ", ".join(_number(i) for i in t.inputs),
        ]
        for t in terms
        if t.seconds
    ]
    print_table(["term", "time", "share", "formula", "numbers"], rows, right=(1, 2))


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f} us" if seconds < 1e-2 else f"{seconds * 1e3:,.2f} ms"


def _number(item: Input) -> str:
    from iosim.units import format_bytes, format_rate

    if item.unit == "B":
        return f"{item.name} {format_bytes(item.value, decimal=True)}"
    if item.unit in ("B/s", "FLOP/s", "Hz", "FLOP", "op"):
        return f"{item.name} {format_rate(item.value, item.unit)}"
    if item.unit == "s":
        return f"{item.name} {item.value * 1e6:.3g} us"
    if item.unit.startswith("J/"):
        return f"{item.name} {item.value * 1e12:.3g} p{item.unit}"
    return f"{item.name} {item.value:,.4g} {item.unit}".rstrip()
