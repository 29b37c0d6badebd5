"""What a random experiment is made of: settings that are laid over a small busy cluster, one after the other.

A layer is {dotted key: value}. Most come from the schema and the registry, or from the table that has two values of
each key (`support.every_key_*`); by hand are those alone that take several tables to act.
"""
from collections.abc import Callable
from random import Random
from typing import Any

from lattice import schema
from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import alternatives, bare, element_of, is_struct, table_of
from support.every_key import TABLES, Case
from support.every_key_clients import CLIENTS
from support.every_key_costs import COSTS
from support.every_key_encoders import ENCODERS
from support.every_key_hand_over import HAND_OVER
from support.every_key_latency import LATENCY
from support.every_key_llumnix import LLUMNIX
from support.every_key_planners import PLANNERS
from support.every_key_policies import POLICIES
from support.every_key_programs import PROGRAMS
from support.every_key_routers import ROUTERS
from support.every_key_sections import SECTIONS
from support.every_key_vidur import VIDUR

Layer = dict[str, Any]
# Neither those that read files or are refused on purpose, nor those that build models anew every few iterations.
CASES = {key: case for key, case in (
    SECTIONS | LATENCY | POLICIES | LLUMNIX | CLIENTS | HAND_OVER | ENCODERS | VIDUR | COSTS | PROGRAMS
    | PLANNERS | ROUTERS).items()
    if not case.refused and not key.startswith(("latency:forest", "client_format", "collective:external"))
    and not any(slow in f"{key} {case.settings}" for slow in schema.SLOW)}
CASE_KEYS = sorted(CASES)
# Tables drawn whole, as the schema has them; those of [output] and [workload] have functions of their own.
WHOLE_TABLES = sorted(
    f"{outer}.{field.name}" if outer else field.name
    for outer, struct in (("", Experiment), ("cluster", bare(table_of(Experiment).fields[
        [field.name for field in table_of(Experiment).fields].index("cluster")].hint)))
    for field in table_of(struct).fields
    if any(is_struct(option) or is_struct(element_of(option)) for option in alternatives(field.hint))
    and field.name not in ("workload", "output", "cluster", "model", "hardware", "topology", "engine", "latency",
                           "pools", "embeddings", "kv_transfer"))


def of_table(rng: Random) -> Layer:
    """Draw a table of the experiment."""
    path = rng.choice(WHOLE_TABLES)
    outer, _, name = path.rpartition(".")
    struct = Experiment
    if outer:
        struct = next(bare(field.hint) for field in table_of(Experiment).fields if field.name == outer)
    field = next(field for field in table_of(struct).fields if field.name == name)
    drawn = schema.value(rng, field, rng.choice([0.1, 0.3, 0.6]))
    return {path: drawn}


def of_choice(rng: Random) -> Layer:
    """Choose a class of a kind by name, with some of its keys."""
    kind = rng.choice(sorted(TABLES.keys() - {"decider", "preset", "rate", "scorer", "client_format", "trace_format",
                                              "workload", "vidur_interval", "vidur_length"}))
    drawn = schema.choice(rng, kind, rng.choice([0.0, 0.2, 0.4]))
    if kind in ("arrival", "length_distribution", "time_distribution"):
        return {TABLES[kind]: drawn}
    return {f"{TABLES[kind]}.{key}": each for key, each in drawn.items()}


def of_router(rng: Random) -> Layer:
    """Choose a router; scores for one that adds them up."""
    name = rng.choice(schema.names_of("router"))
    drawn = schema.choice(rng, "router", 0.2, name=name)
    if name == "weighted" and "profile" not in drawn:
        drawn["scorers"] = [{"weight": float(rng.randint(1, 3))} | schema.choice(rng, "scorer", 0.2)
                            for _ in range(rng.randint(1, 3))]
    return {f"cluster.routing.{key}": each for key, each in drawn.items()}


