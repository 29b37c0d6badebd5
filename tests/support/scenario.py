"""Scenarios: JSON descriptions of a run, as the recorded cases use them, turned into what the engine takes.

The format is that of ../shared/specs/vllm.md (top of the page) with a few keys of our own: per request `deadline` (s),
an `output_len` of 0, and the own stream of another request in `["own", id, n]`; `options.groups` are fields of
`LayerGroup` (`vllm_scope.plain` translates those that were recorded); per scenario `options.vllm_version`,
`prices` (keys of `LinearParameters`, in place of `step_time`) and `host` (keys of `HostParameters`).
"""
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.drawn_times import DrawnTime
from simulator.domain.host import HostParameters
from simulator.domain.items import items_of
from simulator.domain.layer_groups import LayerGroup, LayerGroups
from simulator.kv.tiers.arc import Arc
from simulator.kv.tiers.fifo_lane import FifoLane
from simulator.kv.tiers.group_offloading import GroupOffloadingTier
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.protocols.vllm_offload import rules_of
from simulator.kv.tiers.settings import Offloading
from simulator.latency.linear import LinearParameters
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_tables import EncoderParameters, LoraParameters, StructuredOutputParameters
from simulator.workload.base import Workload
from support.declared_tier import DECLARED, DeclaredTier

# What the recorder of the cases assumed for options that a scenario leaves out (they stand in full in each log).
DEFAULTS = {"max_num_batched_tokens": 2048, "max_num_seqs": 128, "block_size": 16, "num_blocks": 1000,
            "enable_prefix_caching": True, "max_model_len": 8192, "scheduler_reserve_full_isl": True}
CACHE_OPTIONS = {"num_blocks": "num_gpu_blocks", "block_size": "block_size", "max_model_len": "max_model_len",
                 "enable_prefix_caching": "enable_prefix_caching"}
EAGLE = {"method": "eagle", "drafter_share": 0.0}       # drafts that take no time
NOT_SCHEDULING = {"num_speculative_tokens", "disable_lookahead", "spec_lookahead", "kv_connector", "kv_offload",
                  "groups", "prefix_cache_retention_interval", "prefix_match_unit", "context_ways", "eagle",
                  *CACHE_OPTIONS}
OF_ENCODERS = {"max_num_encoder_input_tokens": "max_num_encoder_input_tokens", "encoder_cache_size": "cache_tokens",
               "disable_chunked_mm_input": "disable_chunked_mm_input"}


@dataclass(frozen=True)
class Scenario:
    """One run, in the engine's terms.

    ids : request ids (text) by row.
    contents : what items show, by code.
    tier : makes the KV tier; None: there is none.
    cache : num_gpu_blocks, block_size, enable_prefix_caching, max_model_len and layer_groups, as `record` takes them.
    """

    name: str
    ids: list
    workload: Workload
    parameters: VllmParameters
    cache: dict
    prices: LinearParameters
    host: HostParameters
    tier: Callable | None = None
    contents: list = ()


def nanoseconds(seconds):
    """Return decimal or float seconds as whole ns; floats that stand for decimals (0.8999999999999999) are healed."""
    return round(Decimal(repr(seconds)) * 10**9)


def load(description, late=()):
    """Return the `Scenario` of a JSON description; requests in `late` (ids) arrive one nanosecond later."""
    options = DEFAULTS | description["options"]
    requests = sorted(description["requests"], key=lambda request: nanoseconds(request["arrival"]))     # stable
    parameters = _parameters(options, description, _structured_outputs(requests))
    return Scenario(
        name=description.get("name", "unnamed"),
        ids=[request["id"] for request in requests],
        workload=workload_of(requests, late),
        parameters=parameters,
        cache={**{ours: options[theirs] for theirs, ours in CACHE_OPTIONS.items()},
               "layer_groups": _layer_groups(options)},
        prices=prices_of(description),
        host=HostParameters(**description.get("host", {})),
        tier=_tier(requests, description, options, parameters),
        contents=_contents(requests),
    )


def _layer_groups(options):
    """Return the groups of layers with block tables of their own, or None."""
    if not options.get("groups"):
        return None
    groups = tuple(_with_drafts(LayerGroup(**group), options) for group in options["groups"])
    return LayerGroups(groups=groups,
                       chunk_alignment=options["block_size"] if any(group.aligned for group in groups) else 0,
                       retention_interval=options.get("prefix_cache_retention_interval", 0),
                       prefix_match_unit=options.get("prefix_match_unit"), context_ways=options.get("context_ways", 1))


