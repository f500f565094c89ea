"""Every kernel at small sizes under NVIDIA's compute-sanitizer, which comes with the CUDA toolkit.

    python -m iosim_validation.sanitize [--tools memcheck,synccheck,racecheck] [--rungs flash2,decode] [--out FILE.csv]

One process a tool and kernel. Each launches every tile of its kernel on ragged problems, twice, planned for a GPU of
two SMs: a block then owns several tiles, and counters are used again. Exit code 4 when a tool finds anything.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from iosim.errors import DeviceError, IosimError, RunError, UsageError
from iosim.problem import AttentionProblem
from iosim_validation.build_all import build_all
from iosim_validation.cases import attention
from iosim_validation.counters import Run, run_command
from iosim_validation.gpu import Arrays
from iosim_validation.launch import GpuFacts, Plan
from iosim_validation.rung import Rung
from iosim_validation.validate import choose_rungs
from iosim_validation.whole_file import written_whole

TOOLS = ("memcheck", "synccheck", "racecheck")
FOUND = 4  # exit code when a tool found something
AT_ONCE = 6
LIMIT_S = 240
FEW_SMS = 2
BLOCK_MASK = "local:1+global:1"
# Ragged against every tile, keys shared by heads, rows that see nothing, a single query.
SMALL = (
    ((1, 2, 1, 200, 333), True, "fp16"),
    ((1, 2, 1, 333, 200), False, "bf16"),
    ((1, 2, 2, 230, 70), True, "fp16"),
    ((1, 4, 1, 1, 333), False, "bf16"),
)
HEAD_DIMS = (64, 128)
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one tool says about one kernel. `found`: errors or hazards; None when the run itself failed (`words`)."""

    rung: str
    tool: str
    launches: int
    found: int | None
    seconds: float
    words: str = ""


def small_plans(rung: Rung, gpu: GpuFacts) -> Iterator[tuple[AttentionProblem, Plan]]:
    """Every tile of a rung on every small problem that it is built for. `gpu` gives up all SMs but two."""
    few = replace(gpu, sms=FEW_SMS)
    chosen = rung.masked(BLOCK_MASK) or rung
    for head_dim in HEAD_DIMS:
        for shape, causal, dtype in SMALL:
            problem = attention(shape, head_dim, causal=causal, dtype=dtype)
            for tile in chosen.tiles(problem, few):
                try:
                    yield problem, chosen.plan(problem, few, tile)
                except UsageError:
                    continue  # this tile is not built for this problem


def launch_small(
    rung: Rung, gpu: GpuFacts, ready: Callable[[AttentionProblem, Plan], tuple[Callable[[], None], Arrays]]
) -> int:
    """Launch them, each twice, and say how many; `ready` makes inputs and outputs.

    Errors: `RunError` for an output with NaN, which is what outputs hold before the launch.
    """
    launches = 0
    for problem, plan in small_plans(rung, gpu):
        run, arrays = ready(problem, plan)
        for _ in range(2):
            run()
            launches += len(plan.launches)
        if bool(np.isnan(arrays["o"]).any()):
            raise RunError(
                f"{rung.name}: {problem.batch}x{problem.heads}x{problem.seq_q}: o has NaN or was not written"
            )
    return launches


def sanitize(
    rungs: Mapping[str, Rung],
    tools: Sequence[str] = TOOLS,
    *,
    run: Run = run_command,
    tell: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """One process a tool and rung, some at a time; in the order of rungs, then tools."""
    jobs = [(name, tool) for name in rungs for tool in tools]

    def one(job: tuple[str, str]) -> Finding:
        finding = _one(*job, run)
        tell(finding)
        return finding

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, jobs))


def read_summary(rung: str, tool: str, code: int, text: str, seconds: float) -> Finding:
    """What compute-sanitizer said. A run that ended badly, or without a summary, has found nothing and is no pass."""
    launched = re.search(r"launched (\d+)", text)
    summary = _SUMMARY.search(text)
    found = int(next(n for n in summary.groups() if n is not None)) if summary else None
    if found == 0 and (code or not launched):
        found = None
    lines = [line.strip("= ") for line in text.splitlines() if line.strip("= ")]
    return Finding(
        rung=rung,
        tool=tool,
        launches=int(launched[1]) if launched else 0,
        found=found,
        seconds=round(seconds, 1),
        words="" if found == 0 else " / ".join(lines[:3] + lines[-2:])[:400],
    )


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """As CSV, whole."""
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Finding)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(finding) for finding in findings)


