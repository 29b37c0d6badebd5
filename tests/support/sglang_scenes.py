"""Random scenarios in the format of the recorded runs of SGLang, most of them short of KV."""
from random import Random

POLICIES = ["fcfs"] * 3 + ["lpm", "lof", "hrrn", "dfs-weight", "shortest-prefill-first"]
EVICTIONS = ["lru"] * 3 + ["lfu", "fifo", "mru", "filo", "priority", "slru"]


def random_scene(seed, has_long=None, **options):
    """Return a scenario.

    has_long : some prompts are about as long as the server takes them, or longer; None: in some scenes.
    options : of the scheduler, in place of those that are drawn.
    """
    rng = Random(f"{seed}: scene")
    drawn = _options(rng) | options
    has_long = rng.random() < 0.25 if has_long is None else has_long
    return {"name": f"scene {seed}", "max_steps": 20_000, "options": drawn, "requests": _requests(rng, drawn, has_long),
            "step_time": {"base": rng.choice([0.005, 0.01, 0.02]), "per_token": rng.choice([0, 0.0001, 0.0003]),
                          "per_req": rng.choice([0, 0.0005])}}


def _options(rng):
    page, context = rng.choice([1, 1, 1, 4, 16, 64]), rng.choice([128, 256, 512])
    pool = max(context + rng.choice([8, 38, 50, 108, 300]), 5 * page) if rng.random() < 0.75 else 4 * context
    chunk = max(rng.choice([-1, 32, 64, 128, 256, 2048]), -1)
    chunk = 2 * page if 0 < chunk < page else chunk
    options = {"page_size": page, "max_total_tokens": pool, "context_length": context, "chunked_prefill_size": chunk,
               "max_prefill_tokens": rng.choice([64, 200, 16384, 16384]),
               "max_running_requests": rng.choice([1, 2, 3, 4, 8, 16, 32]), "schedule_policy": rng.choice(POLICIES),
               "schedule_conservativeness": rng.choice([0.02, 0.1, 0.2, 0.3, 0.5, 1.0, 1.5]),
               "enable_mixed_chunk": chunk > 0 and rng.random() < 0.5, "disable_radix_cache": rng.random() < 0.15,
               "disable_overlap_schedule": rng.random() < 0.5, "radix_eviction_policy": rng.choice(EVICTIONS),
               "enable_priority_scheduling": rng.random() < 0.45}
    if options["enable_priority_scheduling"]:
        options |= {"disable_priority_preemption": rng.random() < 0.4,
                    "schedule_low_priority_values_first": rng.random() < 0.5,
                    "priority_scheduling_preemption_threshold": rng.choice([0, 1, 10]),
                    "retraction_policy": rng.choice([None, "priority"])}
    if rng.random() < 0.2:
        options["max_queued_requests"] = rng.choice([2, 5, 10])
    if rng.random() < 0.2:
        options["prefill_max_requests"] = rng.choice([1, 2, 3])
    if rng.random() < 0.15:
        options |= {"prefill_decode_interval": rng.choice([1, 2, 5]),
                    "prefill_decode_interval_min_bs": rng.choice([0, 2])}
    return options


def _requests(rng, options, has_long):
    """Draw 6 to 36 requests: some share text, some go on with an earlier answer."""
    requests, arrival = [], 0.0
    for number in range(rng.randint(6, 36)):
        if rng.random() < 0.5:
            arrival = round(arrival + rng.expovariate(20), 4)
        prompt = _prompt(rng, requests, options, has_long)
        request = {"id": f"r{number}", "arrival": arrival, "prompt": prompt, "tokens": _tokens(prompt, requests),
                   "output_len": rng.choice([rng.randint(1, 20), rng.randint(1, options["context_length"] // 2)])}
        if options["enable_priority_scheduling"]:
            request["priority"] = rng.choice([0, 1, 2, 5, 15, 40])
        if rng.random() < 0.25:
            request["stop_at"] = rng.randint(1, request["output_len"])
        elif rng.random() < 0.15:
            request["ignore_eos"] = True
        requests.append(request)
    return requests


def _prompt(rng, requests, options, has_long):
    page, pieces = options["page_size"], []
    limit = min(options["context_length"], options["max_total_tokens"] // page * page) - 7
    if requests and rng.random() < 0.15:
        other = rng.choice(requests)
        said = min(other["output_len"], other.get("stop_at", 1 << 30) - 1)
        pieces = [["prompt", other["id"]]]
        pieces += [["output", other["id"], rng.randint(1, said)]] if said > 0 and rng.random() < 0.7 else []
    elif rng.random() < 0.3:
        pieces = [["group", rng.choice("ABCD"), rng.randint(1, 80)]]
    if not pieces or rng.random() < 0.7:
        pieces.append(["uniq", rng.randint(1, 90)])
    if has_long and rng.random() < 0.2:         # or just not
        over = rng.choice([-1, 0, 1, 2, 3, 5, 6, 7, 20])
        return [*pieces, ["uniq", max(limit - _tokens(pieces, requests) + over, 1)]]
    return pieces if _tokens(pieces, requests) <= limit else [["uniq", rng.randint(1, 90)]]


def _tokens(prompt, requests):
    """Return the length of a prompt."""
    lengths = {request["id"]: request["tokens"] for request in requests}
    return sum(lengths[piece[1]] if piece[0] == "prompt" else piece[-1] for piece in prompt)
