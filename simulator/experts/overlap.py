"""Two-batch overlap: halves of a batch alternate, one half computes while the tokens of the other are exchanged.

With c(T) the computation and m(T) the exchange of a layer, and C of S multiprocessors reserved for communication, a
layer takes c(T) + m(T) without it, and with it

    2 max(c(T/2) S / (S - C), m(T/2)),  and once  c(T/2) + m(T/2)  at the ends.

Conditions are vLLM's: all ranks or none; the rank with fewest tokens has at least the threshold, of decodes alone or
else of prompts; and no rank's second half is empty (vllm/v1/worker/ubatch_utils.py). The time is proposed: there is
no published check. Weights are read twice, as c(T/2) > c(T)/2 where they are what takes time.
"""
from simulator.domain.experts import Dbo


def is_split(fewest_tokens: int, has_prompts: bool, dbo: Dbo, padded_tokens: int | None = None) -> bool:
    """Return whether a batch is split.

    padded_tokens : of each rank; default: no more than it has.
    """
    padded = fewest_tokens if padded_tokens is None else padded_tokens
    threshold = dbo.prefill_token_threshold if has_prompts else dbo.decode_token_threshold
    return dbo.enabled and fewest_tokens >= threshold and padded // 2 < fewest_tokens