def _one(rung: str, tool: str, run: Run) -> Finding:
    started = time.monotonic()
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)]
    outcome = run([*command, sys.executable, "-m", "iosim_validation.sanitize", "--launch", rung], LIMIT_S)
    return read_summary(rung, tool, outcome.code, outcome.text, time.monotonic() - started)


def _launch(name: str) -> None:
    """What runs under the tool. Inputs come from the host: it would check the library's kernels too, slowly."""
    from iosim_validation.device import cupy, gpu_facts, make_ready
    from iosim_validation.rungs import RUNGS

    module, random = cupy(), np.random.default_rng()

    def ready(problem: AttentionProblem, plan: Plan) -> tuple[Callable[[], None], Arrays]:
        b, d = problem.batch, problem.head_dim
        shapes = {
            "q": (problem.heads, problem.seq_q),
            "k": (problem.kv_heads, problem.seq_k),
            "v": (problem.kv_heads, problem.seq_k),
        }
        bf16 = str(problem.dtype_q) == "bf16"
        arrays = {
            key: module.asarray(_halves(random, (b, *shape, d), bf16=bf16)) for key, shape in shapes.items()
        }
        arrays["o"] = module.asarray(np.full((b, *shapes["q"], d), 0x7FFF, np.uint16))
        arrays["lse"] = module.asarray(np.full((b, *shapes["q"]), np.nan, np.float32))
        launch = make_ready(plan, arrays)

        def run() -> None:
            launch()
            module.cuda.runtime.deviceSynchronize()
            bits = module.asnumpy(arrays["o"])
            values["o"] = (bits.astype(np.uint32) << 16).view(np.float32) if bf16 else bits.view(np.float16)

        values: dict[str, np.ndarray] = {}
        return run, values

    print(f"launched {launch_small(RUNGS[name], gpu_facts(), ready)}")


def _halves(random: np.random.Generator, shape: tuple[int, ...], *, bf16: bool) -> np.ndarray:
    """N(0, 1) numbers as the bits of 16-bit floats."""
    numbers = random.standard_normal(shape, np.float32)
    return (
        (numbers.view(np.uint32) >> 16).astype(np.uint16)
        if bf16
        else numbers.astype(np.float16).view(np.uint16)
    )


def _print(finding: Finding) -> None:
    verdict = "failed" if finding.found is None else str(finding.found)
    name = f"{finding.rung:18} {finding.tool:10}"
    print(f"{name} {finding.launches:5} launches  {verdict:>6} found  {finding.seconds:6.1f} s")
    if finding.words:
        print(f"    {finding.words}")
    sys.stdout.flush()


def main(
    tools: Annotated[str, typer.Option(help="With commas.")] = ",".join(TOOLS),
    rungs: Annotated[str, typer.Option(help="With commas; all when left out.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the findings here, as CSV.")] = None,
    launch: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run compute-sanitizer over every kernel at small sizes."""
    from iosim_validation.rungs import RUNGS

    try:
        if launch:
            _launch(launch)
            return
        if shutil.which("compute-sanitizer") is None:
            raise DeviceError("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
        from iosim_validation.device import gpu_facts

        chosen = choose_rungs(rungs.split(",") if rungs else (), RUNGS)
        plans = [plan for rung in chosen.values() for _, plan in small_plans(rung, gpu_facts())]
        build_all(tuple(dict.fromkeys(one.build for plan in plans for one in plan.launches)))
        findings = sanitize(chosen, tools.split(","), tell=_print)
    except IosimError as error:
        print(f"iosim: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    if out:
        write_findings(out, findings)
    raise typer.Exit(0 if all(finding.found == 0 for finding in findings) else FOUND)


if __name__ == "__main__":
    typer.run(main)
