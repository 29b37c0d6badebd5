"""Random scenarios of caches with groups of layers: windows, chunks, states, unequal blocks, few blocks."""
from random import Random

from support.random_scenarios import offloaded, prompt_tokens, random_description

FAR = 100_000           # other seeds
MOST_TRIES = 1000


def hybrid_description(seed, beyond_vllm=False):
    """Return the JSON description of a random scenario with groups of layers; `beyond_vllm`: see random_scenarios."""
    description, rng = random_description(seed, beyond_vllm), Random(seed)
    options = description["options"]
    options["vllm_version"] = "0.32"
    options["enable_chunked_prefill"] |= options["async_scheduling"]    # who is preempted may never fit a budget again
    block_size = options["block_size"] = rng.choice([2, 4, 8, 16])
    options["groups"] = _groups(rng, block_size, options)
    kinds = {group["kind"] for group in options["groups"]}
    if "mamba" in kinds:
        options |= {"num_speculative_tokens": 0, "spec_lookahead": 0}
    if options["enable_prefix_caching"]:
        options["prefix_cache_retention_interval"] = rng.choice([0, 0, None, block_size, 2 * block_size, 16])
    longest = max(min(prompt_tokens(request, description["requests"]) + request["output_len"],
                      options["max_model_len"]) for request in description["requests"])
    slack = 2 * options["spec_lookahead"] + options["num_speculative_tokens"]
    needed = sum(-(-(longest + slack) // group.get("block_size", block_size)) for group in options["groups"])
    options["num_blocks"] = 2 + int((needed + 1) * rng.choice([1.0, 1.0, 1.2, 1.5, 3.0]) / (1 - options["watermark"]))
    return description


def with_hits_inside(seed):
    """Return one whose hits may end inside blocks: of states, some beside windows, some in larger blocks."""
    description = hybrid_description(seed, beyond_vllm=True)
    while not _keeps_states(description["options"]):
        seed += FAR
        description = hybrid_description(seed, beyond_vllm=True)
    options, rng = description["options"], Random(-seed)
    size, larger = options["block_size"], rng.choice([1, 1, 2])
    unit = options["prefix_match_unit"] = rng.choice([each for each in (1, 2, 4, 8) if each < size])
    for group in options["groups"]:
        if group["kind"] == "sliding":
            group["block_size"] = rng.choice([unit, unit, size])
    options["groups"] = [group | {"block_size": larger * size} if group["kind"] == "mamba" else group
                         for group in options["groups"]]
    options["num_blocks"] += 40 * any(group.get("block_size", size) < size for group in options["groups"])
    if options.get("prefix_cache_retention_interval"):
        options["prefix_cache_retention_interval"] = 2 * size * rng.choice([1, 2])
    if rng.random() < 0.2 and larger > 1:
        options["prefix_match_unit"] = None
    return description


def _keeps_states(options):
    return options["enable_prefix_caching"] and any(
        group["kind"] == "mamba" and group.get("mode", "align") == "align" for group in options["groups"])


def with_group_offload(seed):
    """Return the same with KV offload to host memory, of layers that it knows."""
    description = hybrid_description(seed)
    for _ in range(MOST_TRIES):
        kinds = {group["kind"] for group in description["options"]["groups"]}
        if "chunked" not in kinds and (description["options"]["enable_prefix_caching"] or "mamba" not in kinds):
            break
        seed += FAR
        description = hybrid_description(seed)
    return offloaded(description, Random(seed))


def _groups(rng, block_size, options):
    """Return groups of kinds that vLLM has together."""
    window = rng.choice([1, 2, block_size, block_size + 1, 3 * block_size, 40])
    sliding = {"kind": "sliding", "window": window}
    draw = rng.random()
    if draw < 0.15:
        return [sliding]
    if draw < 0.25:
        return [{"kind": "full"}, {"kind": "chunked", "chunk": block_size * rng.choice([1, 2, 5])}]
    if draw < 0.35:
        return [{"kind": "chunked", "chunk": block_size * rng.choice([2, 3])}]
    if draw < 0.6:
        mamba = {"kind": "mamba"}
        if not options["enable_prefix_caching"]:
            mamba = {"kind": "mamba", "mode": "none", "block_size": options["max_model_len"]}
        more = [sliding] if rng.random() < 0.2 and options["enable_prefix_caching"] else []
        return [{"kind": "full"}, *more, *[mamba] * rng.randint(1, 3)]
    if draw < 0.75:
        sliding["block_size"] = block_size * 2
        return rng.choice([[{"kind": "full"}, sliding], [sliding, {"kind": "full"}]])
    if draw < 0.85:
        return [{"kind": "full"}, sliding, {"kind": "sliding", "window": 2 * window + 1}]
    return rng.choice([[{"kind": "full"}], [{"kind": "full"}, {"kind": "full"}]]) + [sliding] * rng.randint(1, 4)
