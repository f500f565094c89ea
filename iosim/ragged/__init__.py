"""A batch of sequences of different lengths, from one grid of thread blocks."""

from iosim.ragged.batch import sequences_of
from iosim.ragged.listing import ragged_listing
from iosim.ragged.records import analyze_ragged
from iosim.ragged.rows import ragged_row

__all__ = ["analyze_ragged", "ragged_listing", "ragged_row", "sequences_of"]
