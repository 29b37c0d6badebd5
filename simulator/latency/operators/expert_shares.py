"""Experts of a rank that were measured with more than the rank's share of an even load.

With even loads two expert-parallel ranks compute half of the pairs of tokens and experts each. Yet some kernels take as
long over two ranks as over one in the tables, by kernel, format and mixture:

- FlashInfer's and TensorRT-LLM's kernels that route the tokens themselves (SGLang 0.5.14, vLLM 0.24.0,
  `moe_torch_flow_min_latency`), and SGLang's Triton kernel, with DeepSeek-V3's mixture: it routes within 4 of 8 groups
  of experts, and the equal scores of an even load always give the same groups. Four experts get every token: at 16,384
  tokens on GB200 fp8_block takes 6.9 ms over 32 ranks, 2.456, 3.830 and 6.578 ms over 256, 128 and 64, a line in the
  experts that a rank holds. Mixtures of 256 experts of width 6144, and of 384, take 0.13 and 0.09 of one rank's time
  over 32 ranks with the same kernel, this one 0.57; with a skewed load 0.14, 0.11 and 0.25.
- SGLang 0.5.10, with all mixtures: the tokens chose among the experts of the rank alone.
- vLLM 0.19.0, mxfp4: one rank was timed for all.

Such rows are left out. Mixtures beside them on as many ranks, or the same one on one rank, lend their utilisation.
"""
import numpy as np

from simulator.latency.operators.rows import default, formats

EVEN = "balanced"
MIXTURE = ("hidden_size", "inter_size", "topk", "num_experts")
LEAST_TOKENS = 1024             # below, launches and weights may count for more than pairs of tokens and experts
# Of one rank's time, over two. Of sound kernels 0.25 to 0.68 (Blackwell, H200; 4,096 tokens), of others 0.76 to 1.02.
MOST = 0.75


def holds_share(columns: dict) -> np.ndarray:
    """Return the mask of rows with each rank's share of the load.

    columns : of `moe`, with moe_tp_size and moe_ep_size.
    """
    names = [default(columns, "kernel_source", ""), formats(columns, "moe_dtype"), *(columns[name] for name in MIXTURE)]
    _, kinds = np.unique(np.array([_codes(values) for values in names]), axis=1, return_inverse=True)
    kinds, ranks = kinds.reshape(-1), columns["moe_ep_size"]
    is_even = default(columns, "distribution", EVEN) == EVEN
    is_even = is_even & (columns["moe_tp_size"] == 1) & (columns["num_tokens"] >= LEAST_TOKENS)
    one, two = (_times(columns, kinds, is_even & (ranks == size)) for size in (1, 2))
    last: dict[int, tuple] = {}
    for kind, tokens in sorted(one.keys() & two.keys()):
        last[kind] = (kind, tokens)
    refused = [kind for kind, point in last.items() if two[point] > MOST * one[point]]
    return (ranks == 1) | ~np.isin(kinds, refused)


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _times(columns: dict, kinds: np.ndarray, kept: np.ndarray) -> dict[tuple, float]:
    """Return the times of some rows by kind and tokens."""
    return dict(zip(zip(kinds[kept].tolist(), columns["num_tokens"][kept].tolist(), strict=True),
                    columns["latency_ms"][kept].tolist(), strict=True))
