"""Settings for each row of the table of conflicts: those that no pair of `support.pairs` reaches, and such pairs."""
from support.every_key import ABSENT
from support.every_key_workloads import vidur
from support.pairs import FEATURES, MOVES, ROLES

NIXL = {"pools": ROLES, "kv_transfer": {"protocol": "nixl"} | MOVES}
WHOLE_BESIDE = NIXL | {"pools": [*ROLES, {"name": "b"}]}
LLUMNIX = {"policy": "llumnix", "scheduling_policy": "slo"}
ADAPTIVE = NIXL | {"cluster.disaggregation.stage_order": "prefill_first",
                   "cluster.routing": LLUMNIX | {"enable_adaptive_pd": True}}
PREFILL_FIRST = NIXL | {"cluster.disaggregation.stage_order": "prefill_first"}
MIXTURE = {"model.name": "qwen3-30b-a3b", "latency": {"backend": "roofline"}}
RANKS = {"topology.data_parallel": 2}
LOCK_STEP = RANKS | {"model.name": "qwen3-30b-a3b"}
OPERATORS = {"backend": "operators"}
GROUPS = {"engine.kv_cache_groups": [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 64}]}
UNEVEN = {"engine.kv_cache_groups": [{"kind": "full_attention"},
                                     {"kind": "sliding_attention", "window": 64, "block_size": 32}]}
ENCODES = FEATURES["encode pools"]
TIERS = {"kv_tiers": {"protocol": "vllm_offload", "cpu_gib": 1.0, "d2h_gb_per_s": 5.0, "h2d_gb_per_s": 5.0,
                      "kv_bytes_per_token": 1e3}}


SPLIT = {"pools": ["a"], "weights": [1.0]}
SENT_ON = {"fallbacks": [{"of": "a", "to": ["b"]}], "pool_selection": {"table": [["a"]], "retry": ["b", "a"]}}
WINDOWS = {"policy": "weighted", "scorers": [{"name": "burst-prefix", "weight": 1.0}]}
DRAFTS = {"engine.speculative": {"method": "eagle", "num_tokens": 2, "drafter_share": 0.0}}

SGLANG_DRAFTS = {"method": "eagle", "num_steps": 2, "drafter_share": 0.0}


def transfer(protocol, **keys):
    return NIXL | {"kv_transfer": {"protocol": protocol} | MOVES | keys}


def host(key):
    return transfer("simai", upstream_compat=True) | {"engine.scheduler": "orca", f"latency.host.{key}": 3.0}


STREAMED = tuple({"output.streamed": True} | more for more in (
    {"output.token_times": True, "output.chrome_trace": True, "output.vidur_csv": True,
     "latency": {"backend": "roofline", "uncertainty": True, "host": {
         "front_end_us": 9.0, "front_end_per_prompt_token_us": 1.0}},
     "cluster.admission": {"policy": "reject_all", "latency_s": 0.1},
     "cluster.routing": {"policy": "cache_aware", "latency_s": 0.1, "retry_timeout_s": 1.0},
     "engine.policy": "priority", "engine.max_num_queued_reqs": 9, "engine.max_num_queued_tokens": 9,
     "engine.structured_outputs": {"fraction": 0.5}, "engine.encoder": {}, "engine.task": "pooling",
     "workload.load": {"mode": "concurrency", "concurrency": 9, "unit": "session", "think_time_s": {
         "distribution": "simulator.workload.drawing.times:Constant", "value": 1.0}},
     "workload.measure": {"warmup_s": 1.0}, "workload.warmup": {"copies_of_first": 1},
     "workload.output_knowledge": {"predictor": "exact"}, "workload.cancel_at_deadline": False,
     "workload.images": {"count": {"distribution": "constant", "tokens": 1}, "rule": "tokens_per_image",
                         "tokens_per_image": 9},
     "workload.videos": {"count": {"distribution": "constant", "tokens": 1}, "clips": [[9.0, 99.0, 99.0, 1.0]]}},
    {"workload.arrival": {"process": "trace", "path": "t"}, "pools": [{"name": "a"}],
     **{f"workload.{name}_tokens": {"distribution": "trace", "path": "t", "column": "c"} for name in (
         "prompt", "output")}},
    {"workload.arrival": {"process": "poisson", "rate_per_s": 1.0, "rescale_to_rate": True}},
    {"workload.arrival": {"process": "poisson", "ramp": "linear", "start_rate_per_s": 1.0, "end_rate_per_s": 2.0}},
    {"workload": {"type": "synthetic", "num_requests": 9}, "engine.scheduler": "orca"},
    {"workload": {"type": "synthetic", "preset": "vllm_random", "num_requests": 9}},
    {"workload.rate": {"kind": "counts", "path": "t"}},
    {"workload": {"type": "trace", "path": "t", "on_bad_row": "skip"}},
    {"workload": {"type": "trace", "path": "t", "format": "mooncake"}},
    vidur(),
    {"cluster.routing": {"policy": "weighted"}}, {"cluster.routing": {"policy": "consistent_hash", "key": "prompt"}},
    {"workload.num_requests": ABSENT}))
