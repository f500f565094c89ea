"""`iosim validate`: measure our kernels and their peers on the GPU at hand, for `iosim audit` to hold the model to."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from iosim.cli.options import HARDWARE, OUTPUT, AsJson
from iosim.cli.output import print_json, print_table, progress_bar, warn
from iosim.errors import UsageError

WRONG = 4  # exit code when a kernel was wrong or could not be run
WORK = "Work"
SHOWN = 10

SuiteName = Annotated[
    str,
    typer.Option(
        "--suite",
        metavar="NAME",
        help="quick (a minute), record (five minutes), paper (FlashAttention-2's shapes), tiles, families, "
        "checks, or full.",
        rich_help_panel=WORK,
    ),
]
RungNames = Annotated[
    str | None,
    typer.Option("--rungs", metavar="NAMES", help="Our kernels, with commas [all].", rich_help_panel=WORK),
]
NoPeers = Annotated[
    bool, typer.Option("--no-peers", help="Leave torch's attention out.", rich_help_panel=WORK)
]
Counters = Annotated[
    bool,
    typer.Option(
        "--counters",
        help="Read hardware counters as well: run everything once more under ncu.",
        rich_help_panel=WORK,
    ),
]
Retry = Annotated[
    bool,
    typer.Option("--retry", help="Measure again what failed in an earlier run.", rich_help_panel=WORK),
]
StopAfter = Annotated[
    float | None,
    typer.Option(
        "--stop-after",
        metavar="SECONDS",
        min=0,
        help="Start nothing new after this; the same command goes on from there.",
        rich_help_panel=WORK,
    ),
]
ListOnly = Annotated[
    bool,
    typer.Option(
        "--list", help="Print what would be measured, and stop; needs no GPU.", rich_help_panel=WORK
    ),
]
Hw = Annotated[
    str | None,
    typer.Option(
        "--hw",
        "--gpu",
        metavar="NAME",
        help="The profile to compare with [the GPU's own].",
        rich_help_panel=HARDWARE,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Take another GPU's profile, or add to rows of another environment.",
        rich_help_panel=HARDWARE,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FOLDER", help="Where the measurements go, and are kept.", rich_help_panel=OUTPUT
    ),
]
NoCompare = Annotated[
    bool,
    typer.Option("--no-compare", help="Do not hold the model against the rows.", rich_help_panel=OUTPUT),
]


def validate(
    suite: SuiteName = "quick",
    rungs: RungNames = None,
    no_peers: NoPeers = False,
    counters: Counters = False,
    retry: Retry = False,
    stop_after: StopAfter = None,
    list_only: ListOnly = False,
    hw: Hw = None,
    force: Force = False,
    out: Out = Path("iosim-measurements"),
    no_compare: NoCompare = False,
    as_json: AsJson = False,
) -> None:
    """Check and time our attention kernels on this GPU, beside torch's, and hold the model against them.

    Every kernel is compared with float32 attention before it is timed. Rows are kept in FOLDER as they come: a run
    that is cut off goes on with the same command. Needs an NVIDIA GPU and pip install 'iosim[gpu]'; without them the
    exit code is 3. Exit code 4: a kernel was wrong or could not be run. See docs/validate.md.
    """
    from iosim_validation.cases import find_suite
    from iosim_validation.validate import Asked

    asked = Asked(
        suite=find_suite(suite),
        out=out,
        rungs=_names(rungs),
        peers=not no_peers,
        counters=counters,
        profile=hw,
        force=force,
        retry=retry,
        stop_after_s=stop_after,
        command=f"iosim {shlex.join(sys.argv[1:])}",
    )
    if list_only:
        _list(asked, as_json=as_json)
        return
    report = _run(asked)
    audit = None if no_compare or report.profile is None else _compare(report)
    warn(report.notes)
    if as_json:
        print_json(report.to_dict() | {"audit": audit})
    else:
        _show(report)
        _show_audit(audit)
    if report.done.failed:
        raise typer.Exit(WRONG)


def _run(asked: Any) -> Any:
    from iosim_validation import validate as side
    from iosim_validation.cupy_gpu import CupyGpu
    from iosim_validation.nvrtc import version
    from iosim_validation.rungs import RUNGS

    version()  # a missing compiler is said before anything else is done
    return side.validate(asked, CupyGpu(), RUNGS, bar=progress_bar)


def _names(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(names):
        raise UsageError(f"--rungs: empty name in {text!r}; write one or more, as flash2,decode")
    return names


def _list(asked: Any, *, as_json: bool) -> None:
    from iosim.hardware import load_profile
    from iosim_validation.rungs import RUNGS
    from iosim_validation.validate import facts_of, list_work, plan_work

    gpu = facts_of(load_profile(asked.profile or "h200-sxm"))
    items = list_work(plan_work(asked, RUNGS, gpu, torch=True))
    if as_json:
        print_json({"gpu": gpu.name, "suite": asked.suite.name, "items": items})
        return
    rows = [[i["case"], i["impl"], i["tile"], "time" if i["timed"] else "check"] for i in items]
    print_table(["case", "implementation", "tile", "work"], rows)


def _compare(report: Any) -> dict[str, Any] | None:
    """The summary of `iosim audit` on the rows; None where none can be predicted."""
    from iosim.audit import audit_file
    from iosim.workers import default_processes

    path = report.folder / "attention.csv"
    if not path.exists():
        return None
    try:
        with progress_bar("compare", 1) as progress:
            found = audit_file(path, report.profile, progress=progress, processes=default_processes())
    except UsageError as error:
        warn([str(error)])
        return None
    return {
        name: {column: s.to_dict() for column, s in columns.items() if s.n}
        for name, columns in found.by_kernel.items()
    }


def _show(report: Any) -> None:
    from iosim.units import counted

    print(f"{report.gpu}" + (f", profile {report.profile}" if report.profile else ""))
    if report.lines:
        head = ["case", "implementation", "tile", "us", "cold us", "TFLOP/s", "GB/s", "error", "flags"]
        print_table(head, [_cells(line) for line in report.lines], right=range(3, 7))
    done = report.done
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.seconds.items())
    print(f"{done.measured} measured, {done.kept} were there, {done.left} left; {report.folder}; {took}")
    for name, reason in done.failed.items():
        print(f"  {name}: {reason}")
    if report.refusals:
        print(f"{counted(len(report.refusals), 'combination')} not built for, such as:")
        for refusal in report.refusals[:SHOWN]:
            print(f"  {refusal.case}: {refusal.reason}")


def _cells(line: Any) -> list[str]:
    return [
        line.case,
        line.impl,
        line.tile,
        f"{line.median_s * 1e6:.1f}",
        f"{line.cold_s * 1e6:.1f}",
        f"{line.flop_per_s / 1e12:.1f}",
        f"{line.bytes_per_s / 1e9:.0f}",
        line.output_error,
        line.flags,
    ]


def _show_audit(audit: dict[str, Any] | None) -> None:
    if not audit:
        return
    rows = [
        [
            name,
            column,
            str(s["n"]),
            f"{s['mean_abs_error']:.2%}",
            f"{s['max_abs_error']:.2%}",
            f"{s['bias']:+.2%}",
        ]
        for name, columns in audit.items()
        for column, s in columns.items()
    ]
    if rows:
        print("\npredicted against measured; `iosim audit` has every row")
        print_table(["kernel", "column", "n", "mean", "worst", "bias"], rows, right=range(2, 6))
