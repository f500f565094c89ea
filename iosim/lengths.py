"""Lengths of the sequences of a ragged batch, from a list on the command line or a file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from iosim.errors import UsageError
from iosim.problem import MAX_SIZE

MOST = 1_000_000
"""Most sequences of a batch; a longer list is a wrong file."""

_MOST_BYTES = 16_000_000
_HOW = "write 512,1024,37, or a file with one length a line"


def parse_lengths(text: str) -> tuple[int, ...]:
    """Lengths from `512,1024,37`, or from a text file of whole numbers apart by commas, spaces or lines.

    A list that starts with 0 is read as cumulative offsets (0,512,1536,1573: cu_seqlens), which must rise.
    Errors: `UsageError` naming the first entry that is wrong.
    """
    words = re.split(r"[\s,]+", _contents(text).strip())
    if words == [""]:
        raise UsageError(f"seq-lens: the list is empty; {_HOW}")
    if len(words) > MOST:
        raise UsageError(f"seq-lens: {len(words)} lengths are more than {MOST}")
    for place, word in enumerate(words):
        if not (word.isascii() and word.isdecimal()):
            raise UsageError(f"seq-lens: entry {place + 1} is {word[:40]!r}, not a whole number; {_HOW}")
        if len(word) > len(str(MAX_SIZE)):
            raise UsageError(f"seq-lens: entry {place + 1} is {word[:40]}; lengths are from 1 to 2^40")
    numbers = [int(word) for word in words]
    if numbers[0] == 0:
        return _from_offsets(numbers)
    for place, number in enumerate(numbers):
        if not 1 <= number <= MAX_SIZE:
            raise UsageError(f"seq-lens: entry {place + 1} is {number}; lengths are from 1 to 2^40")
    return tuple(numbers)


def _from_offsets(offsets: list[int]) -> tuple[int, ...]:
    if len(offsets) == 1:
        raise UsageError("seq-lens: offsets need an end besides the 0 that they start with, as 0,512,1536")
    for place, (before, after) in enumerate(itertools.pairwise(offsets)):
        if after <= before:
            raise UsageError(
                f"seq-lens: a list that starts with 0 is read as offsets, which must rise, but entry {place + 2} is "
                f"{after} after {before}; sort them, leave out empty sequences, or give lengths without the 0"
            )
    return tuple(after - before for before, after in itertools.pairwise(offsets))


def _contents(text: str) -> str:
    """The text itself if it is a list, else what its file holds."""
    if re.fullmatch(r"[\d\s,+-]*", text):
        return text
    path = Path(text)
    try:
        with path.open("rb") as file:  # a pipe or a device does not tell its size beforehand
            found = file.read(_MOST_BYTES + 1)
        if len(found) > _MOST_BYTES:
            raise UsageError(f"seq-lens: {text} is larger than {_MOST_BYTES:,} bytes")
        return found.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"seq-lens: {text} is not a text file; {_HOW}") from None
    except OSError as error:
        raise UsageError(f"seq-lens: {text}: {error.strerror}; {_HOW}") from None
