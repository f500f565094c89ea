"""The thread blocks of a ragged batch: one grid over sequences of different lengths, each where its own rows lie.

A kernel for variable lengths launches one grid for the whole batch. Its blocks are those of each sequence by itself, in
the order of the sequences; what a padded grid would launch beyond a sequence's end returns at once and is left out.
A tensor holds the sequences one after another without padding, each as [head, row, column].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError
from iosim.interpret.trace import block_lengths, block_table
from iosim.memory.streams import TENSOR_ALIGNMENT_BYTES, BlockTraces, Ranges, layout
from iosim.program.ir import Kernel, Program

Ints = NDArray[np.int64]
Binding = Mapping[str, int]


def ragged_table(kernel: Kernel, sequences: Sequence[Binding], most: int) -> tuple[dict[str, Ints], int]:
    """Every thread block as columns, one a grid index; `batch` is the number of the sequence. And all their accesses.

    `sequences`: the letters of each, B = 1. Errors: `SimulationError` when there are more than `most` blocks.
    """
    kinds, kind = _distinct(sequences)
    tables = [block_table(kernel, sequences[first], most) for first in kinds]
    sizes = [len(table["batch"]) for table in tables]
    total = sum(sizes[k] for k in kind)
    if total > most:
        raise SimulationError(
            f"kernel {kernel.name}: {total:,} thread blocks are more than {most:,}; take larger tiles"
        )
    out = {name: np.concatenate([tables[k][name] for k in kind]) for name in tables[0]}
    out["batch"] = np.repeat(np.arange(len(sequences)), [sizes[k] for k in kind])
    alone = zip(kinds, tables, np.bincount(kind).tolist(), strict=True)
    accesses = sum(many * int(block_lengths(kernel, own, sequences[k]).sum()) for k, own, many in alone)
    return out, accesses


class RaggedTraces:
    """What `BlockTraces` is for one problem: the byte ranges of each block of a `ragged_table`.

    Sequences of one length share their traces, shifted to where each lies.
    """

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        sequences: Sequence[Binding],
        table: Mapping[str, Ints],
        backward: NDArray[np.bool_],
        alive: Callable[[], None] | None = None,
    ) -> None:
        kinds, kind = _distinct(sequences)
        alone = [list(layout(program, sequences[first]).values()) for first in kinds]
        sizes = np.array([[place.heads * place.head_bytes for place in places] for places in alone])
        before = (
            np.cumsum(sizes[kind], axis=0) - sizes[kind]
        )  # [sequence, tensor], from the tensor's first byte
        whole = sizes[kind].sum(axis=0)
        pages = -(-whole // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES
        base = np.cumsum(pages) - pages
        own = np.array([[place.base_bytes for place in places] for places in alone])
        self._shift = base + before - own[kind]  # [sequence, tensor]
        self.places = alone[0]
        self.end_bytes = int(base[-1] + whole[-1])
        self._sequence = table["batch"]
        self._kind = kind[self._sequence]
        self._place = np.zeros(len(self._sequence), dtype=np.int64)  # of a block among those of its kind
        self.phases = np.zeros(len(self._sequence), dtype=np.int64)
        self._traces: list[BlockTraces] = []
        for number, first in enumerate(kinds):
            mine = np.flatnonzero(self._kind == number)
            columns = {name: column[mine] for name, column in table.items()} | {"batch": 0 * mine}
            traces = BlockTraces(program, kernel, sequences[first], columns, backward[mine], alive)
            if alive:
                alive()
            self._place[mine] = np.arange(len(mine))
            self.phases[mine] = traces.phases
            self._traces.append(traces)

    def piece(self, block: Ints, phase: Ints) -> Ranges:
        """The range that each (block, phase) touches."""
        many = len(block)
        start, length = np.empty(many, np.int64), np.empty(many, np.int64)
        store, tensor = np.empty(many, np.bool_), np.empty(many, np.int16)
        kinds = self._kind[block]
        for number in np.unique(kinds).tolist():
            at = np.flatnonzero(kinds == number)
            found = self._traces[number].piece(self._place[block[at]], phase[at])
            start[at] = found.start + self._shift[self._sequence[block[at]], found.tensor]
            length[at], store[at], tensor[at] = found.length, found.store, found.tensor
        return Ranges(start, length, store, tensor)


def _distinct(sequences: Sequence[Binding]) -> tuple[list[int], Ints]:
    """The first sequence of each set of letters, and the kind of every sequence."""
    number: dict[tuple[tuple[str, int], ...], int] = {}
    first: list[int] = []
    kind = np.empty(len(sequences), dtype=np.int64)
    for place, binding in enumerate(sequences):
        key = tuple(sorted(binding.items()))
        if key not in number:
            number[key] = len(first)
            first.append(place)
        kind[place] = number[key]
    return first, kind
