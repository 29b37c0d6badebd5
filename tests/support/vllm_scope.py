"""Which recorded scenarios of vLLM the engine can run, and those that it can once they are said in other words.

Two features change nothing but what the scheduler is told:
  - decode context parallelism n: a block of B slots in layers of full attention holds n B tokens (specs/vllm_more.md,
    N);
  - LoRA adapters that all fit at once: prompts of different adapters share no block, like those of different streams.
"""
import math

# Options by the recorder's names; a value that is none, 0 or false says "not used".
KNOWN = {"max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_seqs", "max_num_active_seqs", "block_size",
         "num_blocks", "enable_prefix_caching", "max_model_len", "enable_chunked_prefill", "policy",
         "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "scheduler_reserve_full_isl",
         "watermark", "async_scheduling", "num_speculative_tokens", "spec_lookahead", "kv_connector",
         "kv_offload", "groups", "eagle", "disable_lookahead", "vllm_version", "prefill_schedule_interval"}
# Options that only act on what requests bring along, or on caches with several groups
OF_ENCODERS = {"max_num_encoder_input_tokens", "encoder_cache_size", "disable_chunked_mm_input"}
OF_REQUESTS = {"max_loras", "prefix_cache_retention_interval", "prefix_match_unit", *OF_ENCODERS}
KINDS = {"full": "full_attention", "sliding": "sliding_attention", "chunked": "chunked_attention",
         "mamba": "linear_attention"}
GROUP_KEYS = {"kind", "block_size", "window", "chunk", "mode", "checkpoint", "drafts"}
SEVERAL_KINDS = "a KV connector beside a KV cache of several kinds"
PAIR = "a prefill/decode pair, see `test_vllm_pd.py`"
RANKS = "nothing but data-parallel ranks in lock-step, see `test_vllm_waves.py`"
NEEDS = {"kv_role": "a KV connector of two sides", "prefill": PAIR, "decode": PAIR}
REQUEST_KEYS = {"id", "arrival", "output_len", "priority", "max_tokens", "stop_at", "prompt", "external", "hold",
                "lora", "grammar", "mm"}
REQUEST_NEEDS = {"local": PAIR,
                 "rank": "data-parallel ranks"}


def missing(description):
    """Return what a scenario needs that the engine does not have, or None.

    It is read from what the scenario holds, not from its name.
    """
    if "engines" in description:
        return "nothing but the choice of a data-parallel engine, see `test_vllm_dp.py`"
    if "ranks" in description:
        return RANKS
    options = {key: value for key, value in description["options"].items() if value}
    for key, needed in NEEDS.items():
        if key in options:
            return needed
    if reason := _missing_of_groups(options.get("groups") or [], options):
        return reason
    if options.get("groups") and options.get("kv_connector"):
        return SEVERAL_KINDS
    if options.get("kv_offload") and any(group["kind"] == "chunked" or group.get("mode", "align") != "align"
                                         for group in options.get("groups") or []):
        return "KV offload of layers that it does not know"
    requests = description["requests"]
    for key, needed in REQUEST_NEEDS.items():
        if any(request.get(key) for request in requests):
            return needed
    unknown = options.keys() - KNOWN - OF_REQUESTS - {"dcp"}
    unknown |= {key for request in requests for key in request} - REQUEST_KEYS - REQUEST_NEEDS.keys()
    return f"{', '.join(sorted(unknown))}, which nobody has translated" if unknown else None


def missing_of_ranks(description):
    """Return what recorded ranks in lock step need that the engine does not have, or None."""
    requests = [{key: value for key, value in request.items() if key != "rank"} for request in description["requests"]]
    others = {key: value for key, value in description.items() if key != "ranks"}
    return missing(others | {"requests": requests})


def missing_of_pair(description):
    """Return what a recorded pair of engines needs that the engine does not have, or None."""
    options = {key: value for key, value in description["options"].items() if key not in ("prefill", "decode")}
    requests = [{key: value for key, value in request.items() if key != "local"}
                for request in description["requests"]]
    for side in ("prefill", "decode"):
        own = options | description["options"].get(side, {})
        needed = missing(description | {"options": own, "requests": requests})
        if needed:
            return needed
    return None


def _missing_of_groups(groups, options):
    unknown = {group["kind"] for group in groups} - KINDS.keys()
    unknown |= {key for group in groups for key in group} - GROUP_KEYS
    if unknown:
        return f"groups of layers with {', '.join(sorted(unknown))}, which nobody has translated"
    return None


def missing_in_files(description):
    """Return what a scenario needs that an experiment file cannot say, or None."""
    options = description.get("options", {})
    for group in options.get("groups") or []:
        if group["kind"] == "mamba" and (group.get("mode", "align") == "align") != options.get(
                "enable_prefix_caching", True):
            return "states that are kept otherwise than vLLM does on its own"
    items = [item for request in description.get("requests", ()) for item in request.get("mm") or ()]
    if any(item["offset"] == 0 for item in items):
        return "an item that begins a prompt: in traces its tokens are those of each prompt that begins with it"
    largest = max((item["length"] for item in items), default=0)
    if options.get("disable_chunked_mm_input") and largest > options.get("max_num_batched_tokens", 2048):
        return "an item beyond the budget, which vLLM's server refuses, given to the scheduler alone"
    if options.get("enable_chunked_prefill") is False and any(
            sum(piece[1] for piece in request["prompt"] if isinstance(piece[1], int)) >= options["max_model_len"]
            for request in description["requests"]):
        return "a prompt that vLLM's server refuses, given to the scheduler alone"
    return missing(description) or missing_of_tiers(description)