def of_keys(rng: Random) -> Layer:
    """Draw one key of a table that every experiment has."""
    section = rng.choice(("topology", "engine", "output", "workload.load", "workload.measure", "workload.warmup",
                          "latency.host", "cluster.routing", "cluster.health"))
    struct = Experiment
    for part in section.split("."):
        struct = next(bare(option) for field in table_of(struct).fields if field.name == part
                      for option in alternatives(field.hint) if is_struct(option))
    field = rng.choice([field for field in table_of(struct).fields
                        if field.names_kind is None and field.name != "streamed"])      # keeps no table to compare
    return {f"{section}.{field.name}": schema.value(rng, field, 0.3)}


def of_scheduler_keys(rng: Random) -> Layer:
    """Draw keys of vLLM's scheduler, which most experiments have."""
    struct = registry.parameters_of(registry.load("scheduler", "vllm"))
    fields = rng.sample(table_of(struct).fields, rng.randint(1, 3))
    return {f"engine.{field.name}": schema.value(rng, field, 0.3) for field in fields}


def of_case(rng: Random) -> Layer:
    """Lay one of two values of a key, with what it takes to act; not what would take the requests away."""
    key = rng.choice(CASE_KEYS)
    case: Case = CASES[key]
    kind, _, rest = key.partition(":")
    layer = {**case.settings}
    if rest:
        name, _, inner = rest.partition(".")
        layer[f"{TABLES[kind]}.{registry.KINDS[kind].key}"] = name
        key = f"{TABLES[kind]}.{inner}"
    return layer | {key.replace("[]", "[0]").replace(".NAME.", ".h100-sxm-80gb."): rng.choice(case.values)}


def _one_of(*layers: Layer) -> Callable[[Random], Layer]:
    return lambda rng: rng.choice(layers)


GROUPS = ([{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 48}],
          [{"kind": "sliding_attention", "window": 24}], [{"kind": "full_attention"}, {"kind": "linear_attention"}],
          [{"kind": "full_attention"}, {"kind": "chunked_attention", "window": 64}],
          [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 20, "block_size": 32}])
MODELS = ("llama-3.1-8b", "gemma-2-9b", "gpt-oss-20b", "qwen3-next-80b-a3b")


def _failures(rng: Random) -> Layer:
    kinds = [rng.choice(["stop", "link", "link", "slow"]) for _ in range(rng.randint(1, 2))]
    return {"failures": [
        {"kind": kind, "which": rng.choice(["any", "each", 0])}
        | {key: value for key, value in (("on_failure", rng.choice(["retry", "retry", "restart", "lost"])),)
           if kind != "slow"}
        | rng.choice([{"at_s": round(rng.uniform(0.0, 0.2), 4)}, {"mtbf_s": round(rng.uniform(0.05, 0.5), 4)}])
        | {rng.choice(["duration_s", "mttr_s"]): round(rng.uniform(0.001, 0.2), 4)} for kind in kinds]}


# Routers that count what a decode replica is promised.
COUNTING = ({"policy": "weighted", "scorers": [{"name": "active-requests", "weight": 1.0}]}, {"policy": "dynamo"},
            {"policy": "cache_aware"}, {"policy": "llumnix"})


def _roles(rng: Random) -> Layer:
    layer = {"pools": [{"name": "p", "role": "prefill", "replicas": rng.randint(1, 2)},
                       {"name": "d", "role": "decode", "replicas": rng.randint(1, 2)}],
             "kv_transfer.bandwidth_gb_per_s": rng.choice([0.01, 40.0]), "kv_transfer.kv_bytes_per_token": 1e3}
    return layer | rng.choice([{}, {"engine.async_scheduling": False}, {"engine.num_gpu_blocks": 200}]) | rng.choice(
        [{}, *({"cluster.routing": each} for each in COUNTING)])


def _scaling(rng: Random) -> Layer:
    policy = rng.choice([{"policy": "queue", "target_waiting": 1.0}, {"policy": "utilisation"}])
    return {"autoscaling": policy | {
        "interval_s": round(rng.uniform(0.01, 0.1), 3), "max_replicas": rng.randint(3, 5),
        "min_replicas": rng.randint(0, 1), "drain": rng.choice(["finish", "migrate"]),
        "loading_delay": {"mean_s": rng.choice([0.0, 0.03])}}}


