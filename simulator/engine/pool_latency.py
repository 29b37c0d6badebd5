"""Provenance and warnings of the latency models of a cluster's pools, for the results."""
from collections.abc import Sequence

from simulator.engine.plan import Pool


def provenance_of(pools: Sequence[Pool]) -> dict:
    """Return the provenance of the durations of iterations.

    That of the latency model if all pools agree; otherwise by name of the pool.
    """
    found = {pool.name: pool.latency.provenance() | _host(pool) for pool in pools}
    first, *others = found.values()
    return found if any(other != first for other in others) else first


def _host(pool: Pool) -> dict:
    """Return [latency.host] as in effect, in microseconds.

    {} if it is in effect as given: without default values, and without accumulated delays of output tokens.
    """
    host = pool.host
    adds_up = bool(host.output_token_accumulates and host.output_token_us)
    if host.defaults != "vllm" and not adds_up:
        return {}
    acts = {name: value for name in host.__struct_fields__
            if name.endswith("_us") and (value := getattr(host, name))}
    return {"host": acts | ({"output_token_accumulates": True} if adds_up else {})
            | ({"defaults": "vllm"} if host.defaults == "vllm" else {})}


def warnings_of(pools: Sequence[Pool]) -> list[str]:
    """Return the warnings for a reader of the results, each sentence once.

    A warning that applies to some of the pools begins with their names.
    """
    who = {}
    for pool in pools:
        for warning in (*pool.latency.warnings(), *pool.notes):
            who.setdefault(warning, {})[pool.name] = None
    return [warning if len(names) == len(pools) else f"pool{'s' * (len(names) > 1)} {', '.join(names)}: {warning}"
            for warning, names in who.items()]