def missing_in_twin(description):
    """Return what a scenario needs that the twin does not have, or None."""
    needed = missing(description) or missing_of_tiers(description)
    if needed:
        return needed
    if description["options"].get("vllm_version") not in (None, "0.10", "0.32"):
        return "rules of this version, of which the twin has a part"
    if limits_adapters(description):
        return "a limit of LoRA adapters in a batch, which the twin does not have"
    if any(request.get("grammar") for request in description["requests"]):
        return "structured outputs, which the twin does not have"
    return "encoder inputs, which the twin does not have" if encodes(description) else None


def missing_of_tiers(description):
    """Return what a scenario needs beside a replica that neither an experiment file nor the twin has, or None."""
    if description["options"].get("kv_connector"):
        return "a KV connector, which the engine alone has"
    return "KV offload, which the engine alone has" if description["options"].get("kv_offload") else None


def limits_adapters(description):
    """Say whether there are more LoRA adapters than a batch may use."""
    adapters = {request["lora"] for request in description["requests"] if request.get("lora")}
    return len(adapters) > (description["options"].get("max_loras") or len(adapters))


def encodes(description):
    """Say whether there are items in prompts, and an encoder for them."""
    return bool(description["options"].get("encoder_cache_size")) and any(
        request.get("mm") for request in description["requests"])


def plain(description):
    """Return a scenario that `missing` lets pass in the words that the engine knows."""
    options = {key: value for key, value in description["options"].items() if key in KNOWN}
    are_limited = limits_adapters(description)
    if are_limited:
        options["max_loras"] = description["options"]["max_loras"]
    if encodes(description):
        options |= {key: description["options"][key] for key in OF_ENCODERS if key in description["options"]}
    if _is_hybrid(options.get("groups") or []):
        options |= groups_of(description["options"])
    else:
        options.pop("groups", None)
        options["block_size"] = options.get("block_size", 16) * (description["options"].get("dcp") or 1)
    if description["options"].get("eagle"):
        description = description | {"requests": _with_ends(description["requests"])}
    adapters = {request["id"]: request.get("lora") for request in description["requests"]}
    prompts = {request["id"]: request["prompt"] for request in description["requests"]}
    requests = []
    for request in description["requests"]:
        kept = {key: value for key, value in request.items() if key in REQUEST_KEYS - {"lora"}}
        if are_limited:
            kept["lora"] = adapters[request["id"]]
        elif any(adapters.values()):
            kept["prompt"] = [renamed for piece in request["prompt"]
                              for renamed in _under_adapter(piece, request["id"], adapters, prompts)]
        requests.append(kept)
    return description | {"options": options, "requests": requests}


def _with_ends(requests):
    """Return requests whose prompts quote no end token: where a request stops, the recorder writes one.

    A prompt that quotes its output has another token there, and tokens that nobody wrote behind it. The difference is
    in no block's hash but with drafters of the model in vLLM 0.33, where a hash covers the token behind its block.
    """
    ends = {request["id"]: request.get("stop_at") or math.inf for request in requests}
    found = []
    for request in requests:
        prompt = []
        for piece in request["prompt"]:
            past = max(piece[2] - ends[piece[1]] + 1, 0) if piece[0] == "output" else 0
            prompt += [piece] if past == 0 else [
                ["output", piece[1], piece[2] - past], ["group", f"{piece[1]}.quoted", past]]
        found.append(request | {"prompt": prompt})
    return found


def plain_of_files(description):
    """Return it in the words of experiment files, which know of decode context parallelism themselves."""
    degree, options = description["options"].get("dcp") or 1, description["options"]
    found = plain(description | {"options": options | {"dcp": None}})
    return found | {"options": found["options"] | {"dcp": degree}}


def groups_of(options):
    """Return the options of groups of layers in the words that the engine knows."""
    degree, block_size = options.get("dcp") or 1, options.get("block_size", 16)
    return {"groups": [_group(group, block_size, degree) for group in options["groups"]],
            "prefix_cache_retention_interval": options.get("prefix_cache_retention_interval", 0),
            "prefix_match_unit": options.get("prefix_match_unit"), "context_ways": degree}


def _is_hybrid(groups):
    """Say whether groups are more than the one of full attention that every cache has."""
    return len(groups) > 1 or any(group["kind"] != "full" or "block_size" in group for group in groups)


def _group(group, block_size, degree):
    """Return a group as `LayerGroup` has it."""
    size = group.get("block_size", block_size) * (degree if group["kind"] == "full" else 1)
    return {"kind": KINDS[group["kind"]], "block_size": size, "window": group.get("window") or group.get("chunk") or 0,
            "aligned": group["kind"] == "mamba" and group.get("mode", "align") == "align",
            "checkpoint": group.get("checkpoint", 0), "has_drafter": group.get("drafts", False)}


def _under_adapter(piece, request_id, adapters, prompts):
    """Yield a piece of a prompt with its streams named apart by the adapter that reads them."""
    adapter, kind, other = adapters[request_id], piece[0], piece[1]
    if kind == "uniq":
        yield piece
    elif kind == "group":
        yield ["group", f"{other}@{adapter}" if adapter else other, piece[-1]]
    elif adapters[other] == adapter:            # what it quotes was read by the same adapter, and is named like that
        yield piece
    elif kind == "output":
        yield ["group", f"{other}.output@{adapter}", piece[-1]]
    else:
        for part in prompts[other]:
            if part[0] == "uniq":
                yield ["group", f"{other}.own@{adapter}", part[-1]]
            else:
                yield from _under_adapter(part, request_id, adapters, prompts)
