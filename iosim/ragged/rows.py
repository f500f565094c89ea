"""What a ragged record has to say in a row of a sweep."""

from __future__ import annotations

from typing import Any

from iosim.results import RunRecord

COLUMNS = ("tokens", "padded_bytes", "padding_bytes")
"""What a row has besides the columns of any sweep; its batch and seq_k are those of the padded alternative."""


def ragged_columns(record: RunRecord) -> dict[str, Any]:
    """The columns of a ragged batch."""
    return {name: record.notes["ragged"][name] for name in COLUMNS}
