"""Shares of experts by rank, and two-batch overlap as simulator/experts/README.md describes it."""
from simulator.experts.placement import of_slots


def of_ranks(slots, values, ranks):
    """Return the shares of the experts' values by rank, (layers, ranks)."""
    return of_slots(slots, values).reshape(len(slots), ranks, -1).sum(axis=2)


def overlapped_ns(half_compute_ns, half_exchange_ns, layers, dbo):
    """Return the time of all layers, given the times of half a batch; see the page of the room."""
    slowed_ns = half_compute_ns * dbo.num_sms / (dbo.num_sms - dbo.comm_sms)
    return 2 * max(slowed_ns, half_exchange_ns) + (half_compute_ns + half_exchange_ns) / layers


def is_split(fewest_tokens, has_prompts, dbo, padded_tokens=None):
    """Return whether a batch is split.

    padded_tokens : of each rank; None: no more than it has.
    """
    padded = fewest_tokens if padded_tokens is None else padded_tokens
    threshold = dbo.prefill_token_threshold if has_prompts else dbo.decode_token_threshold
    return dbo.enabled and fewest_tokens >= threshold and padded // 2 < fewest_tokens