def _moves(rng: Random) -> Layer:
    return {"cluster.rescheduling": {
        "policy": rng.choice(schema.names_of("rescheduler")), "interval_s": 0.01, "kv_bytes_per_token": 1e5,
        "bandwidth_gb_per_s": rng.choice([0.5, 10.0]), "mode": rng.choice(["live", "blocking", "recompute"])}}


def _regions(rng: Random) -> Layer:
    latency_ms = [[0.0 if i == j else rng.choice([0.0, 3.0, 40.0]) for j in range(2)] for i in range(2)]
    layer = {"topology.replicas": 3, "cluster.regions": {
        "names": ["a", "b"], "replicas": rng.choice([[1, 2], [2, 1], [3, 0]]), "latency_ms": latency_ms,
        "spill_at": rng.choice([0.5, 1.0, 3.0])}}
    return layer | rng.choice([{}, {"workload.client_retry": {
        "timeout_s": rng.choice([0.02, 0.1]), "backoff_s": rng.choice([0.0, 0.03]), "attempts": rng.randint(0, 3)}}
    ]) | rng.choice([{}, {}, _moves(rng), {"cluster.gateways": {"count": rng.randint(1, 3), **rng.choice([
        {}, {"decision_us": 3000.0}])}}, {"cluster.routing": {"policy": "dynamo", "queue": {"threshold_tokens": 50}}}])


def _fallback_regions(rng: Random) -> Layer:
    pools = [{"name": f"{model}{region}", "serves": model, "replicas": rng.randint(1, 2)}
             for model in ("m0", "m1") for region in "ab"]
    placed = rng.choice([[["m0a", "m1a"], ["m0b", "m1b"]], [["m0a"], ["m0b", "m1a", "m1b"]]])
    table = {key: each for key, each in _regions(rng)["cluster.regions"].items() if key != "replicas"}
    return {"pools": pools, "cluster.regions": table | {"pools": placed},
            "cluster.fallbacks": [{"of": "m0", "to": ["m1"]}]} | rng.choice([
                {}, _failures(rng), {"cluster.admission": {"policy": "token_bucket", "capacity_tokens": 200,
                                                           "refill_tokens_per_s": 500.0}}])


def _split_regions(rng: Random) -> Layer:
    pools = [{"name": f"{role[0]}{region}", "role": role, "replicas": rng.randint(1, 2)} for region in "ab"
             for role in ("prefill", "decode")]
    table = _regions(rng)["cluster.regions"] | {"pools": [["pa", "da"], ["pb", "db"]]}
    return _roles(rng) | {"pools": pools, "cluster.regions": {key: table[key] for key in table if key != "replicas"}}


def _grammars(rng: Random) -> Layer:
    return {"engine.structured_outputs": {"fraction": rng.choice([0.2, 0.5, 1.0])} | rng.choice([
        {}, {"failing_fraction": 0.3}, {"num_grammars": 2}, {"compile_ms": 20.0}, {"cpus": 1}])}


def _of_sglang(rng: Random) -> Layer:
    adapters = {"engine.lora": {"max_loras_per_batch": rng.randint(1, 3)} | rng.choice([
        {}, {"step_factor": 1.3}, {"adapter_mb": 50.0, "h2d_gb_per_s": 10.0}]),
                "workload.adapters": {"names": ["a", "b", "c"], "none_share": rng.choice([0.0, 0.5])}}
    graphs = {"engine.cuda_graph_max_bs_decode": rng.randint(1, 9)}
    features = rng.choice([adapters, _grammars(rng), adapters | _grammars(rng), graphs])
    return {"engine.scheduler": "sglang"} | features | (
        rng.choice([{}, {"engine.prefill_decode_interval": 3}, {"engine.scheduler_recv_interval": 7},
                    {"engine.disable_overlap_schedule": True}, {"engine.max_queued_requests": 3}]))


