"""All that the sections may look at."""

from __future__ import annotations

from dataclasses import dataclass

from iosim.claims import Evidence
from iosim.plots.style import Style
from iosim.problem import AttentionProblem
from iosim.report.gpu import GpuPart
from iosim.scaling import Laws, Lengths
from iosim.scaling.elements import Options
from iosim.scaling.traffic import ALIKE


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One problem on several GPUs, computed; and how figures look. Of a ragged `batch` it is the padded alternative."""

    problem: AttentionProblem
    laws: Laws
    parts: tuple[GpuPart, ...]
    claims: tuple[Evidence, ...]
    options: Options
    style: Style
    batch: Lengths = ALIKE