def _with_drafts(group, options):
    """Return a group with the states of drafts that it keeps."""
    is_state = group.kind == "linear_attention"
    return replace(group, drafts=options.get("num_speculative_tokens", 0)) if is_state else group


def _tier(requests, description, options, parameters):
    """Return what makes the tier of a scenario, or None."""
    if options.get("kv_offload"):
        return _offloading(GroupOffloadingTier if options.get("groups") else OffloadingTier, options["kv_offload"],
                           description.get("offload_time", {}), parameters)
    if options.get("kv_connector"):
        return _declared(requests, description.get("kv_load_time", {}))
    return None


def _offloading(tier, options, times, parameters):
    """Return what makes a host tier of this class."""
    settings = Offloading(
        **rules_of(parameters, {"lru": Lru, "arc": Arc}[options.get("policy", "lru")]), chunks=options["chunks"],
        blocks_per_chunk=options.get("blocks_per_chunk", 1), store_threshold=options.get("store_threshold", 0),
        offload_prompt_only=options.get("offload_prompt_only", True),
        step_load_tokens=options.get("step_load_tokens", 0))
    price_ns = [[nanoseconds(times.get(direction, {}).get(key, 0)) for key in ("base", "per_block")]
                for direction in ("store", "load", *["load"] * (settings.step_load_tokens > 0))]
    return lambda workload: tier(settings, *(FifoLane(*each) for each in price_ns))


def _declared(requests, load_time):
    """Return what makes the tier that answers as the scenario says."""
    declared = np.zeros(len(requests), DECLARED)
    declared["keep_ns"] = [nanoseconds(request["hold"]) if request.get("hold") is not None else -1
                           for request in requests]
    for row, request in enumerate(requests):
        external = request.get("external", {})
        declared[row]["tokens"] = external.get("tokens", 0)
        declared[row]["comes_later"] = external.get("async", True)
    price_ns = [nanoseconds(load_time.get(key, 0)) for key in ("base", "per_token")]
    return lambda workload: DeclaredTier(declared, *price_ns)


def prices_of(description):
    """Return what the batches of a scenario cost."""
    if "prices" in description:
        return LinearParameters(**description["prices"])
    price_us = {key: float(Decimal(repr(value)) * 10**6) for key, value in description["step_time"].items()}
    return LinearParameters(base_us=price_us["base"], per_sequence_us=price_us["per_req"], per_context_token_us=0.0,
                            per_prefill_token_us=price_us["per_token"], per_decode_token_us=price_us["per_token"])


def _structured_outputs(requests):
    """Return the grammars of requests, each its own, compiled beside each other; None: there are none."""
    given = {request["id"]: request["grammar"] for request in requests if request.get("grammar")}
    if not given:
        return None
    compile_ms = tuple(nanoseconds(grammar.get("compile", 0)) / 1e6 for grammar in given.values())
    return StructuredOutputParameters(
        compile_ms=DrawnTime(distribution="listed", values=compile_ms), mask_us=0.0, cpus=0,
        failing=tuple(name for name, grammar in given.items() if grammar.get("error")))


def _parameters(options, description, structured_outputs):
    speculative = None
    if options.get("num_speculative_tokens"):
        speculative = SpeculativeParameters(
            num_tokens=options["num_speculative_tokens"], num_lookahead_tokens=options.get("spec_lookahead", 0),
            acceptance=tuple(description.get("spec_accept") or [0]), **(EAGLE | {
                "disable_lookahead_block_hashes": options.get("disable_lookahead", False)}
                if options.get("eagle") else {}))
    scheduling = {key: value for key, value in options.items() if key not in NOT_SCHEDULING | OF_ENCODERS.keys()}
    limit = scheduling.pop("max_loras", None)
    lora = LoraParameters(max_loras=limit, step_factor=1.0) if limit else None
    return VllmParameters(**scheduling, speculative=speculative, lora=lora,
                          structured_outputs=structured_outputs, encoder=_encoder(options, description))


def _encoder(options, description):
    """Return what is said of the encoder; None: nothing."""
    given = {ours: options[theirs] for theirs, ours in OF_ENCODERS.items() if options.get(theirs)}
    if not given:
        return None
    price = description.get("step_time", {}).get("per_embed", 0.0)
    return EncoderParameters(**given, us_per_embedding=float(Decimal(repr(price)) * 10**6))


