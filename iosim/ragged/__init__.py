"""A batch of sequences of different lengths, from one grid of thread blocks."""

from iosim.ragged.batch import sequences_of
from iosim.ragged.listing import ragged_listing
from iosim.ragged.records import analyze_ragged
from iosim.ragged.rows import ragged_columns

__all__ = ["analyze_ragged", "ragged_columns", "ragged_listing", "sequences_of"]
