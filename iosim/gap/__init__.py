"""The IO waterfall: from the bytes that nobody can save to those at HBM, every difference with a name."""

from iosim.gap.build import gap, gap_of_program
from iosim.gap.measured import gap_of_rows, rows_of_case
from iosim.gap.record import Entry, Gap

__all__ = ["Entry", "Gap", "gap", "gap_of_program", "gap_of_rows", "rows_of_case"]
