"""One file a section of the report: the facts in, headings, sentences, figures and tables out."""

from __future__ import annotations

from iosim.report.blocks import Section
from iosim.report.sections.bound import section as bound
from iosim.report.sections.byte_counts import section as byte_counts
from iosim.report.sections.claims import section as claims
from iosim.report.sections.facts import Facts
from iosim.report.sections.gpus import section as gpus
from iosim.report.sections.limits import section as limits
from iosim.report.sections.measured import section as measured
from iosim.report.sections.memory import section as memory
from iosim.report.sections.roofline import section as roofline
from iosim.report.sections.tiles import section as tiles
from iosim.report.sections.times import section as times
from iosim.report.sections.whatif import section as whatif

__all__ = ["SECTIONS", "Facts", "all_sections"]

SECTIONS = (gpus, byte_counts, bound, roofline, times, tiles, whatif, memory, measured, claims, limits)
"""In the order of the page."""


def all_sections(facts: Facts) -> tuple[Section, ...]:
    """Every section that has something to show."""
    return tuple(made for section in SECTIONS if (made := section(facts)).blocks)
