"""The compute time of a fused kernel by unit: the mean SM, and what the busiest SM has beyond it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iosim.memory.sm_time import busiest_sm_cycles
from iosim.roofline.machine import ISSUE_LANES, Machine
from iosim.roofline.overlap import hiding, overlapped
from iosim.roofline.terms import Term, inputs
from iosim.roofline.work import FusedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Every number of a prediction that is not counted: of the kernel's class, and of the GPU's measured rates."""

    share: float
    hidden_exp: float
    mask_ops: float
    score_ops: float
    disorder: float | None
    read_bytes_per_s: float
    write_bytes_per_s: float
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCycles:
    """Cycles of a whole SM that one tile takes, by unit; what runs behind another unit is not in it."""

    tensor: float
    shared: float
    special: float
    vector: float
    barriers: float = 0.0
    stores: float = 0.0

    @property
    def total(self) -> float:
        """Their sum: the units take turns."""
        return self.tensor + self.shared + self.special + self.vector + self.barriers + self.stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A kernel's work on one GPU with one set of constants. `without`: terms left out."""

    work: FusedWork
    machine: Machine
    constants: Constants
    without: frozenset[str] = frozenset()

    def tile(self, residents: int) -> TileCycles:
        """One tile when `residents` blocks share the SM.

        Operands read by the warps: a scheduler hides one warp's reads behind its other warps' work. Exponentials: all
        but the hidden part, or what exceeds the matmuls where they were overlapped.
        """
        w, m, c = self.work, self.machine, self.constants
        tensor = w.tile_flops / (c.share * m.tensor_flops_per_clk_sm) + w.turn_clk
        shared = w.operand_bytes / m.shared_bytes_per_clk_sm / self._hiding(residents)
        shared += max(0.0, w.descriptor_bytes / m.shared_bytes_per_clk_sm - tensor)
        tensor, shared = self._kept("tensor", tensor), self._kept("shared memory", shared)
        special = (w.tile_scores + w.row_special) / m.special_ops_per_clk_sm
        vector = self._kept("vector", self._instructions() / ISSUE_LANES)
        if c.disorder is not None:
            together = overlapped(
                tensor, special + vector, w.warpgroups * residents, self._disorder(c.disorder)
            )
            special, vector = together - tensor, 0.0
        elif "in turn" in self.without:
            special = max(0.0, special - tensor - shared)
        else:
            special *= 1 - c.hidden_exp
        cycles = TileCycles(
            tensor=tensor,
            shared=0.0,
            special=self._kept("special functions", special),
            vector=vector,
            barriers=self._kept("barriers", w.exchanges * m.exchange_clk / residents),
            stores=self._kept("stores", w.store_bytes / m.store_bytes_per_clk(w.blocks)),
        )
        return replace(cycles, shared=max(shared, self._path(cycles, residents)))

    def _path(self, others: TileCycles, residents: int) -> float:
        """What the path of shared memory takes beyond the cycles of the other units.

        Warps that read operands ahead of their products keep the path at work beside them. Warps that exchange results
        behind barriers go from one to the other together: then it is the blocks of an SM that hide each other. Only
        stores of parts of O, which nobody waits for, run beside the products of P V that make them, half of all.
        """
        w, rest = self.work, others.total
        if "path" in self.without:
            return 0.0
        if w.exchanges:
            beside = min(w.parts_out_wavefronts, others.tensor / 2)
            both = overlapped(rest, w.path_wavefronts - beside, residents, self._disorder(1.0))
            return self._kept("shared memory", both - rest)
        return self._kept("shared memory", max(0.0, w.path_wavefronts - rest))

    def _instructions(self) -> float:
        """Vector instructions of a tile, beyond those that the share holds."""
        w = self.work
        rows = w.row_ops - (w.step_ops if "step" in self.without else 0.0)
        return self.constants.score_ops * w.tile_scores + rows

    def mean_cycles(self) -> float:
        """Cycles of all blocks, divided over all SMs."""
        w = self.work
        per_block = self._per_block()
        return (w.blocks * per_block + w.tiles * self.tile(w.residents).total) / self.machine.sms

    def busiest_cycles(self) -> float:
        """Cycles of the SM that ends last."""
        w = self.work
        per_block = self._per_block()
        costs = per_block + w.steps * self.tile(w.residents).total
        return busiest_sm_cycles(costs, self.machine.sms, w.residents, alone=self._lone_speed())

    def terms(self, busiest: float) -> list[Term]:
        """Seconds by unit at the machine's clock; they add up to `busiest` cycles."""
        w, m, c = self.work, self.machine, self.constants
        tiles, blocks, clock = w.tiles / m.sms, w.blocks / m.sms, m.clock_hz
        cycles, tail = self.tile(w.residents), busiest - self.mean_cycles()
        return [
            Term(
                name="tensor",
                seconds=tiles * cycles.tensor / clock,
                formula="tiles an SM x flops a tile / (share of peak x FLOP/clk/SM) / clock",
                inputs=inputs(
                    ("tiles an SM", tiles, ""),
                    ("flops a tile", w.tile_flops, "FLOP"),
                    ("share of peak", c.share, ""),
                    ("rate", m.tensor_flops_per_clk_sm, "FLOP/clk/SM"),
                    ("clock", clock, "Hz"),
                ),
            ),
            Term(
                name="special functions",
                seconds=tiles * cycles.special / clock,
                formula=self._special_formula(),
                inputs=inputs(
                    ("scores a tile", w.tile_scores, ""),
                    ("of rows, by all warps", w.row_special, ""),
                    ("rate", m.special_ops_per_clk_sm, "op/clk/SM"),
                    *self._special_inputs(),
                ),
            ),
            Term(
                name="shared memory",
                seconds=tiles * cycles.shared / clock,
                formula=self._shared_formula(),
                inputs=inputs(
                    ("operand bytes a tile", w.operand_bytes, "B"),
                    ("rate", m.shared_bytes_per_clk_sm, "B/clk/SM"),
                    ("warps that hide each other", self._hiding(w.residents), ""),
                    ("path, copies included", w.path_wavefronts, "clk a tile"),
                ),
            ),
            Term(
                name="vector",
                seconds=tiles * cycles.vector / clock,
                formula="tiles an SM x (instructions a score x scores a tile + those of its rows) / issue rate / clock",
                inputs=inputs(
                    ("instructions a score", c.score_ops, ""),
                    ("of the rows of a tile", w.row_ops, ""),
                    ("issue", ISSUE_LANES, "instructions/clk/SM"),
                ),
            ),
            Term(
                name="barriers",
                seconds=tiles * cycles.barriers / clock,
                formula="tiles an SM x exchanges a tile x (store, barrier, load) / blocks that hide each other / clock",
                inputs=inputs(
                    ("exchanges a tile", w.exchanges, ""),
                    ("store, barrier, load", m.exchange_clk, "clk"),
                    ("blocks that hide each other", w.residents, ""),
                ),
            ),
            Term(
                name="stores",
                seconds=tiles * cycles.stores / clock,
                formula="tiles an SM x bytes a tile / (B/clk of an SM beside the others that store) / clock",
                inputs=inputs(
                    ("bytes a tile", w.store_bytes, "B"),
                    ("rate", m.store_bytes_per_clk(w.blocks), "B/clk/SM"),
                ),
            ),
            Term(
                name="loads",
                seconds=blocks * self._loads() / clock,
                formula="blocks an SM x (loads in turn x their latency + bytes / (B/clk/SM of the L2)) / clock",
                inputs=inputs(
                    ("loads in turn", w.rounds, ""),
                    ("latency", m.hbm_latency_clk, "clk"),
                    ("of its own results", w.again_rounds, ""),
                    ("latency of these", self._again_clk(), "clk"),
                    ("bytes that nothing hides", w.first_bytes, "B"),
                    ("L2", m.l2_bytes_per_clk_sm, "B/clk/SM"),
                ),
            ),
            Term(
                name="masking",
                seconds=blocks * w.masked_tiles * self._mask_tile() / clock,
                formula="blocks an SM x masked tiles x instructions a score x scores a tile / issue rate / clock",
                inputs=inputs(
                    ("blocks an SM", blocks, ""),
                    ("masked tiles of a block", w.masked_tiles, ""),
                    ("instructions a score", c.mask_ops, ""),
                    ("issue", ISSUE_LANES, "instructions/clk/SM"),
                ),
            ),
            Term(
                name="edge",
                seconds=blocks * self._edge() / clock,
                formula="blocks an SM x bytes before and after the tiles / (HBM read bandwidth / SMs)",
                inputs=inputs(
                    ("first loads and last stores of a block", w.edge_bytes, "B"),
                    ("HBM read", c.read_bytes_per_s, "B/s"),
                    ("SMs", m.sms, ""),
                ),
            ),
            Term(
                name="waves and tail",
                seconds=tail / clock,
                formula="busiest SM - mean SM, blocks in launch order to the first free place",
                inputs=inputs(
                    ("blocks", w.blocks, ""),
                    ("places", m.sms * w.residents, ""),
                    ("speed of a lone block", self._lone_speed(), "of full"),
                ),
            ),
        ]

    def _special_formula(self) -> str:
        if self.constants.disorder is None:
            return "tiles an SM x scores a tile / (op/clk/SM) x (1 - hidden) / clock"
        return "tiles an SM x (softmax and matmuls by warpgroups that wait for each other - matmuls) / clock"

    def _special_inputs(self) -> list[tuple[str, float, str]]:
        c = self.constants
        if c.disorder is None:
            return [("hidden", c.hidden_exp, "")]
        return [
            ("more instructions a score", c.score_ops, ""),
            ("warpgroups on an SM", self.work.warpgroups * self.work.residents, ""),
            ("disorder", c.disorder, ""),
        ]

    def _shared_formula(self) -> str:
        if self.work.exchanges:
            return "tiles an SM x (path and others by blocks that go from one to the other - others) / clock"
        own = "operand bytes a tile / (B/clk/SM) / warps that hide each other"
        return f"tiles an SM x max({own}, path - others) / clock"

    def _per_block(self) -> float:
        return self._edge() + self._loads() + self.work.masked_tiles * self._mask_tile()

    def _loads(self) -> float:
        """Loads of a block outside its tiles, each of which waits for the one before."""
        w, m = self.work, self.machine
        waits = w.rounds * m.hbm_latency_clk + w.again_rounds * self._again_clk()
        return self._kept("loads", waits + w.first_bytes / m.l2_bytes_per_clk_sm)

    def _again_clk(self) -> float:
        """Until a load of what the block itself wrote is answered: from the L2, if that of all blocks at work fits."""
        w, m = self.work, self.machine
        at_work = min(w.blocks, m.sms * w.residents) * w.again_bytes
        return m.l2_latency_clk if at_work <= m.l2_bytes else m.hbm_latency_clk

    def _disorder(self, value: float) -> float:
        return 0.0 if "in turn" in self.without else value

    def flops_per_clk_sm(self) -> float:
        """What the tensor cores do while a tile is at work."""
        cycles = self.tile(self.work.residents).total
        return self.work.tile_flops / cycles if cycles else 0.0

    def _kept(self, name: str, cycles: float) -> float:
        return 0.0 if name in self.without else cycles

    def _hiding(self, residents: int) -> float:
        return hiding(self.work.warps, residents)

    def _edge(self) -> float:
        """Q in and O out of one block at its SM's share of the bandwidth; nothing overlaps it."""
        m = self.machine
        return self._kept("edge", self.work.edge_bytes * m.sms * m.clock_hz / self.constants.read_bytes_per_s)

    def _mask_tile(self) -> float:
        return self._kept("masking", self.constants.mask_ops * self.work.tile_scores / ISSUE_LANES)

    def _lone_speed(self) -> float:
        """Of a block that has its SM to itself, as a share of what several reach together."""
        total = self.tile(self.work.residents).total
        return total / self.tile(1).total if total and "lone block" not in self.without else 1.0
