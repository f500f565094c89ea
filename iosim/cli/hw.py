"""`iosim hw`: look at hardware profiles. Parses, calls iosim.hardware, shows; JSON goes to stdout alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.options import AsJson, Overrides
from iosim.cli.output import print_json, print_table, warn
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.hardware import HardwareProfile, Quantity

hw_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Hardware profiles: every number with its unit and source.",
)

NameArgument = Annotated[
    str, typer.Argument(help="A profile's name, the name the driver reports, or a YAML file.")
]

LIST_COLUMNS = {
    "SMs": "compute.sm_count",
    "SRAM/block": "memory.sram.per_block",
    "L2": "memory.l2.capacity",
    "HBM": "memory.hbm.capacity",
    "bandwidth": "memory.hbm.bandwidth",
    "fp16 dense": "compute.tensor_dense.fp16",
}


@hw_app.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles that come with iosim."""
    from iosim.hardware import load_profile, profile_names

    profiles = [load_profile(name) for name in profile_names()]
    if as_json:
        print_json([_summary(profile) for profile in profiles])
        return
    rows = [
        [
            p.name,
            *(_value(p.quantities.get(key)) for key in LIST_COLUMNS.values()),
            "yes" if p.counter_data else "no",
        ]
        for p in profiles
    ]
    print_table(["name", *LIST_COLUMNS, "counters"], rows)
    note = "counters: L2 and HBM bytes were compared with hardware counters; elsewhere they are extrapolated"
    print(note, file=sys.stderr)


@hw_app.command("show")
def show(name: NameArgument, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show every number of one profile: value, kind, clock, source."""
    from iosim.hardware import load_profile

    profile = load_profile(name, overrides or [])
    if as_json:
        print_json(profile.to_dict())
        return
    warn(profile.warnings)
    print(f"{profile.name}: {profile.title}")
    print(f"{profile.architecture}, compute capability {profile.compute_capability}, {_counters(profile)}")
    if profile.aliases:
        print(f"also known as: {', '.join(profile.aliases)}")
    print(f"sha256: {profile.sha256}")
    # on a terminal long citations are named by their key and written out once; a pipe gets full lines
    short = {text: key for key, text in profile.sources.items()} if sys.stdout.isatty() else {}
    rows = [
        [key, str(quantity), quantity.kind, quantity.clock or "", _origin(quantity, short)]
        for key, quantity in profile.quantities.items()
    ]
    print_table(["key", "value", "kind", "at clock", "source"], rows, wrap=True)
    if short:
        print_table(["source", "in full"], [[key, text] for text, key in short.items()], wrap=True)


@hw_app.command("check")
def check(
    file: Annotated[str, typer.Argument(help="A YAML file, or a profile's name.")],
    as_json: AsJson = False,
) -> None:
    """Check a profile; every fault is told with its line. Exit code 2 when there is one."""
    from iosim.hardware import check_file, load_profile

    faults = check_file(file)
    profile = None if faults else load_profile(file)
    if as_json:
        warnings = list(profile.warnings) if profile else []
        print_json({"file": file, "ok": not faults, "errors": faults, "warnings": warnings})
    elif profile is not None:
        warn(profile.warnings)
        unknown = sum(quantity.value is None for quantity in profile.quantities.values())
        print(f"{file}: good, {len(profile.quantities)} numbers, {unknown} of them unknown")
    else:
        print("\n".join(faults), file=sys.stderr)
    if faults:
        raise typer.Exit(2)


@hw_app.command("measure")
def measure_gpu(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write a profile with these figures to a YAML file."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--hw", metavar="NAME", help="The profile to measure against [by the driver's name]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the GPU at hand: bandwidths, rates, launches and clock, beside what its profile says.

    A figure under 60 % or over 100 % of theory is flagged and not written. Takes 10 to 20 s; needs
    pip install 'iosim[gpu]' and 8 GiB of free GPU memory. Without a GPU: exit code 3.
    """
    from datetime import date

    from iosim_validation.measure import measure
    from iosim_validation.measure_device import GpuBench
    from iosim_validation.measured_profile import profile_for, profile_text, write_profile

    bench = GpuBench()
    profile = profile_for(bench.facts.name, name)
    if profile is None:
        warn(
            [f"{bench.facts.name}: no profile of this GPU, so nothing to hold the figures against; try --hw"]
        )
        if out is not None:
            raise UsageError("--out: needs a profile to start from; say which with --hw")
    found = measure(bench, profile, lambda text: print(f"measuring: {text}", file=sys.stderr))
    if out is not None and profile is not None:
        write_profile(out, profile_text(profile.name, found, date.today()))
    if as_json:
        print_json(found.to_dict())
        return
    print(f"{bench.facts.name}" + (f", beside {profile.name}" if profile else ""))
    figures = [
        [f.title, f.text, f.theory_text, "" if f.share is None else f"{f.share:.1%}", f.flag or f.note]
        for f in found.figures
    ]
    print_table(["figure", "measured", "theory", "share", "note"], figures, right=(1, 2, 3))
    curve = [
        [
            f"{p.footprint_bytes / 2**20:.0f}",
            f"{p.in_step_bandwidth / 1e12:.2f}",
            f"{p.apart_bandwidth / 1e12:.2f}",
        ]
        for p in found.l2_curve
    ]
    print_table(["footprint MiB", "in step TB/s", "apart TB/s"], curve, right=(0, 1, 2))


@hw_app.command("diff")
def diff(first: NameArgument, second: NameArgument, as_json: AsJson = False) -> None:
    """Show the numbers in which two profiles differ."""
    from iosim.hardware import diff_profiles, load_profile

    left, right = load_profile(first), load_profile(second)
    differences = diff_profiles(left, right)
    if as_json:
        print_json(
            {"first": left.name, "second": right.name, "differences": [d.to_dict() for d in differences]}
        )
        return
    warn((*left.warnings, *right.warnings))
    if not differences:
        print(f"{left.name} and {right.name} have the same numbers")
        return
    rows = [
        [d.key, _value(d.first), _value(d.second), "" if d.ratio is None else f"{d.ratio:.4g}"]
        for d in differences
    ]
    print_table(["key", left.name, right.name, "ratio"], rows)


def _summary(profile: HardwareProfile) -> dict[str, Any]:
    values = {key: q.value for key in LIST_COLUMNS.values() if (q := profile.quantities.get(key))}
    header = {"name": profile.name, "title": profile.title, "aliases": list(profile.aliases)}
    return header | {"counter_data": profile.counter_data, "sha256": profile.sha256, "quantities": values}


def _value(quantity: Quantity | None) -> str:
    return "-" if quantity is None else str(quantity)


def _origin(quantity: Quantity, short: Mapping[str, str]) -> str:
    if quantity.unknown is not None:
        return f"unknown: {quantity.unknown}"
    source = short.get(quantity.source, quantity.source)
    return f"{source}; {quantity.note}" if quantity.note else source


def _counters(profile: HardwareProfile) -> str:
    return "checked with counters" if profile.counter_data else "extrapolated"
