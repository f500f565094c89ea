"""The grammar refuses what would count wrongly: unknown operations, values out of scope, work outside a kernel."""

from __future__ import annotations

import pytest

from iosim.errors import ProgramError, UnknownOp, VerificationError
from iosim.interpret.verify import verify
from iosim.problem import AttentionProblem, TileShape
from iosim.program.builder import Builder, build
from iosim.program.ir import Span


def _build(function):
    return build(function, "mine", "none", {})


def test_an_unknown_op_is_named_with_the_known_ones():
    def program(p: Builder):
        (Q,) = p.tensors("Q")
        for i in p.blocks(Q):
            p.op("softermax", p.load("q", Q.tile(i)))

    with pytest.raises(UnknownOp, match=r"'softermax'.*known are matmul"):
        _build(program)


def test_a_value_of_a_finished_loop_cannot_be_used():
    def program(p: Builder):
        Q, K, O = p.tensors("Q K O")
        for i in p.blocks(Q):
            for j in p.loop("j", *p.key_tiles(Q.tile(i).rows)):
                k = p.load("k", K.tile(j))
            p.store(O.tile(i), k)

    with pytest.raises(ProgramError, match="k is used before it is defined on every path"):
        _build(program)


def test_nothing_on_chip_survives_a_kernel():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
        for i in p.blocks(Q):
            p.store(O.tile(i), q)

    with pytest.raises(ProgramError, match="inside a loop or kernel that has ended"):
        _build(program)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda p: p.tensors("Z"), "tensor 'Z' is not part of attention"),
        (lambda p: p.tensors("Q Q"), "declared twice"),
        (lambda p: None, "has no kernel"),
        (lambda p: list(p.loop("j", 0, 3)), "outside a kernel"),
        (lambda p: p.fill("x", 0, Span.whole(p.N)), "inside a kernel"),
        (lambda p: [list(p.kernel("b")) for _ in p.kernel("a")], "cannot be nested"),
        (lambda p: [[list(p.loop("j", 0, 2)) for _ in p.loop("j", 0, 3)] for _ in p.kernel("a")], "in use"),
        (lambda p: list(p.kernel("a")), "no output tensor"),
    ],
)
def test_broken_grammar_is_one_clear_sentence(program, message):
    with pytest.raises(ProgramError, match=message):
        _build(program)


def test_a_value_is_not_a_truth():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
            if q:
                p.store(O.tile(i), q)

    with pytest.raises(ProgramError, match="branches on the contents of q"):
        _build(program)


PROBLEM = AttentionProblem.of(seq=7, head_dim=3, heads=2)
TILES = TileShape(rows=2, cols=3)


def _verify(function):
    verify(_build(function), PROBLEM, TILES)


def test_storing_a_row_twice_is_found():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
            p.store(O.tile(i), q)
            p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match=r"O\[0:2, 0:3\].*stored twice"):
        _verify(program)


def test_storing_again_after_reading_is_a_running_result():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
            p.store(O.tile(i), q)
            p.store(O.tile(i), p.load("o", O.tile(i)) + q)

    _verify(program)


def test_a_race_between_thread_blocks_is_found():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for _ in p.blocks(Q):
            p.store(O.part(Span.whole(p.N)), p.load("q", Q.part()))

    with pytest.raises(VerificationError, match="stored twice"):
        _verify(program)


def test_rows_never_stored_are_found():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for _ in p.kernel("mine"):
            for _ in p.heads():
                for i in p.grid("i", 0, p.N // p.Br):  # forgets the ragged last tile
                    p.store(O.tile(i), p.load("q", Q.tile(i)))

    with pytest.raises(VerificationError, match=r"O\[6, 0\] of batch 0, head 0 is never stored"):
        _verify(program)


def test_reading_what_nobody_wrote_is_found():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        S = p.scratch("S")
        for i in p.blocks(Q):
            s = p.load("s", S.tile(i))
            p.store(O.tile(i), p.matmul(s, p.load("q", Q.part())))

    with pytest.raises(VerificationError, match=r"S\[0:2, 0:7\].*read before anything was stored"):
        _verify(program)


def test_leaving_a_tensor_is_found():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.part(Span(i * p.Br, (i + 1) * p.Br, p.Br, p.Br, "i")))
            p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match=r"Q\[6:8, 0:3\].*leaves the tensor, which is 7 x 3"):
        _verify(program)


def test_inputs_are_not_overwritten():
    def program(p: Builder):
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
            p.store(Q.tile(i), q)
            p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match="is an input"):
        _verify(program)
