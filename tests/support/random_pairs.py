"""Random prefill/decode pairs of engines, in the recorder's words: groups of layers, few blocks, transfers in turns."""
from random import Random

from support.random_hybrid import FAR, MOST_TRIES, hybrid_description


def random_pair(seed, kind=None):
    """Return the JSON description of a random pair; `kind`: one that the groups of layers must have.

    Times are whole microseconds that no step takes: the model counts in seconds, and breaks ties by their last bits.
    """
    rng = Random(seed + 7)
    description = _description(seed, kind)
    options = description["options"]
    blocks = options.pop("num_blocks")
    options |= {"async_scheduling": False, "num_speculative_tokens": 0, "spec_lookahead": 0, "policy": "fcfs",
                "prefill": {"num_blocks": blocks * rng.choice([1, 2])},
                "decode": {"num_blocks": blocks * rng.choice([1, 2, 4])}}
    for group in options["groups"]:
        if "window" in group:       # of one token nothing arrives: the order of blocks is another
            group["window"] = max(group["window"], 2)
    description["pd"] = {"route": 0.001003, "notify": 0.000507, "transfer": {
        "base": 0.004, "per_block": rng.choice([0.000011, 0.001013]), "fifo": rng.random() < 0.5}}
    for request in description["requests"]:
        request["output_len"] = max(request["output_len"], 2)
    return description


def _description(seed, kind):
    """Return groups of layers that a decode engine takes over; without prefix caching a state has no place to begin."""
    for _ in range(MOST_TRIES):
        description = hybrid_description(seed)
        kinds = {group["kind"] for group in description["options"]["groups"]}
        is_known = description["options"]["enable_prefix_caching"] or "mamba" not in kinds
        ends_early = any(request.get("max_tokens") == 1 for request in description["requests"])
        if is_known and not ends_early and (kind is None or kind in kinds):
            return description
        seed += FAR
    raise LookupError(f"no groups with {kind}")
