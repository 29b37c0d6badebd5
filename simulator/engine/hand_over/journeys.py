"""Journeys of clients' requests, with those of their prefill legs added."""


def merged_journeys(journeys, num_clients):
    """Return the journeys of clients' requests with those of their prefill legs."""
    merged, legs = journeys[:num_clients], journeys[num_clients:]
    for name in ("downtime_ns", "retries", "migrations"):
        merged[name] += legs[name]
    split = legs["dispatched_ns"] >= 0
    merged["dispatched_ns"][split] = legs["dispatched_ns"][split]
    return merged
