"""An experiment written as TOML and read again is the same experiment."""
import itertools
import math
import re

import pytest
import tomli
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import (
    alternatives,
    bare,
    element_of,
    extra_of,
    is_struct,
    named_element_of,
    node_of,
    table_of,
)
from simulator.config.load import load_experiment, resolved_toml
from simulator.domain import facts
from simulator.errors import InputErrors
from simulator.routing.llumnix.composition import USUAL
from simulator.routing.llumnix.rescheduler import LlumnixReschedulerParameters
from simulator.routing.llumnix.router import LlumnixParameters
from simulator.scaling.schedule import Schedule
from support.pairs import Listening

LOADS = ({}, {"max_in_flight": 3, "client_delay_s": 0.5}, {"mode": "lanes", "lanes": 2, "assign": "dynamic"},
         {"mode": "concurrency", "concurrency": 4, "unit": "session", "think_time_s": 1.5},
         {"mode": "concurrency", "concurrency": 4,
          "think_time_s": {"distribution": "lognormal", "mean": 2.0, "cv": 0.5}},
         {"mode": "lanes", "lanes": 2, "snapshot": "uniform", "recycle": True},
         {"mode": "user_rate", "users": 3, "rate_per_s": 2.5},
         {"mode": "stages", "stages": [{"concurrency": 4, "num_requests": 9, "ramp_up_s": 2.0},
                                       {"rate_per_s": 2.0, "duration_s": 3.0, "drain": True, "max_in_flight": 3}]})
KNOWN = ({"predictor": "exact"}, {"predictor": "lognormal_error", "error_sigma": 0.25, "bias": 2.0},
         {"predictor": "bucket", "buckets": [1, 20], "wrong_bucket_share": 0.5})
ADAPTERS = ({"names": ["a"]}, {"names": ["a", "b c"], "assign": "weighted", "weights": [1.0, 0.0], "none_share": 0.5},
            {"names": ["a"], "assign": "zipf", "exponent": 2.0})
IMAGES = ({"count": {"distribution": "uniform", "max": 3}, "sizes": [[256.0, 256.0, 0.5], [720.0, 1280.0, 0.5]]},
          {"count": {"distribution": "constant", "tokens": 2}, "rule": "tokens_per_image", "tokens_per_image": 99})
CLIENT_RETRIES = ({"attempts": 3, "timeout_s": 5.0, "on": ["timeout"], "budget_share": 0.1, "budget_window_s": 10.0},)
VIDEOS = ({"count": {"distribution": "uniform", "max": 2}, "clips": [[10.0, 360.0, 640.0, 1.0]], "num_frames": 32},)
SPECULATIONS = [{"num_tokens": 3, **more} for more in (
    {}, {"acceptance": [0, 2], "num_lookahead_tokens": 1}, {"acceptance": {"distribution": [1.0, 0.5]}},
    {"acceptance": {"rates": [0.9, 0.5]}}, {"acceptance": {"per_position": [0.9]}},
    {"acceptance": {"mean_length": 2.5}}, {"acceptance": {"measured": "qwen3-8b/eagle3-redhat/mt-bench"}},
    {"method": "draft_model", "model": "qwen3-0.6b", "drafter_share": 0.1})]
SGLANG_DRAFTS = [{"method": "eagle", "num_steps": 3, "drafter_share": 0.1, **more} for more in (
    {}, {"acceptance": [0, 2]}, {"eagle_topk": 2, "num_draft_tokens": 6, "acceptance": {"mean_length": 2.5}})]
HELD = [{"policy": "lru"}, {"policy": "ttl", "ttl_s": 1.5}, {"policy": "predicted", "error_sigma": 0.5}]
MASKS = [{"fraction": 0.5, "draft_valid_rate": 0.75}, {"kind": "json"}, {
    "kind": "constrained_schema", "size": 9, "new_lengths": 2, "num_grammars": 3}]
