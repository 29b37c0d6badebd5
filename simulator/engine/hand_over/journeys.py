"""Requests of clients and their journeys, with those of their prefill legs added."""


def merged_journeys(journeys, num_clients):
    """Return the journeys of clients' requests with those of their prefill legs."""
    merged, legs = journeys[:num_clients], journeys[num_clients:]
    for name in ("downtime_ns", "retries", "migrations"):
        merged[name] += legs[name]
    split = legs["dispatched_ns"] >= 0
    merged["dispatched_ns"][split] = legs["dispatched_ns"][split]
    return merged


def with_prefill_times(requests, legs, transfers):
    """Let clients' requests begin with their prefill legs, in place.

    Except after a failed attempt at another replica to serve the whole request.

    requests, legs : structured arrays (n,), `records.REQUEST`. transfers : (n,), `records.TRANSFER`.
    """
    split = transfers["prefill_replica"] >= 0
    began = split & ((requests["scheduled_ns"] < 0) | (legs["scheduled_ns"] <= requests["scheduled_ns"]))
    for name in ("enqueued_ns", "scheduled_ns", "cached_tokens"):
        requests[name][began] = legs[name][began]
    requests["preemptions"] += legs["preemptions"]
    at_prefill = split & (requests["replica"] < 0)
    requests["replica"][at_prefill] = transfers["prefill_replica"][at_prefill]
