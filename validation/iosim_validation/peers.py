"""Attention by torch on the same inputs: its fused backends, and three kernels with S and P in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from iosim.problem import AttentionProblem
from iosim_validation.gpu import Arrays, Job

FLASH2, CUDNN, EFFICIENT, UNFUSED = (
    "torch_sdpa_flash2",
    "torch_sdpa_cudnn",
    "torch_sdpa_efficient",
    "torch_unfused",
)
PEERS = (FLASH2, CUDNN, EFFICIENT, UNFUSED)
UNFUSED_KERNELS = ("qk_gemm", "softmax", "pv_gemm")
BACKENDS = {FLASH2: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION", EFFICIENT: "EFFICIENT_ATTENTION"}
GROUPED = (FLASH2, CUDNN)  # backends that take fewer key heads than query heads


@lru_cache(maxsize=1)
def torch() -> Any:
    """The torch module with a GPU behind it, or None."""
    try:
        import torch as module
    except ImportError:
        return None
    return module if module.cuda.is_available() else None


def does(name: str, problem: AttentionProblem) -> bool:
    """Whether a peer computes this problem as it stands.

    torch aligns a causal mask at the top, ours lies at the bottom: they agree for seq_q = seq_k and for one query.
    """
    causal = problem.mask.kind == "causal"
    if problem.mask.kind not in ("none", "causal") or problem.value_dim != problem.head_dim:
        return False
    if causal and problem.seq_q not in (1, problem.seq_k):
        return False
    if name == UNFUSED:
        return not causal and problem.group_size == 1
    return problem.group_size == 1 or name in GROUPED


def peer_job(name: str, problem: AttentionProblem, arrays: Arrays) -> Job | None:
    """A peer on these inputs; None without torch or where it does not do the problem."""
    module = torch()
    if module is None or not does(name, problem):
        return None
    q, k, v = (_tensor(module, arrays[x], str(problem.dtype_q)) for x in "qkv")
    run = _unfused(module, problem, q, k, v) if name == UNFUSED else _fused(module, name, problem, q, k, v)

    def fill() -> None:
        import cupy

        raw = run().contiguous().view(module.uint8)
        cupy.copyto(arrays["o"].view(cupy.uint8), cupy.from_dlpack(raw))

    return Job(run=run, fill=fill, has_lse=False, library="torch")


def _fused(module: Any, name: str, problem: AttentionProblem, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, BACKENDS[name])
    attention = module.nn.functional.scaled_dot_product_attention
    causal = problem.mask.kind == "causal" and problem.seq_q > 1
    more = {"enable_gqa": True} if problem.group_size > 1 else {}

    def run() -> Any:
        with module.no_grad(), sdpa_kernel(backend):
            return attention(q, k, v, is_causal=causal, scale=problem.softmax_scale, **more)

    return run


def _unfused(module: Any, problem: AttentionProblem, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    """Two batched GEMMs around a softmax, the scale inside the first one; S and P written in the inputs' dtype."""
    pairs = problem.batch * problem.heads
    q, k, v = (x.reshape(pairs, *x.shape[2:]) for x in (q, k, v))
    s = module.empty((pairs, problem.seq_q, problem.seq_k), dtype=q.dtype, device=q.device)
    keys = k.transpose(1, 2)

    def run() -> Any:
        with module.no_grad():
            s.baddbmm_(q, keys, beta=0, alpha=problem.softmax_scale)
            o = module.bmm(module.softmax(s, dim=-1), v)
            return o.reshape(problem.batch, problem.heads, problem.seq_q, -1)

    return run


def _tensor(module: Any, array: Any, dtype: str) -> Any:
    """A CuPy array as a torch tensor on the same memory; bf16 comes as the bits in 16-bit integers."""
    if dtype == "fp16":
        return module.from_dlpack(array)
    return module.from_dlpack(array.view("int16")).view(module.bfloat16)


def unfused_bytes(problem: AttentionProblem) -> int:
    """Memory that S and P of the unfused peer take."""
    return 2 * problem.batch * problem.heads * problem.seq_q * problem.seq_k * problem.dtype_q.itemsize
