"""A matrix on chip while a program is built: arithmetic on it adds statements to the program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from iosim.errors import ProgramError
from iosim.program.ir import Span

if TYPE_CHECKING:
    from iosim.program.builder import Builder

Scope: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A matrix on chip: `rows` x `cols`. Arithmetic on values adds statements to the program."""

    name: str
    text: str
    rows: Span
    cols: Span
    scope: Scope
    builder: Builder = field(repr=False)
    transposed: bool = False

    @property
    def T(self) -> Value:
        """Transposed, as the second operand of a matmul."""
        return replace(self, transposed=not self.transposed, text=f"{self.text}ᵀ")

    def __matmul__(self, other: Value) -> Value:
        return self.builder.matmul(self, other)

    def __add__(self, other: Value) -> Value:
        return self.builder.op("add", self, other)

    def __sub__(self, other: Value) -> Value:
        return self.builder.op("sub", self, other)

    def __mul__(self, other: Value) -> Value:
        return self.builder.op("mul", self, other)

    def __bool__(self) -> bool:
        raise ProgramError(
            f"the program branches on the contents of {self.text}, which do not exist while it is built"
        )
