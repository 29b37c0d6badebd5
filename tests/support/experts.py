"""Shares of experts by rank, and the proposed time of two-batch overlap."""
from simulator.experts.placement import of_slots


def of_ranks(slots, values, ranks):
    """Return the shares of the experts' values by rank, (layers, ranks)."""
    return of_slots(slots, values).reshape(len(slots), ranks, -1).sum(axis=2)


def overlapped_ns(half_compute_ns, half_exchange_ns, layers, dbo):
    """Return the time of all layers, given the times of half a batch; see simulator/experts/overlap.py."""
    slowed_ns = half_compute_ns * dbo.num_sms / (dbo.num_sms - dbo.comm_sms)
    return 2 * max(slowed_ns, half_exchange_ns) + (half_compute_ns + half_exchange_ns) / layers
