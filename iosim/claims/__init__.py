"""What people repeat about FlashAttention, each sentence with a verdict that follows from computed numbers."""

from __future__ import annotations

from collections.abc import Sequence

from iosim.claims.claim import VERDICTS, Claim, Evidence
from iosim.claims.hardware_claims import HARDWARE_CLAIMS
from iosim.claims.io_claims import IO_CLAIMS
from iosim.claims.limit_claims import LIMIT_CLAIMS
from iosim.claims.order_claims import ORDER_CLAIMS
from iosim.claims.softmax_claims import SOFTMAX_CLAIMS
from iosim.claims.speedup_claims import SPEEDUP_CLAIMS
from iosim.claims.table import claims_frame, claims_html, claims_markdown
from iosim.errors import UsageError

__all__ = [
    "CLAIMS",
    "VERDICTS",
    "Claim",
    "Evidence",
    "check_claims",
    "claims_frame",
    "claims_html",
    "claims_markdown",
]

CLAIMS: tuple[Claim, ...] = (
    *IO_CLAIMS,
    *ORDER_CLAIMS,
    *SOFTMAX_CLAIMS,
    *HARDWARE_CLAIMS,
    *LIMIT_CLAIMS,
    *SPEEDUP_CLAIMS,
)


def check_claims(keys: Sequence[str] = ()) -> tuple[Evidence, ...]:
    """Evidence for the chosen claims, all where none is named. `UsageError` lists the keys."""
    by_key = {claim.key: claim for claim in CLAIMS}
    for key in keys:
        if key not in by_key:
            raise UsageError(f"claim: unknown claim {key!r}; known: {', '.join(by_key)}")
    return tuple(by_key[key].evidence() for key in dict.fromkeys(keys or by_key))
