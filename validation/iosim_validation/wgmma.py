"""The text of one wgmma as a C++ function: its asm statement names every accumulator register."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal


def product(
    name: str, *, columns: int, left: Literal["shared", "registers"], right_transposed: bool, bf16: bool
) -> str:
    """`void name(float (&d)[columns / 2], left, right, int accumulate)`: d [64 × columns] (+)= left [64 × 16] right.

    `left`: a descriptor, or four registers a thread; `right`: a descriptor of columns × 16 (K-major), or of
    16 × columns when transposed. `accumulate` 0 starts anew. fp32 accumulators, columns / 2 of them a thread.
    """
    count = columns // 2
    kind = "bf16" if bf16 else "f16"
    if left == "shared":
        operand, parameter, inputs = f"%{count}", "unsigned long long left", ['"l"(left)']
        transposes = f"0, {int(right_transposed)}"
    else:
        operand = _braced(f"%{count + i}" for i in range(4))
        parameter, inputs = "const unsigned *left", [f'"r"(left[{i}])' for i in range(4)]
        transposes = f"{int(right_transposed)}"  # registers have one order only
    after = count + len(inputs)
    right, accumulate = f"%{after}", f"%{after + 1}"
    instruction = (
        f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
        f"{_braced(f'%{i}' for i in range(count))}, {operand}, {right}, add, 1, 1, {transposes};"
    )
    outputs = [f'"+f"(d[{i}])' for i in range(count)]
    inputs += ['"l"(right)', '"r"(accumulate)']
    return (
        f"__device__ __forceinline__ void {name}"
        f"(float (&d)[{count}], {parameter}, unsigned long long right, int accumulate) {{\n"
        f'    asm volatile("{{\\n.reg .pred add;\\nsetp.ne.b32 add, {accumulate}, 0;\\n{instruction}\\n}}"\n'
        f"                 : {', '.join(outputs)}\n"
        f"                 : {', '.join(inputs)});\n"
        "}\n"
    )


def _braced(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"
