"""Memory held by one attention layer against the length, with the GPU's capacity drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iosim.plots.axes import bytes_axis, finish, new_figure, size_axis
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import GREY, Style, colour_of, styled
from iosim.problem import AttentionProblem
from iosim.units import format_bytes

_DASHES = {"fwd": (0, (4, 1.6))}


def memory_by_seq_plot(
    table: pd.DataFrame, problem: AttentionProblem, style: Style, *, gpu: str, capacity_bytes: int
) -> Plot:
    """Bytes against N, one curve an algorithm and pass; `table` as `capacity.memory_by_seq` makes it."""
    several = table["pass"].nunique() > 1
    with styled(style):
        figure, axes = new_figure(style)
        size_axis(axes, sorted({float(n) for n in table["seq"]}), "N: queries and keys")
        bytes_axis(axes, [*table["bytes"], capacity_bytes], "bytes held, one layer")
        lines = []
        names = list(dict.fromkeys(table["algorithm"]))
        for (name, which), part in table.groupby(["algorithm", "pass"], sort=False):
            colour = colour_of(str(name), names.index(name))
            label = f"{name}, {_PASS_TEXT[str(which)]}" if several else str(name)
            x, y = part["seq"].to_numpy(float), part["bytes"].to_numpy(float)
            axes.plot(x, y, color=colour, ls=_DASHES.get(str(which), "-"), lw=style.line_pt, label=label)
            lines.append(Line(text=label, colour=colour, x=x, y=y))
        edge = np.array(axes.get_xlim())
        axes.axhline(capacity_bytes, color=GREY, lw=style.line_pt)
        text = f"{gpu}: {format_bytes(capacity_bytes, decimal=True)}"
        lines.append(Line(text=text, colour=GREY, x=edge, y=np.full(2, float(capacity_bytes))))
        shape = problem_text(problem).replace(f"N = {problem.seq_q:,}, ", "")
        finish(axes, style, lines, "Memory held by one attention layer", shape)
    return Plot(
        name="memory_by_seq",
        figure=figure,
        data=table.assign(capacity_bytes=capacity_bytes),
        caption=(
            "Bytes that one attention layer holds outside the chip against the length; both axes logarithmic. Solid: "
            "training (forward and backward); dashed: a forward pass alone. Grey: the memory of the GPU."
        ),
        style=style,
    )


_PASS_TEXT = {"fwd": "forward", "bwd": "backward", "fwd+bwd": "training"}
