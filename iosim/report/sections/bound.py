"""The bound, checked: fitted laws, constants, crossings, and the gap to the bounds."""

from __future__ import annotations

from iosim.plots.bound import bound_figures
from iosim.report.blocks import Block, Heading, Section, Table, figure, items
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.scaling.constants import FAR_TEXT

EXPONENT_COLUMNS = [
    "algorithm",
    "series",
    "exponent_n",
    "exponent_d",
    "exponent_m",
    "r_squared",
    "points",
    "where",
]


def section(facts: Facts) -> Section:
    """What holds everywhere first, then each GPU at its M."""
    own = {part.profile.name: _own_sentences(part) for part in facts.parts}
    everyones = {line for lines in own.values() for line in lines}
    shared = [s for s in facts.parts[0].study.sentences if s not in everyones] if facts.parts else []
    blocks: list[Block] = [*items(shared), *_laws(facts)]
    for part in facts.parts:
        gpu = part.profile.name
        blocks += [Heading(text=gpu), *items(own[gpu])]
        blocks += [figure(gpu, draw(part.study, facts.style)) for draw in bound_figures(part.study)]
        blocks.append(
            Table(
                name=f"{gpu}_gaps",
                frame=part.study.gaps,
                caption=f"Gap to the bounds on {gpu}",
                shown=False,
            )
        )
    return Section(key="bound", title="The bound, checked", nav="The bound", blocks=tuple(blocks))


def _laws(facts: Facts) -> list[Block]:
    if not facts.parts:
        return []
    tables = facts.parts[0].study.tables()
    return [
        Table(
            name="exponents",
            frame=tables["exponents"][EXPONENT_COLUMNS].round(4),  # an exponent of 1e-16 is 0
            caption="Fitted exponents of N, d and M, on counted elements",
            prose=("where",),
        ),
        Table(
            name="constants",
            frame=tables["constants"],
            caption=f"Matrix elements in units of N²d²/M: value counted at one far point ({FAR_TEXT}); smallest and "
            "largest over the grid of the exponents, whose smaller tiles cost up to 2 % more",
        ),
        Table(
            name="crossings",
            frame=tables["crossings"],
            caption="Smallest M, in elements, at which tiling moves no more than standard attention: counted in "
            "matrix elements, and in fp16 bytes with the row statistics m and l in fp32",
        ),
    ]


def _own_sentences(part: GpuPart) -> list[str]:
    """Those that hold for this GPU's M."""
    marks = (part.profile.name, "strongest valid bound", "times its bound", "under a valid")
    return [s for s in part.study.sentences if any(mark in s for mark in marks)]
