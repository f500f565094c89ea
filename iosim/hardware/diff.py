"""In which numbers two profiles differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iosim.hardware.profile import HardwareProfile, Quantity
from iosim.hardware.schema import FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key with its two entries; an entry is None where the profile lacks the key."""

    key: str
    first: Quantity | None
    second: Quantity | None

    @property
    def ratio(self) -> float | None:
        """Second over first, where both are known numbers and the first is not zero."""
        values = [q.value if q else None for q in (self.first, self.second)]
        before, after = values
        if before is None or after is None or isinstance(before, bool) or before == 0:
            return None
        return after / before

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first, second = (q.to_dict() if q else None for q in (self.first, self.second))
        return {"key": self.key, "first": first, "second": second, "ratio": self.ratio}


def diff_profiles(first: HardwareProfile, second: HardwareProfile) -> list[Difference]:
    """The keys whose values differ, in the order of the schema. Sources and notes do not count."""
    pairs = ((key, first.quantities.get(key), second.quantities.get(key)) for key in FIELDS)
    return [
        Difference(key=key, first=one, second=two)
        for key, one, two in pairs
        if (one is None) != (two is None) or (one and two and one.value != two.value)
    ]