GROUPS = ([{"kind": "full_attention"}], [{"kind": "full_attention", "block_size": 32}, {"kind": "linear_attention"}],
          [{"kind": "sliding_attention", "window": 128}, {"kind": "full_attention"}])
PRICE = {"per_gpu_hour": [0.75] * 24, "starts_at_hour": 3, "currency": "EUR", "source": "s", "date": "2024-02-29"}
POWER = {"a10": {"prefill_w": 150.0, "source": "s", "pue": 1.5, "pue_source": "t"}, "l4": {"source": "s"}}
CARBON = {"g_per_kwh": [0.5] * 24, "starts_at_hour": 3, "source": "s", "region": "r", "date": "2024-02-29"}
MONEY = ({}, {"prices": {"a10": PRICE}}, {"power": POWER, "carbon": CARBON},
         {"power": POWER, "electricity": {"per_kwh": 0.25, "currency": "EUR", "source": "s", "date": "2024-02-29"}})
TIER_KEYS = ("host_credit", "disk_credit", "shared_credit", "host_weight", "disk_weight", "shared_weight")
LENGTHS = {"distribution": "uniform", "min": 3, "max": 90}
# Of drawn workloads: most that the declarations allow one by one do not go together.
DRAWN = (
    {"type": "synthetic", "num_requests": 9, "arrival": {"process": "gamma", "rate_per_s": 2.5, "cv": 0.3},
     "prompt_tokens": LENGTHS, "output_tokens": {"distribution": "lognormal", "mean": 9.5, "cv": 0.1}},
    {"type": "synthetic", "duration_s": 9.5, "rate": {"kind": "piecewise", "times_s": [0.0, 2.5], "rates_per_s": [
        1.0, 3.5]}, "prompt_tokens": LENGTHS, "output_tokens": LENGTHS},
    {"type": "synthetic", "preset": "vllm_random", "num_requests": 9, "input_len": 99, "arrival": {"rate_per_s": 2.0}},
    {"type": "synthetic", "preset": "vllm_random", "num_requests": 9, "request_rate": math.inf, "max_concurrency": 3,
     "num_warmups": 2},
    {"type": "synthetic", "preset": "guidellm", "profile": "concurrent", "streams": 3, "rampup_s": 1.5,
     "duration_s": 9.0, "warmup_phase": 0.1, "cooldown_phase": 2.5, "prompt_tokens": LENGTHS, "output_tokens": LENGTHS},
    {"type": "synthetic", "preset": "inference_perf", "workers": 2, "prompt_tokens": LENGTHS, "output_tokens": LENGTHS,
     "stages": [{"rate_per_s": 1.5, "duration_s": 4.0}, {"rate_per_s": 2.5, "duration_s": 4.0}]},
    {"type": "synthetic", "preset": "aiperf", "request_rate": 2.5, "duration_s": 9.5, "arrival_pattern": "gamma",
     "arrival_smoothness": 3.0, "warmup_duration_s": 2.0, "prompt_tokens": LENGTHS, "output_tokens": LENGTHS},
    {"type": "sessions", "num_sessions": 3, "arrival": {"rate_per_s": 2.0}, "sessions": {
        "rounds": {"distribution": "constant", "value": 3}, "new_tokens": LENGTHS, "output_tokens": LENGTHS,
        "think_time_s": {"distribution": "exponential", "mean": 2.5}}},
    {"type": "clients", "rate_per_s": 2.0, "num_requests": 9, "clients": [
        {"id": "a", "rate_share": 0.5, "prompt_tokens": LENGTHS, "output_tokens": LENGTHS}]})
OF_TWO_KEYS = re.compile(r"expected (none|[^:,]+) (with|beside|without) [a-z_\[]")   # no declaration of one key has it
LETTERS = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])     # no line breaks: names cannot hold them
TEXTS = st.text(LETTERS, max_size=20)
QUEUE = {"threshold": 1.5, "order": "wspt", "classes": [
    {"min_tokens": 0, "quantum": 99}, {"min_tokens": 999, "threshold_tokens": 9}]}