def _speculation(rng: Random) -> Layer:
    num = rng.randint(1, 4)
    acceptance = rng.choice([[0], [rng.randint(0, num) for _ in range(rng.randint(2, 5))],
                             {"rates": [round(rng.random(), 2) for _ in range(num)]}])
    return {"engine.speculative": {"num_tokens": num, "acceptance": acceptance}}


def _sessions(rng: Random) -> Layer:
    return {"workload": {
        "type": "sessions", "num_sessions": rng.randint(2, 12),
        "arrival": {"process": rng.choice(["constant", "poisson"]), "rate_per_s": rng.choice([20.0, 200.0])},
        "sessions": {"rounds": {"distribution": "uniform", "max": 4},
                     "new_tokens": {"distribution": "uniform", "min": 1, "max": 60},
                     "output_tokens": {"distribution": "uniform", "min": 1, "max": 30}}}}


def _loop(rng: Random) -> Layer:
    return _drawn(rng) | {"workload.load": {"mode": "concurrency", "concurrency": rng.randint(1, 9)} | rng.choice(
        [{}, {"think_time_s": 0.01}, {"ramp_up_s": 0.1}])}


def _drawn(rng: Random) -> Layer:
    return {"workload": {
        "type": "synthetic", "num_requests": rng.choice([5, 20, 60]),
        "arrival": {"process": "poisson", "rate_per_s": rng.choice([50.0, 500.0])},
        "prompt_tokens": {"distribution": "uniform", "min": 1, "max": rng.choice([40, 120])},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": rng.choice([3, 30, 80])}}}


WORKLOADS = (_sessions, _loop, _drawn)
BY_HAND = (
    _failures, _failures, _roles, _split_regions, _fallback_regions, _scaling, _moves, _regions, _grammars, _grammars,
    _speculation,
    lambda rng: {"engine.lora": {"max_loras": rng.randint(1, 3)} | rng.choice([{}, {"step_factor": 1.3},
                                                                              {"per_adapter_us": 300.0}]),
                 "workload.adapters": {"names": ["a", "b", "c"], "none_share": rng.choice([0.0, 0.5])}},
    _of_sglang,
    lambda rng: {"topology.pipeline_parallel": rng.choice([2, 2, 3])},
    lambda rng: {"topology.data_parallel": rng.choice([2, 3])},
    lambda rng: {"topology.tensor_parallel": 2, "topology.decode_context_parallel": rng.choice([1, 2])},
    lambda rng: {"engine.kv_cache_groups": rng.choice(GROUPS)},
    lambda rng: {"model.name": rng.choice(MODELS)},
    lambda rng: {"horizon_s": round(10 ** rng.uniform(-2.5, 0), 5)},
    lambda rng: {"cluster.gateway_queue": {"tick_s": 1e-3, "saturation": {
        "detector": "concurrency", "max_concurrency": rng.randint(1, 4)}}},
    lambda rng: {"kv_tiers": {"protocol": rng.choice(["vllm_offload", "vllm_simple"]), "cpu_gib": 0.5}},
    lambda rng: {"engine.scheduler": rng.choice(schema.names_of("scheduler"))},
    _one_of({"engine.max_num_seqs": 1}, {"engine.num_gpu_blocks": 16}, {"engine.enable_prefix_caching": False},
            {"engine.async_scheduling": True}, {"engine.vllm_version": "0.10"}, {"latency.base_us": 20_000.0},
            {"topology.replicas": 1}, {"engine.enable_chunked_prefill": False}, {"engine.max_model_len": 64},
            {"output.replica_samples_s": 0.01}, {"engine.policy": "priority"}, {"latency.host.defaults": "vllm"},
            {"latency.backend": "roofline", "model.name": "llama-3.2-1b", "hardware.name": "h100-sxm-80gb"}),
)
SOURCES = (of_table, of_choice, of_router, of_keys, of_scheduler_keys, of_case, of_case)


def random_layer(rng: Random) -> Layer:
    """Draw settings of one feature."""
    while True:
        try:
            return rng.choice(BY_HAND)(rng) if rng.random() < 0.55 else rng.choice(SOURCES)(rng)
        except schema.Undrawable:
            continue
