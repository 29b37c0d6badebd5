"""Random workloads of some hundred requests with long outputs: long enough for the engine to plan ahead."""
from random import Random


def random_traffic(seed):
    """Return (JSON description, number of replicas)."""
    rng = Random(seed)
    block_size, replicas = rng.choice([1, 8, 16]), rng.choice([1, 1, 2, 5])
    options = {
        "max_num_batched_tokens": rng.choice([64, 512, 4096]), "max_num_seqs": rng.choice([2, 16, 64]),
        "block_size": block_size, "max_model_len": 1024,
        "num_blocks": 1 + rng.choice([1100, 2200, 20_000]) // block_size,
        "enable_prefix_caching": rng.random() < 0.5, "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "enable_chunked_prefill": rng.random() < 0.9, "long_prefill_token_threshold": rng.choice([0, 0, 40]),
        "scheduler_reserve_full_isl": rng.random() < 0.8, "watermark": rng.choice([0.0, 0.0, 0.05]),
        "async_scheduling": rng.random() < 0.25, "num_speculative_tokens": rng.choice([0, 0, 0, 2]),
        "vllm_version": rng.choice(["0.10", "0.32", "0.33"]),
    }
    gap = rng.choice([0.0, 0.005, 0.02, 0.3])
    deadlines = rng.random() < 0.3
    requests, now = [], 0.0
    for number in range(120):
        now = round(now + rng.choice([0.0, gap, 2 * gap]), 6)
        requests.append({"id": f"r{number}", "arrival": now, "output_len": rng.choice([0, 1, 5, 100, 400]),
                         "priority": rng.randint(0, 2), "prompt": _prompt(rng, requests)})
        if deadlines and rng.random() < 0.4:
            requests[-1]["deadline"] = round(now + rng.choice([0.02, 0.5, 3.0]), 6)
    description = {
        "name": f"traffic{seed}", "options": options, "requests": requests, "spec_accept": [1, 0, 2],
        "prices": {"base_us": 5000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 20.0,
                   "per_context_token_us": 0.05}}
    _end_early(Random(f"{seed}: ends"), description)
    if rng.random() < 0.3:
        description["host"] = {"queue_base_us": 300.0, "output_token_us": 50.0, "iteration_us": 150.0}
    return description, replicas


def _end_early(rng, description):
    """Let more schedule asynchronously, and some requests stop before max_tokens: one token is then in vain."""
    description["options"]["async_scheduling"] |= rng.random() < 0.3
    for request in description["requests"]:
        if request["output_len"] > 1 and rng.random() < 0.3:
            request["stop_at"] = rng.randint(1, request["output_len"])


def _prompt(rng, earlier):
    own = ["uniq", rng.choice([1, 10, 60, 300])]
    if rng.random() < 0.3:
        return [["group", rng.choice("AB"), rng.choice([32, 64, 100])], own]
    if rng.random() < 0.1 and earlier:
        return [["own", rng.choice(earlier)["id"], 50], own]
    if rng.random() < 0.1 and earlier:
        return [["output", rng.choice(earlier)["id"], 50], own]
    return [own]
