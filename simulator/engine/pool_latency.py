"""What the latency models of a cluster's pools say of themselves, for the results."""
from collections.abc import Sequence

from simulator.engine.plan import Pool


def provenance_of(pools: Sequence[Pool]) -> dict:
    """Return where the durations of iterations came from.

    As the latency model has it where all pools say the same; otherwise by name of the pool.
    """
    found = {pool.name: pool.latency.provenance() | _host(pool) for pool in pools}
    first, *others = found.values()
    return found if any(other != first for other in others) else first


def _host(pool: Pool) -> dict:
    """Return [latency.host] as it acts, in microseconds.

    Left out where it is as given: nobody's measurements stand in for it, and no delays of output tokens add up.
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
    """Return what a reader of the results has to know, each sentence once.

    What not all pools say begins with the names of those that do.
    """
    who = {}
    for pool in pools:
        for warning in (*pool.latency.warnings(), *pool.notes):
            who.setdefault(warning, {})[pool.name] = None
    return [warning if len(names) == len(pools) else f"pool{'s' * (len(names) > 1)} {', '.join(names)}: {warning}"
            for warning, names in who.items()]