MIX = {"input_tokens": [9, 99], "output_tokens": [9], "profiles": [
    {"pool": "default", "requests_per_s": [[2.5], [0.5]]}]}


def values_of(hint):
    """Draw what a key may hold, straight from its declaration."""
    if any(named_element_of(each) for each in alternatives(hint)):
        return st.just({})          # replaced: see MONEY
    if "facts" in extra_of(hint):
        return st.sampled_from(facts.names(extra_of(hint)["facts"]))
    return st.one_of([value_of(each, extra_of(hint)) for each in alternatives(hint)])


def value_of(hint, extra):
    if is_struct(hint):
        return tables(bare(hint))
    node = node_of(hint)
    if (element := element_of(hint)) is not None:
        least = node.min_length or 0
        return st.lists(values_of(element), min_size=least, max_size=node.max_length or least + 4)
    match node:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(-2**63 if node.ge is None else node.ge, 2**63 - 1 if node.le is None else node.le)
        case inspect.FloatType():
            low, high = (node.ge if node.gt is None else node.gt), (node.le if node.lt is None else node.lt)
            return st.floats(low, high, exclude_min=node.gt is not None, exclude_max=node.lt is not None,
                             allow_nan=False, allow_infinity=high is None and bool(extra.get("inf")))
        case inspect.LiteralType(values):
            return st.sampled_from(values)
        case inspect.DictType():            # names of columns; priorities of classes
            is_text = isinstance(node.value_type, inspect.StrType)
            return st.dictionaries(TEXTS, TEXTS if is_text else st.integers(-100, 100), max_size=3)
        case inspect.StrType():
            if node.pattern:
                return st.from_regex(rf"\A(?:{node.pattern})\Z", fullmatch=True)
            least = 1 if extra.get("path") else node.min_length or 0      # the path of nothing is refused
            return st.text(LETTERS, min_size=least, max_size=20)


@st.composite
def tables(draw, struct):
    """Draw the TOML table of a Struct; keys with a default may be absent."""
    table, declared = {}, table_of(struct)
    for field in declared.fields:
        if field.names_kind is not None:
            table[field.name] = draw(st.sampled_from(list(registry.KINDS[field.names_kind].entries)))
        elif field.required or draw(st.booleans()):
            table[field.name] = draw(values_of(field.hint))
    if declared.kind is not None:
        name = table[registry.KINDS[declared.kind].key]
        table |= draw(tables(registry.parameters_of(registry.load(declared.kind, name))))
    return table


def settle_scheduler(engine):
    """Replace options of a scheduler that do not go together by what does."""
    chosen = registry.parameters_of(registry.load("scheduler", engine["scheduler"]))
    keys = chosen.__struct_fields__
    if "gpu_memory_utilization" in getattr(chosen, "ENGINE_DEFAULTS", ()):      # it has a share of its own
        engine.pop("gpu_memory_utilization", None)
    settled = {"max_num_batched_tokens": 2**20, "long_prefill_token_threshold": 0, "reservation": "max_tokens",
               "enable_priority_scheduling": True, "chunked_prefill_size": 2**20, "prefill_decode_interval": 3}
    engine |= {key: value for key, value in settled.items() if key in keys}
    engine.pop("disable_priority_preemption", None)
    (engine.get("cuda_graphs") or {}).pop("memory_gib", None)       # no KV blocks are counted
    engine.pop("language_model_only", None)             # no encoder goes with it
    engine.pop("prefix_match_unit", None)               # it goes with few models and tiers
    for key in ("routing_key", "cuda_graph_backend_prefill"):       # they go with values of other keys
        engine.pop(key, None)
    if engine.get("vllm_version") == "0.10":
        for key in ("encoder", "max_num_queued_reqs", "max_num_queued_tokens"):
            engine.pop(key, None)
    if engine["scheduler"] == "lightllm":
        engine["block_size"] = 1
    if engine["scheduler"] == "blis" and {"age_weight", "base"} & engine.keys():
        engine |= {"policy": "priority-fcfs", "priority_policy": "slo-based"}
    if engine["scheduler"] == "tensorrt_llm":           # chunking policies go with chunks alone
        engine |= {"enable_chunked_context": True, "max_num_tokens": 2**20,
                   "batch_wait_timeout_iters": 9, "batch_wait_max_tokens_ratio": 0.5}


