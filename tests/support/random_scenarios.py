"""Small random scenarios that crowd the scheduler: tight budgets, few blocks, shared prefixes, every option."""
from random import Random

TOKENS_PER_GROUP = 40


def random_description(seed, beyond_vllm=False):
    """Return the JSON description of a random scenario.

    Step times are multiples of 100 us and each instant of arrival has a remainder of its own, so that no sum of floats
    can fall on the wrong side of an arrival. `beyond_vllm` adds what the real scheduler has no word for (deadlines,
    requests without output, host times, separate prices) and version 0.10, and lets arrivals meet ends of iterations.
    """
    rng = Random(seed)
    options = _options(rng)
    requests = _requests(rng, options, ties=beyond_vllm)
    largest = max(min(prompt_tokens(request, requests) + request["output_len"], options["max_model_len"])
                  for request in requests)
    needed = -(-(largest + 2 * options["spec_lookahead"] + options["num_speculative_tokens"]) // options["block_size"])
    options["num_blocks"] = 2 + int((needed + 1) * rng.choice([1.0, 1.0, 1.3, 1.8, 4.0]) / (1 - options["watermark"]))
    description = {
        "name": f"random{seed}", "options": options, "requests": requests,
        "step_time": {"base": rng.choice([0.005, 0.01]), "per_token": rng.choice([0, 0.0001]),
                      "per_req": rng.choice([0, 0.0005])},
        "spec_accept": [rng.randint(0, options["num_speculative_tokens"]) for _ in range(rng.randint(1, 5))],
    }
    if beyond_vllm:
        _go_beyond_vllm(rng, description)
    return description


def _options(rng):
    drafts = rng.choice([0, 0, 1, 2, 4])
    budget = rng.choice([12, 16, 24, 40, 64, 200])
    return {
        "max_num_batched_tokens": budget,
        "max_num_scheduled_tokens": rng.choice([None, None, None, max(budget // 2, 10)]),
        "max_num_seqs": rng.choice([1, 2, 3, 4, 8, 16]),
        "max_num_active_seqs": rng.choice([None, None, None, 2]),
        "block_size": rng.choice([1, 2, 4, 8, 16]),
        "max_model_len": rng.choice([64, 128, 512]),
        "enable_prefix_caching": rng.random() < 0.7,
        "enable_chunked_prefill": rng.random() < 0.8,
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "long_prefill_token_threshold": rng.choice([0, 0, 7, 16]),
        "long_prefill_token_threshold_adaptive": rng.random() < 0.3,
        "scheduler_reserve_full_isl": rng.random() < 0.6,
        "watermark": rng.choice([0.0, 0.0, 0.05, 0.2]),
        "async_scheduling": rng.random() < 0.4,
        "num_speculative_tokens": drafts,
        "spec_lookahead": rng.choice([0, drafts]),
    }


def _requests(rng, options, ties):
    # Without chunking a prompt must fit the budget, or it waits for ever (resumed: with its outputs).
    room = options["max_model_len"]
    if not options["enable_chunked_prefill"]:
        room = min(room, options["max_num_scheduled_tokens"] or room, options["max_num_batched_tokens"])
    requests, now = [], 0.0
    for number in range(rng.randint(3, 16)):
        if not number or rng.random() < 0.6:
            now = round(now + rng.choice([0.0, 0.01, 0.03, 0.2]) + (0 if ties else 1e-6), 6)
        request = {"id": f"r{number}", "arrival": now, "output_len": rng.choice([1, 2, 5, 12, 30]),
                   "prompt": _prompt(rng, requests), "priority": rng.randint(0, 2)}
        if rng.random() < 0.2:
            request["stop_at"] = rng.randint(1, request["output_len"])
        excess = prompt_tokens(request, [*requests, request]) - (room - 1)
        if excess > 0:
            request["prompt"] = [["uniq", rng.randint(1, max(room - 2, 1))]]
        requests.append(request)
    return requests


def _prompt(rng, earlier):
    own = ["uniq", rng.choice([1, 3, 8, 20, 45])]
    kind = rng.random()
    if kind < 0.4:
        return [["group", rng.choice("AB"), rng.randint(1, TOKENS_PER_GROUP)], own]
    if kind < 0.5:
        return [["group", rng.choice("AB"), rng.choice([16, 32])]]
    if kind < 0.7 and earlier:
        other = rng.choice(earlier)
        return [["prompt", other["id"]], ["output", other["id"], other["output_len"]], own]
    return [own]


def prompt_tokens(request, requests):
    by_id = {other["id"]: other for other in requests}
    return sum(prompt_tokens(by_id[piece[1]], requests) if piece[0] == "prompt" else piece[-1]
               for piece in request["prompt"])


def with_connector(seed):
    """Return the JSON description of a random scenario with a KV connector: loads that come later, or within the
    iteration, and blocks that stay after the end.

    Each has a remainder of its own, for the reason given above. First come first served: by priority, the first
    executable model lets those go on in the order in which they asked whose KV has come, the second by priority.
    """
    description, rng = random_description(seed), Random(seed)
    description["options"] |= {"kv_connector": True, "async_scheduling": False, "num_speculative_tokens": 0,
                               "spec_lookahead": 0, "policy": "fcfs"}
    description["kv_load_time"] = {"base": rng.choice([0.000003, 0.020003, 0.050003]),
                                   "per_token": rng.choice([0.0, 0.0003])}
    by_role = rng.choice([(0.6, 0.1), (0.1, 0.6), (0.4, 0.4)])          # who mostly loads, who is mostly read
    for request in description["requests"]:
        tokens = prompt_tokens(request, description["requests"])
        if rng.random() < by_role[0]:
            comes_later = rng.random() < 0.7
            most = tokens if comes_later else tokens - 1            # one token is left to compute
            request["external"] = {"tokens": rng.choice([most, rng.randint(0, most)]), "async": comes_later}
        if rng.random() < by_role[1]:
            request["hold"] = rng.choice([0.001007, 0.03007, 0.16007])
    return description


def with_offload(seed, takes_drafts=False):
    """Return the JSON description of a random scenario with KV offload to host memory, which is mostly crowded, too."""
    return offloaded(random_description(seed), Random(seed), takes_drafts)


def offloaded(description, rng, takes_drafts=False):
    """Return a random scenario with KV offload to host memory."""
    drafts = {key: description["options"].pop(key, 0) for key in ("num_speculative_tokens", "spec_lookahead")}
    description["options"]["kv_offload"] = {
        "chunks": rng.choice([2, 3, 5, 8, 13, 30, 100]), "policy": rng.choice(["lru", "lru", "arc"]),
        "blocks_per_chunk": rng.choice([1, 1, 1, 2, 3]), "store_threshold": rng.choice([0, 0, 0, 2]),
        "offload_prompt_only": rng.random() < 0.5}
    slow = rng.choice([0.1, 1, 4])
    description["offload_time"] = {
        direction: {"base": round(slow * rng.choice([0.0, 0.003, 0.02]), 6),
                    "per_block": round(slow * rng.choice([0.0, 0.0004, 0.003]), 6)}
        for direction in ("store", "load")}
    description["options"]["vllm_version"] = rng.choice(["0.32", "0.33"])
    if takes_drafts and drafts["num_speculative_tokens"]:
        description["options"] |= drafts | {"eagle": rng.random() < 0.3 and drafts["spec_lookahead"] > 0}
    return description


def _go_beyond_vllm(rng, description):
    description["options"]["vllm_version"] = rng.choice(["0.10", "0.32", "0.33"])
    if rng.random() < 0.5:
        description["options"]["scheduler_reserve_full_isl"] = None         # the default of the version
    if rng.random() < 0.5:
        del description["step_time"]
        description["prices"] = {
            "base_us": rng.choice([2000.0, 5000.0]), "per_sequence_us": 10.0, "per_prefill_token_us": 21.3,
            "per_decode_token_us": rng.choice([0.0, 7.7]), "per_context_token_us": 0.05}
    if rng.random() < 0.3:
        description["host"] = {"queue_base_us": 250.0, "queue_per_prompt_token_us": 3.5, "output_token_us": 40.0,
                               "iteration_us": 100.0}
    for request in description["requests"]:
        if rng.random() < 0.1:
            request["output_len"] = 0
            request.pop("stop_at", None)
        if rng.random() < 0.15:
            request["deadline"] = round(request["arrival"] + rng.choice([0.0, 0.005, 0.05, 0.3]), 6)
        if rng.random() < 0.02:
            request["prompt"] = [["uniq", description["options"]["max_model_len"] - rng.randint(0, 1)]]
