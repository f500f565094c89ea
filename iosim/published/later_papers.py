"""Online softmax (2018), FlashAttention-2, -3 and -4: accesses, speeds, throughputs and cycles of a tile."""

from __future__ import annotations

from collections.abc import Callable

from iosim.algorithms.registry import find_algorithm
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import lines
from iosim.kernels import load_kernel
from iosim.placement import CHUNK_COLS
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Frame
from iosim.published.check import Check, Group
from iosim.published.numbers import select
from iosim.roofline import Machine
from iosim.timing import time_kernel

Progress = Callable[[int, int], None]
_SOFTMAX_N = 512


def softmax() -> Group:
    """Accesses to an element of a row, counted on the softmax kernel of unfused attention."""
    checks = []
    for name in ("naive", "safe", "online"):
        (n,) = select("Sec 2-4", implementation=f"{name} softmax")
        checks.append(
            Check(
                place=n.place,
                what=f"{name} softmax",
                unit="accesses",
                paper=n.number,
                model=accesses_per_element(name),
                limit=0.0,
            )
        )
    return Group(
        name="softmax",
        title="Memory accesses of a softmax, an element",
        source=select("Sec 2-4")[0].source,
        method="bytes of the softmax kernel of `standard --softmax KIND` over N² elements",
        checks=tuple(checks),
        command="iosim show standard --softmax online --seq 4096",
    )


def accesses_per_element(kind: str) -> float:
    """Reads and writes of S and P by the softmax kernel alone, over N²."""
    algorithm = find_algorithm("standard")
    program = algorithm.program("none", algorithm.resolve({"softmax": kind}))
    problem = AttentionProblem.of(seq=_SOFTMAX_N, head_dim=64)
    frame = Frame(bind(problem, TileShape(rows=1, cols=CHUNK_COLS)))
    moved = sum(
        int(frame.value(line.read_bytes)) + int(frame.value(line.write_bytes))
        for line in lines(program)
        if line.kernel == "softmax"
    )
    return moved / (_SOFTMAX_N**2 * problem.dtype_o.itemsize)


def flash2_speed(progress: Progress | None = None) -> Group:
    """FlashAttention-2, Figure 4: forward and backward on an A100, by the time model."""
    profile, kernel = load_profile("a100-sxm-80gb"), load_kernel("torch-flash2")
    wanted = select("Figure 4", "speed", implementation="FlashAttention-2")
    checks = []
    for done, n in enumerate(wanted, start=1):
        problem = n.problem
        parts = [time_kernel(kernel, problem, profile, passes=p).once_s for p in ("fwd", "bwd")]
        seconds = sum(part for part in parts if part is not None)
        # the paper's convention: 4 N² d a head, half of it under a causal mask, 2.5 times more for the backward
        flops = 3.5 * 4 * problem.batch * problem.heads * problem.seq_q**2 * problem.head_dim
        checks.append(
            Check(
                place=n.place,
                what=f"d = {n.head_dim}, {n.mask}, N = {int(n.seq):,}",
                unit="TFLOP/s",
                paper=n.number,
                model=flops / (2 if n.mask == "causal" else 1) / seconds / 1e12,
            )
        )
        if progress:
            progress(done, len(wanted))
    return Group(
        name="flash2-speed",
        title="Speed of FlashAttention-2, forward and backward, on an A100",
        source=wanted[0].source,
        method="the time model's single run of forward and backward (docs/time.md), the paper's flops",
        checks=tuple(checks),
        caveats=("The backward's two constants are fitted to this figure; the forward's are not.",),
        command="iosim explain --kernel torch-flash2 --hw a100-sxm-80gb --heads 16 --head-dim 128 --seq 16K",
    )


