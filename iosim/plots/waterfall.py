"""The IO waterfall: one bar a line, from the compulsory bytes to HBM, every difference with its name."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from iosim.gap import Entry, Gap
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.style import BLUE, GREEN, GREY, LIGHT, ORANGE, PURPLE, SKY, VERMILLION, Style, styled
from iosim.units import format_bytes

INK = "#1F2A36"
ZONE_NAMES = MappingProxyType(
    {
        "least": ("the least", "least"),
        "program": ("the program, exact", "program, exact"),
        "hierarchy": ("the hierarchy, simulated", "hierarchy, simulated"),
        "measured": ("counters", "counter"),
    }
)
_ZONE_COLOURS = MappingProxyType({"least": GREEN, "program": VERMILLION, "hierarchy": BLUE, "measured": INK})
_TOTALS = MappingProxyType({"compulsory": GREEN, "sm": INK, "hbm": BLUE, "measured": INK})
_UP = MappingProxyType({"least": GREEN, "program": VERMILLION, "hierarchy": PURPLE, "measured": LIGHT})
_DOWN = MappingProxyType({"least": GREEN, "program": ORANGE, "hierarchy": SKY, "measured": LIGHT})
_PALE = {ORANGE, SKY, LIGHT}
_ROOM = 0.17  # share of the axes right of the longest bar, for its label


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    row_in: float
    left_in: float
    strip_in: float
    right_in: float
    top_in: float
    bottom_in: float
    notes: bool


_LAYOUTS = {
    "screen": _Layout(
        row_in=0.37, left_in=2.78, strip_in=0.34, right_in=0.15, top_in=0.92, bottom_in=0.52, notes=True
    ),
    "paper": _Layout(
        row_in=0.165, left_in=1.46, strip_in=0.18, right_in=0.05, top_in=0.06, bottom_in=0.36, notes=False
    ),
}


def waterfall(gap: Gap, style: Style) -> Plot:
    """The figure of one gap; the plotted table is its entries, in order."""
    layout = _LAYOUTS[style.name]
    entries = gap.entries
    with styled(style):
        height = layout.top_in + layout.bottom_in + layout.row_in * len(entries)
        figure = Figure(figsize=(style.width_in, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes(
            (
                layout.left_in / style.width_in,
                layout.bottom_in / height,
                1 - (layout.left_in + layout.right_in) / style.width_in,
                1 - (layout.top_in + layout.bottom_in) / height,
            )
        )
        most = max(max(e.after_bytes, e.measured_bytes or 0, e.after_bytes - e.bytes) for e in entries)
        axes.set_xlim(0, most * (1 + _ROOM))
        axes.set_ylim(len(entries) - 0.5, -0.5)
        _frame(axes, style)
        _zones(axes, style, layout, entries)
        base = gap.entry("compulsory").bytes
        axes.axvline(base, color=GREEN, lw=style.thin_pt, ls=(0, (1, 1.6)), zorder=1)
        for position, entry in enumerate(entries):
            _row(axes, style, layout, position, entry, base)
        for position, (entry, following) in enumerate(pairwise(entries)):
            axes.plot(
                [entry.after_bytes] * 2,
                [position + 0.3, position + (0.7 if following.kind == "step" else 0.69)],
                color=GREY,
                lw=style.thin_pt * 0.8,
                zorder=2,
            )
        if style.titled:
            _heading(figure, style, gap, height)
    return Plot(name="waterfall", figure=figure, data=gap.to_frame(), caption=_caption(gap), style=style)


def _frame(axes: Axes, style: Style) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6 if style.titled else 4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v, decimal=True) if v else "0"))
    axes.set_xlabel("bytes moved")
    axes.grid(axis="x")


def _zones(axes: Axes, style: Style, layout: _Layout, entries: tuple[Entry, ...]) -> None:
    """A coloured strip with its name left of the rows of each zone, and a faint line between zones."""
    width = style.width_in - layout.left_in - layout.right_in
    edge = 0.08 if layout.notes else 0.04
    low, high = -(layout.left_in - edge) / width, -(layout.left_in - layout.strip_in) / width
    start = 0
    for zone, group in groupby(entries, key=lambda e: e.zone):
        stop = start + len(list(group))
        axes.fill_between(
            [low, high],
            start - 0.46,
            stop - 0.54,
            transform=axes.get_yaxis_transform(),
            color=_ZONE_COLOURS[zone],
            lw=0,
            clip_on=False,
        )
        name = ZONE_NAMES[zone][0 if layout.notes else 1]
        room_pt = 72 * layout.row_in * (stop - start)
        size = style.small_pt if layout.notes else style.small_pt - 0.6
        if len(name) * 0.56 * size < room_pt:
            axes.text(
                (low + high) / 2,
                (start + stop - 1) / 2,
                name,
                transform=axes.get_yaxis_transform(),
                rotation=90,
                ha="center",
                va="center",
                color="white",
                fontsize=size,
                weight="bold" if layout.notes else "normal",
            )
        if start:
            axes.plot(
                [low, 1],
                [start - 0.5] * 2,
                transform=axes.get_yaxis_transform(),
                color=LIGHT,
                lw=style.thin_pt * 0.7,
                clip_on=False,
            )
        start = stop


def _row(axes: Axes, style: Style, layout: _Layout, position: int, entry: Entry, base: int) -> None:
    total = entry.kind == "total"
    begin = 0 if total else entry.after_bytes - entry.bytes
    low, high = sorted((begin, entry.after_bytes))
    colour = _TOTALS[entry.name] if total else (_UP if entry.bytes >= 0 else _DOWN)[entry.zone]
    axes.barh(
        position,
        high - low,
        left=low,
        height=0.6 if total else 0.5,
        color=colour,
        hatch="" if entry.zone != "measured" or total else "////",
        edgecolor="white" if entry.zone == "measured" else "none",
        lw=0,
        zorder=3,
    )
    if high == low:
        axes.plot([low] * 2, [position - 0.25, position + 0.25], color=GREY, lw=style.thin_pt, zorder=3)
    _amount(axes, style, layout, position, entry, (low, high), base, dark=colour not in _PALE)
    _name(axes, style, layout, position, entry)
    if entry.measured_bytes is not None:
        axes.plot(
            [entry.measured_bytes],
            [position],
            marker="D",
            ms=style.small_pt * 0.5,
            mfc="white",
            mec=INK,
            mew=style.thin_pt,
            zorder=5,
        )


def _amount(
    axes: Axes,
    style: Style,
    layout: _Layout,
    position: int,
    entry: Entry,
    bar: tuple[int, int],
    base: int,
    *,
    dark: bool,
) -> None:
    """The bytes beside the bar: right of it where there is room, else left of it, else inside."""
    total = entry.kind == "total"
    text = format_bytes(abs(entry.bytes), decimal=True, digits=3)
    if total and entry.name != "compulsory":
        text += (
            f"  ({entry.bytes / base:.3g}× compulsory)" if layout.notes else f" ({entry.bytes / base:.3g}×)"
        )
    elif not total:
        text = ("+" if entry.bytes > 0 else "−" if entry.bytes < 0 else "") + text
    limit = axes.get_xlim()[1]
    width_pt = 72 * (style.width_in - layout.left_in - layout.right_in)
    needed = len(text) * 0.6 * style.small_pt + 6
    low, high = (edge / limit * width_pt for edge in bar)
    ink, inside = INK if total else "#444444", False
    if high + needed <= width_pt:
        where, x, side = bar[1], 4, "left"
    elif high - low >= needed:
        where, x, side, inside = bar[1], -4, "right", True
        ink = "white" if dark else INK
    else:
        where, x, side = bar[0], -4, "right"
    axes.annotate(
        text,
        (where, position),
        xytext=(x, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=style.small_pt,
        color=ink,
        weight="bold" if total else "normal",
        zorder=6,
        bbox=None if inside else {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8},
    )


def _name(axes: Axes, style: Style, layout: _Layout, position: int, entry: Entry) -> None:
    offset = -6 if layout.notes else -3
    weight = "bold" if entry.kind == "total" else "normal"
    if not layout.notes:
        axes.annotate(
            entry.title,
            (0, position),
            xycoords=axes.get_yaxis_transform(),
            xytext=(offset, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=style.small_pt,
            weight=weight,
            color=INK,
        )
        return
    for text, shift, size, ink, heavy in (
        (entry.title, 5.2, style.small_pt + 0.8, INK, weight),
        (entry.note, -6.2, style.small_pt - 1.2, GREY, "normal"),
    ):
        axes.annotate(
            text,
            (0, position),
            xycoords=axes.get_yaxis_transform(),
            xytext=(offset, shift),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=size,
            weight=heavy,
            color=ink,
        )


def _heading(figure: Figure, style: Style, gap: Gap, height: float) -> None:
    left = 0.08 / style.width_in
    program = gap.algorithm + (f", tile {gap.tiles}" if gap.tiles else "")
    who = f"{gap.kernel} ({program})" if gap.kernel else program
    machine = f"{gap.profile}, M = {format_bytes(gap.sram_bytes)}"
    if gap.case is not None:
        machine += f", measured case {gap.case}"
    elif gap.extrapolated:
        machine += ", hierarchy extrapolated from an H200"
    lines = (
        (0.12, gap.headline, style.font_pt + 2.5, "bold", INK),
        (0.40, f"{problem_text(gap.problem)}", style.font_pt, "normal", GREY),
        (0.60, f"{who} on {machine}", style.font_pt, "normal", GREY),
    )
    for down, text, size, weight, ink in lines:
        figure.text(
            left, 1 - down / height, text, ha="left", va="top", fontsize=size, weight=weight, color=ink
        )


def _caption(gap: Gap) -> str:
    text = (
        "From the bytes that no algorithm can save to those at HBM. Thick bars are amounts, thin ones the difference "
        "to the line above; dotted: the compulsory bytes. Up to the SMs everything is counted; below, one assumption "
        "of the simulated hierarchy is switched on at a time."
    )
    if any(e.measured_bytes is not None for e in gap.entries):
        text += " Diamonds: hardware counters of the same amount."
    return text