CASES = (
    {"output.requests_every": 9},
    {"engine.task": "pooling", "engine.structured_outputs": {"fraction": 0.5}}, DRAFTS | {"engine.task": "pooling"},
    NIXL | {"engine.task": "pooling"},
    *({f"engine.{key}": 9} | beside for key in ("max_num_queued_reqs", "max_num_queued_tokens")
      for beside in (NIXL, FEATURES["live migration"])),
    LOCK_STEP | MIXTURE | {"engine.experts.all2all_backend": "deepep_high_throughput", "topology.expert_parallel": 2,
                           "engine.cuda_graphs.mode": "full"},
    LOCK_STEP | NIXL | TIERS | {"engine.async_scheduling": False},
    LOCK_STEP | {"engine.scheduler": "blis", "engine.upstream_compat": True},
    {"engine.prefill_schedule_interval": 4, "engine.vllm_version": "0.32"},
    LOCK_STEP | {"engine.prefill_schedule_interval": 4, "engine.vllm_version": "0.33"},
    DRAFTS | {"kv_tiers": TIERS["kv_tiers"] | {"protocol": "lmcache"}},
    *({"engine.scheduler": "sglang", "engine.speculative": SGLANG_DRAFTS} | beside for beside in (
        transfer("sglang"), LOCK_STEP, {"kv_tiers": {"protocol": "hicache", "cpu_gib": 1.0}})),
    *({"engine.scheduler": "sglang", "engine.lora": {}} | beside for beside in (
        transfer("sglang"), LOCK_STEP, {"engine.speculative": SGLANG_DRAFTS | {"method": "draft_model"}})),
    *({"engine.scheduler": "sglang", "engine.structured_outputs": {"fraction": 0.5}} | beside for beside in (
        transfer("sglang"), {"engine.speculative": SGLANG_DRAFTS})),
    *({"engine.scheduler": "sglang", "latency": {"backend": "blackbox"}, f"engine.{key}": value} for key, value in (
        ("cuda_graph_max_bs_decode", 8), ("cuda_graph_bs_decode", [8]))),
    DRAFTS | {"engine.speculative.disable_lookahead_block_hashes": True, "engine.vllm_version": "0.33"} | TIERS,
    {"cluster.gateway_queue": {"saturation_legs": "all"}},
    {"topology.cp_kv_cache_interleave_size": 4}, {"topology.dcp_comm_backend": "a2a"},
    {"topology.prefill_context_parallel": 2, "latency": OPERATORS | {"all2all_backend": "deepep_low_latency"}},
    {"topology.pipeline_parallel": 2, "engine.vllm_version": "0.10", "engine.async_scheduling": True},
    ENCODES | {"cluster.programs.policy": "none"},
    {"latency.uncertainty": True}, {"latency.uncertainty_replications": 8}, {"latency.uncertainty_share": 0.5},
    {"latency.collective": {"backend": "busbw"}}, {"engine.experts": {}},
    MIXTURE | {"latency": {"backend": "trained_physics", "coefficients": "none"}, "engine.experts.dbo.enabled": True},
    MIXTURE | {"latency": {"backend": "aicb", "tables": "t"}, "engine.experts.all2all_backend": "deepep_low_latency"},
    MIXTURE | {"latency": OPERATORS | {"expert_load": "power_law_1.2"}, "engine.experts": {}},
    MIXTURE | {"latency": OPERATORS | {"all2all_backend": "deepep_low_latency"},
               "engine.experts.all2all_backend": "allgather_reducescatter"},
    MIXTURE | {"latency": {"backend": "trained_physics", "expert_exchange": "all_to_all"},
               "engine.experts.all2all_backend": "allgather_reducescatter"},
    MIXTURE | {"engine.experts.dbo.enabled": True, "topology.pipeline_parallel": 2},
    MIXTURE | {"engine.experts.eplb": {}, "engine.experts.placement": "round_robin"},
    {"engine.speculative": {"method": "draft_model", "model": "qwen3-0.6b", "num_tokens": 2}},
    {"failures": [{"kind": "slow", "at_s": 1.0, "on_failure": "migrate"}]},
    {"autoscaling": {"policy": "queue", "drain": "migrate"}},
    NIXL | {"cluster.pool_selection": {"table": [["p"]]}},
    *(each | {"cluster.leg_selection": {"prefill": {"table": [["p"]]}}} for each in (
        {"pools": [{"name": "p"}]}, WHOLE_BESIDE, NIXL | {"pools": [pool | {"serves": "a"} for pool in ROLES]},
        NIXL | {"cluster.routing": LLUMNIX}, NIXL | {"cluster.rescheduling": {}})),
    {"cluster.pool_selection": {"table": [["a"]]}, "pools": [{"name": "a", "serves": "a"}]},
    {"cluster.traffic_split": SPLIT, "pools": [{"name": "a", "serves": "a"}]},
    {"cluster": {"traffic_split": SPLIT, "pool_selection": {"table": [["a"]]}}, "pools": [{"name": "a"}]},
    NIXL | {"cluster.traffic_split": {"pools": ["p"], "weights": [1.0]}},
    *(each | {"workload.client_retry": {"timeout_s": 5.0}} for each in (
        NIXL, ENCODES, {"cluster.programs.policy": "none"}, {"workload.load": {"grace_s": 1.0}},
        {"workload.cancel_at_deadline": False})),
    *(each | {f"cluster.{key}": sent} for each in (
        NIXL, ENCODES, {"cluster.programs.policy": "none"}, {"workload.load": {"grace_s": 1.0}},
        {"workload.client_retry": {"timeout_s": 5.0}}) for key, sent in SENT_ON.items()),
    {f"cluster.{key}": sent for key, sent in SENT_ON.items()},
    *(each | {"cluster.routing": WINDOWS} for each in (
        NIXL, ENCODES, RANKS, {"cluster.programs.policy": "none"}, {"cluster.gateways": {"decision_us": 50.0}},
        {"workload.client_retry": {"timeout_s": 5.0}})),
    *(NIXL | {f"cluster.disaggregation.{leg}": WINDOWS} for leg in ("prefill", "decode")),
    NIXL | {"cluster.disaggregation.prefill": {"policy": "dynamo", "output_blocks": True}},
    NIXL | {"cluster": {"routing": {"policy": "dynamo", "output_blocks": True},
                        "disaggregation": {"decode": {"policy": "random"}}}},
    {"kv_transfer": {"protocol": "nixl"} | MOVES}, {"cluster.disaggregation.decider": "never"},
    {"cluster.routing.policy": "split_wise"},
    {"cluster.routing": LLUMNIX | {"infer_types": [{"infer_type": "decode", "selector": {"metrics": ["freeness"]}}]}},
    PREFILL_FIRST | {"cluster.routing.policy": "split_wise"},
    PREFILL_FIRST | {"cluster.disaggregation.decider": "prefix_threshold"},
    PREFILL_FIRST | {"kv_transfer": {"protocol": "mooncake"} | MOVES},
    WHOLE_BESIDE | {"cluster.disaggregation.stage_order": "prefill_first"},
    NIXL | {"autoscaling": {"policy": "blis"}},
    NIXL | {"autoscaling": {"policy": "hpa", "targets": [{"metric": "ttft", "value": 1.0}]}},
    {"autoscaling": {"policy": "planner", "itl_ms": 1.0, "prefill_profile": [
        {"prompt_tokens": 1, "ttft_ms": 1.0, "tokens_per_s": 1.0}], "decode_profile": [
        {"context_tokens": 1, "concurrency": 1, "itl_ms": 1.0, "tokens_per_s": 1.0}]}},
    WHOLE_BESIDE | {"cluster.routing.policy": "llumnix"},
    *(WHOLE_BESIDE | {f"cluster.disaggregation.{leg}.policy": "llumnix"} for leg in ("prefill", "decode")),
    *(NIXL | {f"cluster.disaggregation.{leg}": LLUMNIX | {"enable_adaptive_pd": True}}
      for leg in ("prefill", "decode")),
    transfer("nixl", granularity="chunk"), transfer("sglang", first_token="recompute"),
    transfer("simai", volume="missing"), transfer("mooncake", answer_hop_us=3.0), transfer("simai", handshake_ms=2.0),
    transfer("simai", notice_us=2.0), transfer("simai", noticed_at="end"), transfer("nixl", upstream_compat=True),
    transfer("nixl", num_reserved_decode_tokens=8), transfer("mooncake", lease_s=3.0),
    transfer("mooncake", heartbeats=False), transfer("mooncake", failure_policy="fail"),
    *map(host, ("queue_base_us", "queue_per_prompt_token_us", "front_end_us", "front_end_per_prompt_token_us")),
    WHOLE_BESIDE | {"engine.scheduler": "split_wise", "kv_transfer": {"protocol": "simai"} | MOVES},
    {"engine.scheduler": "blis", "kv_tiers": {"protocol": "blis_mirror", "cpu_blocks": 60}},
    transfer("blis"), {"engine.scheduler": "split_wise"},
    {"cluster.routing": {"policy": "random", "scorers": [{"name": "queue-depth", "weight": 1.0}]}},
    {"pools": [{"name": "a", "context_range": [0, 100]}]},
    {"cluster.routing": {"policy": "random", "filters": [{"name": "session-affinity"}]}},
    *(NIXL | {f"cluster.disaggregation.{leg}": {"policy": "random", "filters": [{"name": "session-affinity"}]}}
      for leg in ("prefill", "decode")),
    *(NIXL | {f"cluster.disaggregation.{leg}": {"policy": "random", "scorers": [
        {"name": "queue-depth", "weight": 1.0}]}} for leg in ("prefill", "decode")),
    *(transfer("sglang") | {"engine.scheduler": "sglang", f"engine.{key}": value} for key, value in (
        ("max_queued_requests", 4), ("enable_mixed_chunk", True), ("prefill_decode_interval", 2),
        ("scheduler_recv_interval", 2))),
    LOCK_STEP | {"engine.scheduler": "sglang", "engine.scheduler_recv_interval": 2},
    LOCK_STEP | {"engine.scheduler": "tensorrt_llm", "engine.batch_wait_timeout_iters": 2,
                 "engine.batch_wait_max_tokens_ratio": 0.5},
    WHOLE_BESIDE | {"engine.scheduler": "sglang", "kv_transfer": {"protocol": "sglang"} | MOVES},
    transfer("sglang", noticed_at="end") | {"engine.scheduler": "sglang"},
    transfer("nixl", noticed_at="end") | TIERS | {"engine.async_scheduling": False},
    ADAPTIVE | {"cluster.routing.scheduling_policy": "load-balance"},
    ADAPTIVE | {"cluster.disaggregation.stage_order": "decode_first"},
    ADAPTIVE | {"cluster.routing.snapshot_refresh_interval_s": 0.5},
    *(ADAPTIVE | {f"cluster.disaggregation.{leg}.policy": "round_robin"} for leg in ("prefill", "decode")),
    ADAPTIVE | {"cluster.disaggregation.decider": "never"},
    ADAPTIVE | {"kv_transfer": {"protocol": "nixl_push"} | MOVES},
    transfer("mooncake", granularity="layer") | GROUPS, transfer("sglang") | GROUPS,
    transfer("nixl", volume="full_prompt") | GROUPS, NIXL | GROUPS | TIERS,
    {"engine.data_parallel": {}}, RANKS | {"engine.scheduler": "sglang", "engine.data_parallel": {
        "prefill_schedule_interval": 3}},
    RANKS | {"engine.vllm_version": "0.10", "engine.data_parallel.prefill_schedule_interval": 3},
    RANKS | {"engine.data_parallel.padding": "sglang"},
    *(RANKS | {"engine.data_parallel": {"lockstep": False, key: value}} for key, value in (
        ("dp_sync_interval", 3), ("prefill_schedule_interval", 3), ("hop_us", 5.0), ("padding", "none"))),
    RANKS | {"engine.data_parallel": {"load_balancing": "external", "stats_interval_s": 0.5}},
    RANKS | {"engine.data_parallel.load_balancing": "hybrid"},
    LOCK_STEP | transfer("nixl", noticed_at="start") | {"engine.async_scheduling": False},
    UNEVEN | TIERS | {"cluster.routing.policy": "kvaware"},
    *({"pools": [{"name": "a", key: 1.0}]} for key in ("weight", "rpm", "tpm")),
    *(NIXL | {"pools": [ROLES[0] | {key: 1.0}, ROLES[1]], "cluster.routing.policy": "weighted_random"}
      for key in ("weight", "rpm", "tpm")),
    *(NIXL | {f"cluster.{table}.policy": "litellm_usage"}
      for table in ("routing", "disaggregation.prefill", "disaggregation.decode")),
    *(each | {"cluster.routing": {"policy": "dynamo", "queue": {"threshold": 1.0}}} for each in (NIXL, RANKS)),
    *(NIXL | {f"cluster.{table}": {}, "failures": [{"kind": "stop", "at_s": 1.0}]}
      for table in ("cooldown", "breaker", "retry")),
    {"cluster.retry": {}},
    {"autoscaling": {"policy": "queue", "max_replicas": 4, "shared_budget": {"max_gpus": 4}, "zero": {}}},
    *(each | {"restarts": [{"at_s": 1.0, "loading_delay": {}} | more]} for each, more in (
        (NIXL, {}), ({"failures": [{"kind": "stop", "at_s": 1.0}]}, {}), ({}, {"drain": "migrate"}))),
    *({"pools": [{"name": "a"}, {"name": "b"}], "restarts": [
        {"at_s": 1.0, "pool": "a", "to": "b", "loading_delay": {}}]} | more for more in (
            {"autoscaling": {"policy": "queue", "max_replicas": 4}},
            {"cluster.traffic_split": {"pools": ["a", "b"], "weights": [1.0, 1.0]}},
            {"cluster.pool_selection": {"table": [["a"]]}})),
    *(each | {"cluster.gateways": gateways} for gateways in ({"count": 2}, {"decision_us": 50.0}) for each in (
        NIXL, {"cluster.programs": {}})),
    {"cluster.gateways": {"decision_us": 50.0},
     "cluster.routing": {"policy": "dynamo", "queue": {"threshold": 1.0}}},
    *(RANKS | {"cluster.gateways": {"count": 2}, f"cluster.{key}": {}} for key in ("cooldown", "breaker")),
    {"cluster.programs": {}, "cluster.regions": {"names": ["a"], "replicas": [1], "latency_ms": [[0.0]]}},
    *(each | {"cluster.regions": {"names": ["a"], "pools": [[pool["name"] for pool in ROLES]], "latency_ms": [[0.0]]}}
      for each in (ADAPTIVE, NIXL | {"cluster.gateway_queue": {}})),
    *(each | {"cluster.gateways": {"count": 2}} for each in (
        {"cluster.gateway_queue": {"dispatch": "departures", "saturation": {"detector": "concurrency"}}},)),
    *(each | {"cluster.gateways": {"decision_us": 50.0}} for each in (ENCODES, {"cluster.routing.latency_s": 0.1})),
    *STREAMED,
)
# Pairs of features of which each is refused by a row that none before it reaches, and no case of CASES.
PAIRS = (
    ("KV tiers", "pipeline stages"), ("KV tiers", "decode context parallelism"),
    ("KV tiers", "prefill context parallelism"), ("KV tiers", "drafts of SGLang"), ("KV tiers", "hits inside blocks"),
    ("KV tiers", "vLLM 0.10"), ("KV tiers", "prefill and decode of BLIS"),
    ("KV tiers", "adaptive prefill and decode"), ("KV tiers", "live migration"), ("KV tiers", "KV held for programs"),
    ("tiers of lmcache", "windows"), ("tiers of BLIS", "pipeline stages"), ("tiers of BLIS", "no prefix caching"),
    ("tiers of BLIS", "prefill and decode by nixl"), ("tiers of SGLang", "routers that look at tiers"),
    ("tiers of SGLang", "prefill and decode by nixl"), ("tiers of SGLang", "choice of the requests to split"),
    ("pipeline stages", "ranks in lock step"), ("pipeline stages", "prefill context parallelism"),
    ("pipeline stages", "prefill and decode by nixl"), ("independent ranks", "prefill context parallelism"),
    ("independent ranks", "adaptive prefill and decode"), ("ranks in lock step", "prefill and decode by nixl"),
    ("ranks in lock step", "prefill and decode by mooncake"), ("ranks in lock step", "live migration"),
    ("decode context parallelism", "prefill context parallelism"), ("decode context parallelism", "draft models"),
    ("decode context parallelism", "windows"), ("decode context parallelism", "prefill and decode by nixl"),
    ("decode context parallelism", "live migration"), ("decode context parallelism", "backend step_roofline"),
    ("prefill context parallelism", "drafts"), ("prefill context parallelism", "LoRA"),
    ("prefill context parallelism", "images"), ("prefill context parallelism", "CUDA graphs"),
    ("prefill context parallelism", "recurrent states"),
    ("prefill context parallelism", "prefill and decode by nixl"), ("prefill context parallelism", "live migration"),
    ("prefill context parallelism", "backend step_roofline"),
    ("loads of experts that change", "replicas that slow down"), ("drafts", "prefill and decode by nixl"),
    ("CUDA graphs", "backend step_roofline"), ("windows", "live migration"), ("windows", "KV held for programs"),
    ("no prefix caching", "adaptive prefill and decode"), ("no prefix caching", "KV held for programs"),
    ("prefill and decode by nixl", "programs of agents"), ("prefill and decode by nixl", "KV held for programs"),
    ("prefill and decode by mooncake", "autoscaling"), ("prefill and decode by mooncake", "replicas that stop"),
    ("adaptive prefill and decode", "autoscaling"), ("adaptive prefill and decode", "replicas that stop"),
    ("live migration", "programs of agents"), ("live migration", "KV held for programs"),
    ("links that fail", "KV held for programs"),
)