def flash3_exp() -> Group:
    """FlashAttention-3: the exponential's share, and its Table 2 as time and as speed."""
    gpu = load_profile("h100-sxm")
    machine = Machine.of(gpu, "fp16")
    d, printed_hz = 128, 1.83e9
    model = {
        "fp16 matmul peak": gpu.peak_flops_per_s("fp16") / 1e12,
        "special-function throughput": machine.special_ops_per_clk_sm * gpu.sm_count * printed_hz / 1e12,
        "matmul FLOPs per exp, d=128": 4.0 * d,
        "exp throughput deficit": machine.tensor_flops_per_clk_sm / machine.special_ops_per_clk_sm,
        "exp share of matmul cycles, fp16 d=128": 100
        * (1 / machine.special_ops_per_clk_sm)
        / (4 * d / machine.tensor_flops_per_clk_sm),
    }
    checks = [
        Check(
            place=n.place,
            what=n.quantity,
            unit=n.unit,
            paper=n.number,
            model=model[n.quantity],
            limit=0.01,
        )
        for n in select("Sec 3.1 pingpong")
    ]
    speeds = {n.detail: n.number for n in select("Table 2", "speed")}
    for n in select("Table 2", "time"):
        flops = n.problem.useful_flops
        checks.append(
            Check(
                place=n.place,
                what=f"speed from time, {n.detail.replace('fp16; ', '')}",
                unit="TFLOP/s",
                paper=speeds[n.detail],
                model=flops / (n.number * 1e-3) / 1e12,
                limit=0.005,
            )
        )
    return Group(
        name="flash3",
        title="FlashAttention-3: exponentials against matmuls",
        source=select("Sec 3.1 pingpong")[0].source,
        method="rates of the H100 profile; Table 2: useful flops over the printed time",
        checks=tuple(checks),
        command="iosim roofline --hw h100-sxm --heads 16 --seq 8K --head-dim 128",
    )


_TILE = 128
_MATMULS = {"fwd": 2, "bwd": 5}
_OPERAND_TILES = {"fwd": 3, "bwd": 13}
"""Tiles of 128 x 128 in bf16 through shared memory. Forward: Q and K for S, V for O, P stays in tensor memory.
Backward: as the authors count them, operands of five matmuls and the exchange of dS and dQ."""


def flash4_cycles() -> Group:
    """FlashAttention-4: clocks of a 128 x 128 tile at d = 128, by unit, from the rates that the authors print."""
    machine = Machine.of(load_profile("b200"), "bf16")
    tile_bytes = _TILE * _TILE * 2
    printed = {}
    checks = []
    for quantity, ours in (
        ("tensor ops/clk/SM bf16", machine.tensor_flops_per_clk_sm),
        ("exp unit ops/clk/SM", machine.special_ops_per_clk_sm),
        ("SMEM bytes/clk/SM", machine.shared_bytes_per_clk_sm),
    ):
        (n,) = select("feeds and speeds", quantity)
        printed[quantity] = n.number
        note = "model: of the b200 profile"
        checks.append(
            Check(
                place=n.place, what=quantity, unit=n.unit, paper=n.number, model=ours, limit=0.01, note=note
            )
        )
    tensor, special, shared = printed.values()
    for passes in ("fwd", "bwd"):
        clocks = {
            "tensor": _MATMULS[passes] * 2 * _TILE**3 / tensor,
            "exp": _TILE**2 / special,
            "SMEM": _OPERAND_TILES[passes] * tile_bytes / shared,
        }
        for unit, value in clocks.items():
            (n,) = select("feeds and speeds", f"{passes} tile {unit} cycles")
            checks.append(
                Check(
                    place=n.place,
                    what=f"{passes}, {unit}",
                    unit="clocks",
                    paper=n.number,
                    model=value,
                    limit=0.0,
                )
            )
    return Group(
        name="flash4-cycles",
        title="Clocks of one 128 x 128 tile at d = 128 on a B200, FlashAttention-4",
        source=select("feeds and speeds")[0].source,
        method="matmul flops, exponentials and shared-memory bytes of a tile over the printed rates a clock and SM",
        checks=tuple(checks),
        caveats=("The 13 tiles of the backward are the authors' count; the 2-CTA figure is not computed.",),
        command="iosim on-chip --hw b200 --tiles 128x128 --head-dim 128",
    )