def settle_experts(table):
    """Replace keys of experts that one of several values of another key reads."""
    experts = table["engine"].get("experts") or {}
    for key in ("eplb", "placement", "all2all_backend"):         # of several expert-parallel or attention ranks
        experts.pop(key, None)
    if "popularity" in experts:
        experts["popularity"] = {"distribution": "zipf", "s": 1.5}
    if "dbo" in experts:
        experts["dbo"] = {"enabled": False}
    if table["latency"]["backend"] in ("linear", "blackbox"):
        table["engine"].pop("experts", None)
        table["latency"].pop("collective", None)


def settle_tiers(table):
    """Leave out what KV tiers are not settled with."""
    if "kv_tiers" in table and table["engine"]["scheduler"] != registry.load(
            "kv_tier", table["kv_tiers"]["protocol"]).scheduler:
        table.pop("kv_tiers")
    if table.get("kv_tiers") and table["engine"]["scheduler"] == "blis":
        table["engine"] |= {"upstream_compat": True, "enable_prefix_caching": True}
    for place, key in ((table["engine"], "speculative"), (table["engine"], "vllm_version"),
                       (table["engine"].get("structured_outputs") or {}, "draft_valid_rate"),
                       (table.get("cluster", {}), "rescheduling")):
        if table.get("kv_tiers"):
            place.pop(key, None)
    routing = table.get("cluster", {}).get("routing", {})
    if table.get("kv_tiers") and registry.load("kv_tier", table["kv_tiers"]["protocol"]).why_unseen:
        scorers = [registry.load("scorer", scorer["name"]) for scorer in routing.get("scorers", ())]
        if routing.get("policy") in ("dynamo", "kvaware") or any(scorer.tier_keys for scorer in scorers):
            table.pop("kv_tiers")       # they see nothing of it
    for place in (routing, *routing.get("scorers", ())):
        for key in () if table.get("kv_tiers") else TIER_KEYS:
            place.pop(key, None)


def settle_retention(draw, table):
    """Hold blocks for programs by keys of one policy, and only where no other table moves blocks or requests."""
    engine = table["engine"]
    if engine.get("kv_retention"):
        others = (table.get("kv_tiers"), table.get("failures"), table.get("cluster", {}).get("rescheduling"),
                  engine.get("kv_cache_groups"))
        engine["kv_retention"] = {"policy": "lru"} if any(others) else draw(st.sampled_from(HELD))
        engine["enable_prefix_caching"] = True


OF_POOLS = ("disaggregation", "pool_selection", "leg_selection", "traffic_split", "regions", "fallbacks")


