"""What people repeat about FlashAttention, with verdicts."""

from __future__ import annotations

from collections import Counter

from iosim.claims import VERDICTS, claims_frame
from iosim.report.blocks import Section, Table, Text
from iosim.report.sections.facts import Facts


def section(facts: Facts) -> Section:
    """One table; none of it depends on the problem or the GPU."""
    found = Counter(item.verdict for item in facts.claims)
    told = ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])
    return Section(
        key="claims",
        title="What people say",
        nav="Claims",
        blocks=(
            Text(
                text=f"{len(facts.claims)} sentences that people repeat, with verdicts from computed numbers: {told}."
            ),
            Table(
                name="claims",
                frame=claims_frame(facts.claims).drop(columns="key"),
                caption="Sentences about FlashAttention; each command shows the numbers behind the verdict",
                prose=("claim", "because", "source", "command"),
                code=("command",),
                badge="verdict",
            ),
        ),
    )