def workload_of(requests, late):
    """Return the Workload of a scenario's requests, in order of arrival."""
    rows = {request["id"]: row for row, request in enumerate(requests)}
    prompts = _prompts(requests, rows)
    count = len(requests)
    table = np.zeros(count, records.REQUEST)
    for field in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        table[field] = records.NEVER_NS
    table["replica"] = -1
    table["arrival_ns"] = [nanoseconds(request["arrival"]) + (request["id"] in late) for request in requests]
    table["prompt_tokens"] = [sum(length for _, length in prompts[request["id"]]) for request in requests]
    outcomes = np.zeros(count, records.OUTCOME)
    outcomes["output_tokens"] = [min(request.get("stop_at") or request["output_len"], request["output_len"])
                                 for request in requests]
    segments = [segment for request in requests for segment in prompts[request["id"]]]
    return Workload(requests=table, demands=_demands(requests, prompts), outcomes=outcomes,
                    segments=np.array(segments, records.SEGMENT), request_ids=[request["id"] for request in requests],
                    labels={"adapter": _adapters(requests), "grammar": _grammars(requests)},
                    items=_items(requests),
                    prompts_use_outputs=any(piece[0] == "output" for request in requests
                                            for piece in request["prompt"]))


def _contents(requests):
    """Return what items show, sorted."""
    return sorted({item["hash"] for request in requests for item in request.get("mm") or ()})


def _items(requests):
    """Return the items of the prompts, or None."""
    contents = {name: code for code, name in enumerate(_contents(requests))}
    items = [item for request in requests for item in request.get("mm") or ()]
    return items_of(
        np.array([len(request.get("mm") or ()) for request in requests]),
        *(np.array([each(item) for item in items]) for each in (
            lambda item: contents[item["hash"]], lambda item: item["offset"], lambda item: item["length"])),
    ) if items else None


def _adapters(requests):
    """Return the names of the LoRA adapters that requests ask for."""
    return sorted({request["lora"] for request in requests if request.get("lora")})


def _grammars(requests):
    """Return the names of the grammars: those of the requests that have one."""
    return [request["id"] for request in requests if request.get("grammar")]


def _demands(requests, prompts):
    demands = np.zeros(len(requests), records.DEMAND)
    for field in ("due_ns", "slo_class", "tenant", "session", "model", "adapter", "expected_tokens"):
        demands[field] = -1
    demands["deadline_ns"] = [nanoseconds(request["deadline"]) if "deadline" in request else records.NEVER_NS
                              for request in requests]
    demands["max_tokens"] = [max(request.get("max_tokens", request["output_len"]), 1) for request in requests]
    demands["priority"] = [request.get("priority", 0) for request in requests]
    adapters = _adapters(requests)
    demands["adapter"] = [adapters.index(request["lora"]) if request.get("lora") else -1 for request in requests]
    grammars = _grammars(requests)
    demands["grammar"] = [grammars.index(request["id"]) if request.get("grammar") else -1 for request in requests]
    rank = {request_id: place for place, request_id in enumerate(sorted(prompts))}
    demands["tie_rank"] = [rank[request["id"]] for request in requests]
    lengths = [len(prompts[request["id"]]) for request in requests]
    demands["num_segments"] = lengths
    demands["segments_begin"] = np.cumsum([0, *lengths])[:-1]
    return demands


def _prompts(requests, rows):
    """Return each request's prompt as [(stream code, tokens)], by id."""
    names, pieces, prompts = {}, {request["id"]: request["prompt"] for request in requests}, {}

    def prompt(request_id):
        if request_id not in prompts:
            prompts[request_id] = [segment for piece in pieces[request_id] for segment in segments(request_id, piece)]
        return prompts[request_id]

    def segments(request_id, piece):
        kind, *rest = piece
        if kind == "prompt":
            return prompt(rest[0])
        if kind == "group":
            stream = records.named_stream(names.setdefault(rest[0], len(names)))
        elif kind == "output":
            stream = records.output_stream(rows[rest[0]])
        else:
            stream = records.own_stream(rows[rest[0] if kind == "own" else request_id])
        return [(stream, rest[-1])] if rest[-1] else []

    return {request_id: prompt(request_id) for request_id in rows}