def _for_whole_requests(cluster):
    for key in OF_POOLS:                            # there are no pools
        cluster.pop(key, None)
    for key in ("count", "assignment", "workers") if cluster.get("gateways") else ():
        cluster["gateways"].pop(key, None)
    if cluster.get("programs") or cluster.get("routing", {}).get("latency_s"):      # nor with a queue of the router
        cluster.pop("gateways", None)
    for key in ("pause_threshold", "pause_target", "resume_hysteresis"):        # in this order
        (cluster.get("programs") or {}).pop(key, None)
    if (limits := (cluster.get("gateway_queue") or {}).get("limits")):        # both keys or none, in this order
        limits.pop("spacing", None)
        is_holdback = limits.get("policy") == "holdback"
        limits |= {"least_ceiling": 0.25, "largest_ceiling": 0.5} if is_holdback else {}
        for key in () if is_holdback else ("least_ceiling", "largest_ceiling"):
            limits.pop(key, None)
    (cluster.get("cooldown") or {}).pop("allowed_fails", None)                # it goes without two others
    routing = cluster.get("routing", {})
    for policy in (routing, cluster.get("rescheduling") or {}):
        for key in (*LlumnixParameters.FOR_ONE_PHASE, *LlumnixReschedulerParameters.FOR_ONE_PHASE):
            policy.pop(key, None)
    unsettled = ("mode", *USUAL) if routing.get("policy") == "llumnix" else ()      # not every mode has every metric
    for key in unsettled if routing.get("policy") == "weighted" else (*unsettled, "scorers", "filters"):
        routing.pop(key, None)
    routing.pop("like", None)                       # it goes with one policy
    if routing.pop("queue", None) and routing["policy"] == "dynamo":        # so does it; its bounds in order
        cluster.pop("gateways", None)
        routing |= {"queue": QUEUE, "snapshot_refresh_interval_s": 0.0, "latency_s": 0.0, "load": "router"}
    if routing.get("output_blocks") or routing.get("assume_kv_reuse") is False:
        routing["load"] = "router"
    if routing.get("prefill_load_model") == "line":
        routing |= {"load": "router", "track_prefill_tokens": True}
    if routing.get("overlap") == "approximate":
        routing.pop("predicted_ttl_s", None)        # of exact overlaps
    for scorer in routing.get("scorers", ()):
        scorer.pop("value_range", None)             # two ordered numbers
    if {each["name"] for each in routing.get("filters", ())} & {"label-selector", "utilization"}:
        routing.pop("filters")                      # they need pools, or one of several keys
    for composed in routing.get("infer_types", ()):
        composed["infer_type"] = "neutral"
    return routing


def settle_workload(draw, table):
    """Replace what most of the time does not go together by what does."""
    if "load" in table.get("workload", {}):
        table["workload"]["load"] = draw(st.sampled_from(LOADS))        # most keys go with one mode
    if table["workload"]["type"] != "trace":
        kept = {key: table["workload"][key] for key in ("load", "adapters") if key in table["workload"]}
        table["workload"] = kept | draw(st.sampled_from(DRAWN))
        if "preset" in table["workload"]:
            table["workload"].pop("load", None)     # it has one of its own
    else:
        table["workload"].pop("sessions", None)                         # of most formats a table, of one a bool
        for key in ("end_s", "time_origin") if "start_s" in table["workload"] else ():
            table["workload"].pop(key, None)                            # an end behind the start, and one origin
    if "client_retry" in table["workload"]:
        table["workload"].pop("cancel_at_deadline", None)               # its clients give up
    for client in table.get("workload", {}).get("clients", ()):
        client.pop("load", None)        # likewise, and num_requests is of one mode of it
        client.pop("num_requests", None)
    for key, values in (("adapters", ADAPTERS), ("images", IMAGES), ("videos", VIDEOS),
                        ("client_retry", CLIENT_RETRIES)):
        if key in table["workload"]:
            table["workload"][key] = draw(st.sampled_from(values))


def settle_lengths(draw, table, routing):
    """Have output lengths foretold where somebody goes by them."""
    engine = table["engine"]
    table["workload"].pop("output_knowledge", None)
    by_length = engine["scheduler"] in ("lightllm", "sjf_aging") or engine.get("policy") == "shortest-output"
    if "expected_tokens" in routing.values() or by_length:
        table["workload"]["output_knowledge"] = draw(st.sampled_from(KNOWN))


def settle_latency(table):
    table["latency"] = {"backend": "linear"} if "model" not in table else table["latency"]
    for key in ("uncertainty", "uncertainty_replications", "uncertainty_share", "residual"):    # together; a file
        table["latency"].pop(key, None)
    settle_experts(table)


def on_one_node(topology):
    """Return a topology whose replicas need no second node, whatever its kind."""
    return {key: min(value, 2) if key in ("tensor_parallel", "prefill_context_parallel") else value
            for key, value in topology.items()}


