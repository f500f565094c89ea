"""Ways of writing an attention kernel, and the few constants of each: what a kernel's own facts do not say.

One class for many kernels: a new kernel of a class is predicted without a new constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from iosim.errors import ProfileError

_H200 = "fitted to the run times of validation/measurements/h200/attention.csv"
_FLASH2_BACKWARD = "fitted to FlashAttention-2, Figure 4 (A100, forward and backward)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number with its unit, its standard deviation in that unit, and where it is from."""

    value: float
    spread: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """Constants of one way to write a kernel.

    `tensor_share`: rate inside the matmuls as a share of the tensor peak, by architecture. `hidden_exp`: part of the
    exponentials that runs behind a matmul (0: in turn, 1: perfect overlap). `disorder`: of warpgroups that go from the
    tensor cores to the softmax and back (1: each when it comes, as chance has it; 0: in perfect order); None where
    `hidden_exp` says how units overlap. `softmax_ops`: instructions a score beside its exponential, counted where
    `disorder` is known. `mask_ops`: instructions a score of a tile that the mask or the end of the keys crosses.
    `operands_by_warp`: every warp loads K and V from shared memory into its registers; otherwise the tensor cores read
    shared memory themselves. `backward_share`, `backward_ops`: tensor share (its shared-memory time included) and
    instructions a score of the backward.
    `interleaved_exp`: the same of a kernel whose exponentials stand between products (a fact of its card).
    `fitted_on`: the card of the kernel on which the class is held against run times; what its rows cost (rescale,
    spills) is in the class already.
    `stream_share`: of the memory bandwidth, by a streaming GEMM. `vector_share`: of the FP32 peak, by a GEMM without
    tensor cores.
    """

    name: str
    title: str
    operands_by_warp: bool = False
    tensor_share: Mapping[str, Constant]
    fitted_on: str | None = None
    hidden_exp: Constant | None = None
    interleaved_exp: Constant | None = None
    disorder: Constant | None = None
    softmax_ops: Constant | None = None
    mask_ops: Constant | None = None
    backward_share: Mapping[str, Constant] = field(default_factory=dict)
    backward_ops: Constant | None = None
    stream_share: Constant | None = None
    vector_share: Constant | None = None

    def share_on(self, architecture: str, *, backward: bool = False) -> Constant:
        """The tensor share on an architecture; `ProfileError` where none is known."""
        shares = self.backward_share if backward else self.tensor_share
        found = shares.get(architecture)
        if found is None:
            what = "the backward" if backward else "constants"
            raise ProfileError(
                f"kernel class {self.name}: {what} not known on {architecture}; known: {', '.join(shares) or 'none'}"
            )
        return found


def _nominal(what: str) -> Constant:
    return Constant(value=1.0, spread=0.03, unit="of peak", source=f"nominal rate; {what}")


_MASK = Constant(value=9, spread=2, unit="instructions a score", source=f"{_H200}; both fused classes alike")
_INTERLEAVED = Constant(
    value=0.38,
    spread=0.1,
    unit="of the exponentials",
    source="one number, the gain of overlap in FlashAttention-3 Table 2, taken over",
)
_IN_TURN = Constant(
    value=0,
    spread=0.1,
    unit="of the exponentials",
    source="nominal, in turn",
)

MMA_SYNC = KernelClass(
    name="mma-sync",
    title="mma.sync, operands through registers, matmul and exponentials in turn",
    operands_by_warp=True,
    tensor_share=MappingProxyType(
        {
            "ampere": _nominal(
                "with the shared-memory term, FlashAttention-2 Figure 4 leaves nothing to fit"
            ),
            "ada": _nominal("taken from Ampere"),
            "hopper": Constant(
                value=0.667,
                spread=0.02,
                unit="of peak",
                source="micro-benchmark, 2724 of 4096 FLOP/clk/SM; counters of tensor cycles say the same",
            ),
        }
    ),
    fitted_on="torch-flash2",
    hidden_exp=_IN_TURN,
    interleaved_exp=_INTERLEAVED,
    mask_ops=_MASK,
    backward_share=MappingProxyType(
        {
            "ampere": Constant(value=0.776, spread=0.02, unit="of peak", source=_FLASH2_BACKWARD),
            "hopper": Constant(
                value=0.517,
                spread=0.07,
                unit="of peak",
                source="the A100's, times the ratio of the forward shares",
            ),
        }
    ),
    backward_ops=Constant(value=7.3, spread=1, unit="instructions a score", source=_FLASH2_BACKWARD),
)
_SOFTMAX = Constant(
    value=3.5,
    spread=0.5,
    unit="instructions a score",
    source="counted: maximum, multiply-add, sum, half of a conversion to 16 bits",
)
WGMMA = KernelClass(
    name="wgmma",
    title="wgmma, operands by descriptor, warpgroups that nothing orders",
    tensor_share=MappingProxyType(
        {
            "hopper": Constant(
                value=1.0,
                spread=0.02,
                unit="of peak",
                source="micro-benchmark, 4095 of 4096 FLOP/clk/SM",
            )
        }
    ),
    fitted_on="cudnn-sdpa",
    disorder=Constant(value=1.0, spread=0.1, unit="of chance", source="nominal; cuDNN on an H200 fits 1.05"),
    softmax_ops=_SOFTMAX,
    mask_ops=_MASK,
)
WGMMA_PING_PONG = KernelClass(
    name="wgmma-ping-pong",
    title="wgmma, warpgroups that take turns",
    tensor_share=WGMMA.tensor_share,
    fitted_on="cudnn-sdpa",
    disorder=Constant(
        value=0.0,
        spread=0.2,
        unit="of chance",
        source="nominal; FlashAttention-3 Table 2 comes out 0.4 % off",
    ),
    softmax_ops=_SOFTMAX,
    mask_ops=_MASK,
)
UNFUSED = KernelClass(
    name="unfused",
    title="a GEMM, a softmax, a GEMM",
    tensor_share=MappingProxyType(
        {name: _nominal("never the limit where S goes to memory") for name in ("ampere", "ada", "hopper")}
    ),
    stream_share=Constant(value=0.89, spread=0.04, unit="of the bandwidth", source=_H200),
    vector_share=Constant(value=0.6, spread=0.06, unit="of the FP32 peak", source=_H200),
)

CLASSES: Mapping[str, KernelClass] = MappingProxyType(
    {c.name: c for c in (MMA_SYNC, WGMMA, WGMMA_PING_PONG, UNFUSED)}
)
