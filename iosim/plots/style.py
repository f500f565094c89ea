"""How every figure looks: colours, sizes, fonts. `screen` for reading, `paper` for a column of a publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import matplotlib as mpl

from iosim.errors import UsageError

# Okabe and Ito (2008): distinguishable with every common colour-vision deficiency
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, FAINT = "#6E6E6E", "#BDBDBD", "#E3E3E3"

CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))
ALGORITHM_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "standard": BLACK,
        "flash1": VERMILLION,
        "flash2": BLUE,
        "small_cache": GREEN,
        "seed_flash": SKY,
        "online_attention": PURPLE,
        "gemm": ORANGE,
    }
)
TENSOR_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "Q": BLUE,
        "K": ORANGE,
        "V": GREEN,
        "O": VERMILLION,
        "S": PURPLE,
        "P": SKY,
        "LSE": GREY,
        "M": GREY,
        "L": LIGHT,
        "dQ": "#8FB9D6",  # a gradient is a tint of what it is the gradient of
        "dK": "#F3CE85",
        "dV": "#85CDB8",
        "dO": "#E8A37A",
        "dS": "#E9CCDB",
        "dP": "#C2E2F5",
        "D": LIGHT,
    }
)
REGIME_FILLS = ("#F1F1F1", "#FFFFFF", "#E9EFF4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Sizes in inches and points. The margins hold labels and titles; the rest of the figure is the axes."""

    name: str
    width_in: float
    axes_height_in: float
    left_in: float
    right_in: float
    bottom_in: float
    top_in: float
    font_pt: float
    small_pt: float
    line_pt: float
    thin_pt: float
    dpi: int
    titled: bool

    def rc(self) -> dict[str, Any]:
        """The matplotlib settings of this style."""
        return {
            "font.family": ["DejaVu Sans"],
            "font.size": self.font_pt,
            "axes.titlesize": self.font_pt + 1,
            "axes.labelsize": self.font_pt,
            "xtick.labelsize": self.small_pt,
            "ytick.labelsize": self.small_pt,
            "legend.fontsize": self.small_pt,
            "axes.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": "#444444",
            "axes.axisbelow": True,
            "xtick.color": "#333333",
            "ytick.color": "#333333",
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.minor.width": 0.4,
            "ytick.minor.width": 0.4,
            "xtick.major.size": 3.5 if self.titled else 2.5,
            "ytick.major.size": 3.5 if self.titled else 2.5,
            "xtick.minor.size": 2 if self.titled else 1.4,
            "ytick.minor.size": 2 if self.titled else 1.4,
            "lines.linewidth": self.line_pt,
            "lines.solid_capstyle": "round",
            "grid.color": "#E4E4E4",
            "grid.linewidth": 0.5,
            "hatch.linewidth": 0.5,
            "legend.frameon": False,
            "pdf.fonttype": 42,  # TrueType: text stays text, as publishers ask
            "ps.fonttype": 42,
            "svg.fonttype": "path",
            "svg.hashsalt": "iosim",
            "path.simplify": False,
            "savefig.dpi": self.dpi,
            "figure.dpi": self.dpi,
        }


SCREEN = Style(
    name="screen",
    width_in=8.4,
    axes_height_in=4.1,
    left_in=0.85,
    right_in=0.82,
    bottom_in=0.62,
    top_in=0.82,
    font_pt=10,
    small_pt=8.5,
    line_pt=2.0,
    thin_pt=1.0,
    dpi=150,
    titled=True,
)
PAPER = Style(
    name="paper",
    width_in=3.25,
    axes_height_in=1.9,
    left_in=0.6,
    right_in=0.34,
    bottom_in=0.37,
    top_in=0.17,
    font_pt=7,
    small_pt=6,
    line_pt=1.2,
    thin_pt=0.7,
    dpi=300,
    titled=False,
)
STYLES: Mapping[str, Style] = MappingProxyType({s.name: s for s in (SCREEN, PAPER)})


def find_style(name: str) -> Style:
    """A style by name; `UsageError` lists the names."""
    if name not in STYLES:
        raise UsageError(f"style: unknown style {name!r}; allowed: {', '.join(STYLES)}")
    return STYLES[name]


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """matplotlib's defaults with this style on top, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        cast(Any, mpl.rcParams).update(style.rc())
        yield


_OTHERS = (ORANGE, PURPLE, "#7A4B00", SKY)


def colour_of(name: str, position: int) -> str:
    """An algorithm's own colour; anything else takes one that those leave free."""
    return ALGORITHM_COLOURS.get(name, _OTHERS[position % len(_OTHERS)])