def settle_scaling(table):
    """Keep an autoscaler that goes with one pool and the replicas of the topology."""
    scaling = table.get("autoscaling") or {}
    for key in ("max_replicas", "drain"):       # one has to fit topology.replicas, one goes with rescheduling
        scaling.pop(key, None)
    if scaling.get("policy") in ("planner", "dynamo_planner"):
        table.pop("autoscaling")                                    # they balance pools, and most keys go with others
    if scaling.get("shared_budget"):                                # its bounds in order, and never beside the other
        scaling["shared_budget"] = {"max_gpus": 64, "intent_ttl_s": 9.0}
        scaling.pop("zero", None)
    if scaling.get("policy") == "schedule":
        scaling["changes"] = [{"at_s": 0.5, "replicas": 2}, {"at_s": 0.7, "remove": 0}]     # of replicas that are there
        for key in Schedule.unread:
            scaling.pop(key, None)
    if scaling.get("policy") == "mix":
        scaling |= MIX                                              # lengths in order, a rate for each pair of them


def settle_outages(table):
    """Keep failures, or restarts, of replicas of one pool; single health checks need an interval."""
    if (health := table.get("cluster", {}).get("health")) and not health.get("check_interval_s"):
        health.pop("failures", None), health.pop("successes", None)
    if table.get("restarts"):
        table["restarts"] = [{"at_s": 5.0, "at_once": 2, "grace_s": 3.0, "on_stop": "lost", "loading_delay": {
            "mean_s": 1.0, "law": "normal", "stddev_s": 0.5}}]
        table.pop("failures", None)                                     # they do not go together
    for failure in table.get("failures", ()):
        for key in ("mtbf_s", "mttr_s", "pool", "target"):
            failure.pop(key, None)
        failure["at_s"] = 1.5


@st.composite
def experiments(draw):
    table = draw(tables(Experiment))
    table["topology"] = on_one_node(table["topology"] | {"pipeline_parallel": 1, "data_parallel": 1})
    table["engine"] |= {"max_model_len": 4096, "num_gpu_blocks": 100}
    table["engine"].pop("kv_cache_memory_bytes", None)      # one of both sizes the KV cache
    for key in ("language_model_only", "skip_mm_profiling"):        # with, and without, media in prompts
        table["engine"].pop(key, None)
    settle_scheduler(table["engine"])
    table["engine"].pop("data_parallel", None)
    if table["engine"].get("kv_cache_groups"):
        table["engine"]["kv_cache_groups"] = draw(st.sampled_from(GROUPS))
        table["engine"].pop("disable_hybrid_kv_cache_manager", None)
    if table["engine"].get("structured_outputs"):
        table["engine"]["structured_outputs"] = dict(draw(st.sampled_from(MASKS)))
    if table["engine"].get("speculative"):          # one of several keys says the acceptance
        table["engine"]["speculative"] = draw(st.sampled_from(
            SGLANG_DRAFTS if table["engine"]["scheduler"] == "sglang" else SPECULATIONS))
    else:                                           # nobody drafts what a grammar could reject
        (table["engine"].get("structured_outputs") or {}).pop("draft_valid_rate", None)
    settle_latency(table)
    for key in ("pools", "kv_transfer", "embeddings"):      # each pool is an experiment in small: see test_pools
        table.pop(key, None)
    table.get("cluster", {}).pop("encode", None)
    for key in ("pd_node_ratio", "decode_context_parallel", "prefill_context_parallel", "cp_kv_cache_interleave_size",
                "dcp_comm_backend"):
        table["topology"].pop(key, None)
    settle_scaling(table)
    settle_outages(table)
    routing = _for_whole_requests(table.get("cluster", {}))
    settle_workload(draw, table)
    settle_lengths(draw, table, routing)
    if "output" in table:
        for name in ("vidur_csv", "streamed", "requests_every"):        # it takes both tables, they take none
            table["output"].pop(name, None)
        table["output"] |= {"chrome_trace": True, "chrome_trace_window_s": [1.5, 9e9]}      # in this order
    settle_tiers(table)
    settle_retention(draw, table)
    for key in ("prices", "power", "carbon", "electricity"):
        table.pop(key, None)
    return table | draw(st.sampled_from(MONEY)) | {"hardware": {"name": "a10"}, "model": {"name": "llama-3.1-8b"}}


