"""What a section of the report is made of; the pages and the files are both written from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from iosim.plots.files import Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading below the section's own; `code` is set as code after it."""

    text: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph; `note`: a remark, set paler. `code` parts between backticks."""

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Sentences one below the other."""

    lines: tuple[str, ...]
    note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure; its files are figures/`stem`.*"""

    stem: str
    plot: Plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; its files are tables/`name`.*

    `shown`: on the pages too, of which the first `most` rows where it is long. `prose`: columns of sentences, which
    wrap; `code`: columns set as code; `badge`: a column of verdicts, which are coloured.
    """

    name: str
    frame: pd.DataFrame
    caption: str
    shown: bool = True
    most: int | None = None
    prose: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    badge: str = ""


Block = Heading | Text | Items | Figure | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A chapter. `key`: its anchor; `nav`: its name in the row of links."""

    key: str
    title: str
    nav: str
    blocks: tuple[Block, ...] = field(default_factory=tuple)


def items(lines: Sequence[str], *, note: bool = False) -> list[Block]:
    """Sentences as a block; nothing where there are none."""
    return [Items(lines=tuple(lines), note=note)] if lines else []


def figure(owner: str, plot: Plot) -> Figure:
    """A figure named after the GPU, or whatever it is of."""
    return Figure(stem=f"{owner}_{plot.name}", plot=plot)