def without_refused(path, table):
    """Return the Experiment of table; keys that the reader refuses leave the table until it refuses none."""
    with Listening() as heard:
        for attempt in itertools.count():
            try:
                return load_experiment(path, table)
            except InputErrors as errors:
                others = [fault for fault in errors.faults if not fault.endswith(tuple(heard.messages))]
                single = [fault for fault in others if not OF_TWO_KEYS.search(fault)]
                if attempt == 0 and any("expected" in fault or "unknown" in fault for fault in single):
                    raise           # the declaration allows what the reader does not
                for innermost, key in [place(table, fault) for fault in errors.faults]:
                    innermost.pop(key, None)        # several faults may be of one key


def place(table, fault):
    """Return (the innermost table, the key in it) that a fault names, by its path or by a word of its message."""
    _, path, message = fault.split(": ", 2)
    innermost, last = None, None
    for key in (step.partition("[")[0] for step in path.split(".")):
        if not (isinstance(table, dict) and key in table):
            break
        innermost, table, last = table, table[key], key
    else:
        named = [key for key in re.findall(r"\w+", message) if isinstance(table, dict) and key in table]
        innermost, last = (table, named[0]) if named else (innermost, last)
    assume(innermost)           # else a table is missing that an earlier fault was about
    return innermost, last


@pytest.mark.ci
@given(table=experiments())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_resolved_toml_reads_back_as_an_equal_experiment(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("round")
    first, second = folder / "first.toml", folder / "second.toml"
    first.write_text("")
    experiment = without_refused(first, table)
    text = resolved_toml(experiment)
    second.write_text(text, encoding="utf-8")
    again = load_experiment(second)
    assert again == experiment
    assert resolved_toml(again) == text


def test_time_after_the_end_of_the_clock_is_no_horizon(load):
    assert load("horizon_s=1e10").horizon_s == math.inf
    assert load("horizon_s=9e9").horizon_s == 9e9


def test_scorers_are_written_with_their_keys(load):
    experiment = load('cluster.routing={policy = "weighted", scorers = [{name = "prefix-affinity", weight = 3}]}')
    assert [(scorer.name, scorer.weight) for scorer in experiment.cluster.routing.scorers] == [("prefix-affinity", 3.0)]
    assert tomli.loads(resolved_toml(experiment))["cluster"]["routing"]["scorers"] == [
        {"name": "prefix-affinity", "weight": 3.0, "capacity_blocks": 10_000, "max_blocks": 2**31 - 1,
         "block_tokens": 0, "length_weight": 0.0, "scale_tokens": 8192}]


def test_every_default_stands_in_the_resolved_toml(load):
    table = tomli.loads(resolved_toml(load()))
    assert table["engine"]["max_num_seqs"] == 256
    assert table["latency"]["host"]["iteration_us"] == 0.0
    assert table["cluster"]["admission"] == {"policy": "always", "latency_s": 0.0}
    assert table["cluster"]["routing"] == {
        "policy": "round_robin", "snapshot_refresh_interval_s": 0.0, "retry_timeout_s": 0.0, "retry_interval_s": 1.0,
        "cache_signal_delay_s": 0.0, "latency_s": 0.0, "counter": "replica"}
    assert math.isinf(table["horizon_s"])
    assert table["slo"] == {}


def test_order_of_the_resolved_toml_is_that_of_the_declaration(load):
    one = load("engine.block_size=8", "seed=3", "slo.ttft_ms=4")
    other = load("slo.ttft_ms=4", "seed=3", "engine.block_size=8")
    assert resolved_toml(one) == resolved_toml(other)
    assert list(tomli.loads(resolved_toml(one)))[:3] == ["name", "seed", "horizon_s"]
