"""Two values of each key of the experiment's own tables that lead to different results, or one that is refused."""
from support.every_key import ABSENT, acts, predicts, refuses
from support.every_key_hand_over import APART

MODELLED = {"model__name": "llama-3.2-1b", "hardware__name": "h100-sxm-80gb", "latency__backend": "roofline"}
PLANNED = MODELLED | {"engine__num_gpu_blocks": ABSENT}
WITH_TOWER = PLANNED | {"model__name": "gemma-3-27b", "engine__max_num_batched_tokens": 8192}
LARGE = MODELLED | {"model__name": "llama-3.1-70b", "topology__tensor_parallel": 2, "topology__node": "dgx-h100"}
TIGHT = {"engine__num_gpu_blocks": 30}
FULL = {"engine__max_num_seqs": 1}
SLOW = {"latency__base_us": 20_000.0}
QUEUE = {"cluster__gateway_queue__tick_s": 1e-3, "cluster__gateway_queue__saturation__detector": "concurrency",
         "cluster__gateway_queue__saturation__max_concurrency": 1, **SLOW}
QUEUED = {"cluster__routing__policy": "dynamo", "cluster__routing__queue__threshold": 0.0, **SLOW}
COUNTED = {"cluster__routing__policy": "lor", **SLOW}
MOVES = {"cluster__rescheduling__policy": "rebalance", "cluster__rescheduling__interval_s": 0.01,
         "cluster__rescheduling__least_difference": 0.01, "cluster__rescheduling__kv_bytes_per_token": 1e5,
         "cluster__rescheduling__bandwidth_gb_per_s": 1.0, "cluster__rescheduling__mode": "live",
         "latency__base_us": 4000.0, "cluster__routing__policy": "always_busiest", "engine__max_num_seqs": 16,
         "engine__num_gpu_blocks": 400, "engine__max_num_batched_tokens": 512}
FAILS = {"failures": [{"kind": "stop", "which": 0, "at_s": 0.05, "duration_s": 0.05}], **SLOW}
BREAKS = {"failures": [{"kind": "stop", "mtbf_s": 0.1, "mttr_s": 0.05}], **SLOW}
TWO_POOLS = {"pools": [{"name": "a"}, {"name": "b"}]}
SCALES = {"autoscaling__policy": "queue", "autoscaling__interval_s": 0.05, "autoscaling__max_replicas": 6,
          "autoscaling__target_waiting": 1.0, **SLOW}
SHRINKS = SCALES | {"autoscaling__target_waiting": 1000.0}
ONE_RATE = {"autoscaling__rates__up": [{"percent": 30, "period_s": 0.05}], "autoscaling__interval_s": 0.02}
SCRAPED = SCALES | {"autoscaling__metrics__scrape_interval_s": 0.02, "autoscaling__metrics__offset": "none"}
SLEEPS = SCALES | {"autoscaling__zero__cooldown_s": 0.0, "autoscaling__zero__activation": 30,
                   "autoscaling__zero__poll_s": 0.02, "cluster__gateway_queue__tick_s": 1e-3}
PAIRED_UP = {"autoscaling__policy": "queue", "autoscaling__interval_s": 0.04, "autoscaling__target_waiting": 0.5,
             "autoscaling__shared_budget__max_gpus": 4, "autoscaling__shared_budget__min_gpus": 4,
             "pools": [{"name": name, "replicas": 2, "max_replicas": 3} for name in "ab"]} | {
                 "cluster__pool_selection__isl": {"max_tokens": 300, "cells": 2},
                 "cluster__pool_selection__table": [["a"], ["b"]]} | SLOW
SHARED = {"topology__tensor_parallel": 2, "topology__decode_context_parallel": 2,
          "latency__per_context_token_us": 10.0}
RANDOM = {"cluster__routing__policy": "random"}
GIVEN_UP = {"latency__base_us": 60_000.0}           # clients whose deadlines are short give up
RETRIES = FAILS | {"cluster__retry__jitter": 0.0}
AWAY = {"failures": [{"kind": "stop", "which": i % 3, "at_s": 0.05 + 0.1 * i, "duration_s": 0.05} for i in range(6)],
        "cluster__retry__jitter": 0.0, **SLOW}
RESTARTED = {"restarts": [{"at_s": 0.05, "loading_delay": {"mean_s": 0.05}, "warm_up_delay": {"mean_s": 0.02}}], **SLOW}
STOPPED = {"restarts": [RESTARTED["restarts"][0] | {"grace_s": 0.02}], **SLOW}
UPDATED = {"pools": [{"name": name} for name in "abc"], "restarts": [
    RESTARTED["restarts"][0] | {"pool": "a", "to": "b"}], **SLOW}
DRAWN_HERE = {"type": "synthetic", "num_requests": 30, "arrival": {"process": "poisson", "rate_per_s": 500.0},
              "prompt_tokens": {"distribution": "constant", "tokens": 20},
              "output_tokens": {"distribution": "constant", "tokens": 20}}
REGIONAL = {"workload": DRAWN_HERE} | {f"cluster__regions__{key}": value for key, value in {
    "names": ["here", "there"], "replicas": [1, 2], "latency_ms": [[0.0, 30.0], [30.0, 0.0]], "spill_at": 2.0}.items()}
RESENT = {"workload__client_retry__timeout_s": 0.1, "workload__client_retry__backoff_s": 0.01,
          "workload__client_retry__jitter": 0.0, "workload__client_retry__factor": 2.0} | SLOW
SHARED_OUT = TWO_POOLS | {"cluster__traffic_split__pools": ["a", "b"],
                          "cluster__traffic_split__weights": [1.0, 1.0]}
CLASSES = [{"name": "critical"}, {"name": "standard"}]


def delay(key):
    """Return the entries of a delay of autoscaling."""
    settings = {f"autoscaling__{key}__mean_s": 0.02, **SCALES}
    normal = settings | {f"autoscaling__{key}__law": "normal"}
    return {f"autoscaling.{key}.mean_s": acts(0.0, 0.1, **SCALES),
            f"autoscaling.{key}.stddev_s": acts(0.0, 0.02, **normal),
            f"autoscaling.{key}.law": acts("constant", "exponential", **settings)}


def _normal_restart(key):
    """Return the settings of a rolling restart with one normal delay."""
    restart = RESTARTED["restarts"][0]
    return {"restarts": [restart | {key: restart[key] | {"law": "normal"}}], **SLOW}


DRAWN = {"workload": {key: value for key, value in DRAWN_HERE.items() if key != "type"}}
# A mixture whose experts are not loaded evenly; of which changes show.
UNEVEN = MODELLED | {"model__name": "gpt-oss-20b", "topology__tensor_parallel": 2, "topology__expert_parallel": 2,
                     "engine__experts__popularity__distribution": "zipf", "engine__experts__popularity__s": 1.0}
SHIFTING = UNEVEN | {"topology__replicas": 1, "engine__experts__popularity__drift_steps": 60,
                     "latency__mfu_decode": 1e-4, "engine__experts__eplb__step_interval": 50}
ON_ALL_RANKS = "expected false with topology.data_parallel = 1"
OF_EXPERTS = {
    "engine.experts.all2all_backend": refuses("deepep_low_latency", "expected none with topology.data_parallel = 1",
                                              **UNEVEN),
    "engine.experts.placement": predicts("linear", "round_robin", **UNEVEN),
    "engine.experts.popularity.distribution": refuses("uniform", 's goes with "zipf"', **UNEVEN),
    "engine.experts.popularity.s": predicts(0.5, 1.5, **UNEVEN),
    "engine.experts.popularity.file": refuses("no-such-file.csv", 'file goes with "file"', **UNEVEN),
    "engine.experts.popularity.drift_steps": acts(40, 90, **SHIFTING),
    "engine.experts.popularity.seed": predicts(0, 1, **UNEVEN),
    "engine.experts.eplb.num_redundant_experts": acts(0, 2, "memory", **UNEVEN | {
        "engine__num_gpu_blocks": ABSENT, "engine__max_num_batched_tokens": 8192}),
    "engine.experts.eplb.window_size": acts(1, 50, **SHIFTING),
    "engine.experts.eplb.step_interval": acts(50, 90, **SHIFTING),
    "engine.experts.eplb.use_async": acts(False, True, **SHIFTING),
    "engine.experts.dbo.enabled": refuses(True, ON_ALL_RANKS, **UNEVEN),
    **{f"engine.experts.dbo.{name}": refuses(7, ON_ALL_RANKS, **UNEVEN | {"engine__experts__dbo__enabled": True})
       for name in ("decode_token_threshold", "prefill_token_threshold", "comm_sms")},
    "engine.experts.dbo.num_sms": refuses(80, ON_ALL_RANKS, **UNEVEN | {"engine__experts__dbo__enabled": True}),
}
GENERAL = {
    "name": acts("a", "b", "summary"),
    "seed": acts(1, 2, **RANDOM),
    "horizon_s": acts(0.05, 10.0),
    "model.name": acts("llama-3.2-1b", "llama-3.1-8b", **MODELLED),
    "model.config": refuses("no-such-config.json", "no-such-config.json: ", **MODELLED | {"model__name": ABSENT}),
    "model.dtype": predicts("bfloat16", "fp8", **MODELLED),
    "model.kv_cache_dtype": predicts("auto", "fp8", **MODELLED),
    "hardware.name": acts("h100-sxm-80gb", "l4", **MODELLED),
    "topology.replicas": acts(1, 3),
    "topology.tensor_parallel": acts(1, 2, **MODELLED),
    "topology.pipeline_parallel": acts(1, 2, **MODELLED),
    "topology.expert_parallel": acts(1, 2, "memory", **MODELLED | {
        "model__name": "mixtral-8x7b", "topology__tensor_parallel": 2, "engine__num_gpu_blocks": ABSENT,
        "engine__max_num_batched_tokens": 8192}),
    "topology.data_parallel": acts(1, 2),
    "topology.decode_context_parallel": acts(1, 2, topology__tensor_parallel=2),
    "topology.cp_kv_cache_interleave_size": acts(1, 8, **SHARED),
    "topology.dcp_comm_backend": predicts("ag_rs", "a2a", **MODELLED | {
        "topology__tensor_parallel": 16, "topology__decode_context_parallel": 2}),
    "topology.prefill_context_parallel": acts(1, 2),
    "engine.data_parallel.lockstep": acts(True, False, topology__data_parallel=2),
    "engine.data_parallel.dp_sync_interval": acts(
        1, 64, topology__data_parallel=2, topology__replicas=1, latency__base_us=300.0, engine__async_scheduling=False),
    "engine.data_parallel.prefill_schedule_interval": acts(1, 8, topology__data_parallel=2),
    "engine.data_parallel.load_balancing": acts("internal", "external", topology__data_parallel=2),
    "engine.data_parallel.stats_interval_s": refuses(
        5.0, "[cluster.routing] alone chooses", topology__data_parallel=2,
        engine__data_parallel__load_balancing="external"),
    "engine.data_parallel.hop_us": acts(0.0, 1e4, topology__data_parallel=2),
    "engine.data_parallel.padding": acts(
        "vllm", "none", topology__data_parallel=2, engine__cuda_graphs__mode="full",
        latency__per_decode_token_us=100.0),
    "topology.node": predicts("dgx-a100-40gb", "aws-p4d", **MODELLED | {
        "topology__tensor_parallel": 16, "model__name": "llama-3.1-70b", "hardware__name": "a100-sxm-40gb"}),
    "engine.scheduler": acts("vllm", "blis", engine__num_gpu_blocks=16, **SLOW),
    "engine.max_model_len": acts(512, 140),
    "engine.allow_long_max_model_len": refuses(
        False, "expected at most 8192", **MODELLED | {"model__name": "llama-3-8b", "engine__max_model_len": 9000}),
    "engine.block_size": acts(16, 8),
    "engine.num_gpu_blocks": acts(30, 60),
    "engine.gpu_memory_utilization": acts(0.75, 0.9, **MODELLED | {
        "model__name": "llama-3.1-8b", "hardware__name": "l4", "engine__num_gpu_blocks": ABSENT,
        "engine__max_num_batched_tokens": 128}),
    "engine.enable_prefix_caching": acts(True, False),
    "latency.backend": acts("linear", "roofline", **MODELLED),
    "latency.resolution_us": acts(0.0, 1000.0),
    "latency.time_factor": acts(ABSENT, 1.5),
    "latency.uncertainty": acts(False, True, "summary", **MODELLED),
    "latency.uncertainty_replications": acts(4, 8, "summary", latency__uncertainty=True, **MODELLED),
    "latency.uncertainty_share": acts(0.5, 0.9, "summary", latency__uncertainty=True, **MODELLED),
    "latency.host.front_end_us": acts(0.0, 1e4),
    "latency.host.front_end_per_prompt_token_us": acts(0.0, 100.0),
    "latency.host.api_server_count": acts(1, 2, latency__host__front_end_us=1e5),
    "latency.host.queue_base_us": acts(0.0, 1e4),
    "latency.host.queue_per_prompt_token_us": acts(0.0, 100.0),
    "latency.host.output_token_us": acts(0.0, 100.0),
    "latency.host.output_token_accumulates": acts(False, True, latency__host__output_token_us=100.0),
    "latency.host.completion_us": acts(0.0, 1000.0),
    "latency.host.iteration_us": acts(0.0, 1000.0),
    "latency.host.sequence_us": acts(0.0, 1000.0),
    "latency.host.defaults": acts("none", "vllm"),
    "latency.collective.backend": predicts("busbw", "flow", **LARGE),
    "workload.type": refuses("trace", "workload.num_requests: unknown key", **DRAWN),
    "slo.ttft_ms": acts(10.0, 1000.0),
    "slo.tpot_ms": acts(1.0, 1000.0),
    "slo.e2el_ms": acts(10.0, 1000.0),
    "slo.classes[].name": acts("critical", "sheddable", slo__classes=[{"ttft_ms": 1.0}]),
    "slo.classes[].priority": acts(5, -5, **QUEUE | {"slo__classes": CLASSES}),
    "slo.classes[].ttft_ms": acts(1.0, 1000.0, slo__classes=CLASSES),
    "slo.classes[].tpot_ms": acts(1.0, 1000.0, slo__classes=CLASSES),
    "slo.classes[].e2el_ms": acts(1.0, 1000.0, slo__classes=CLASSES),
    **{f"fitness.{name}": acts(0.0, 1.0, fitness__p99_ttft=1.0, fitness__mean_e2e=1.0) for name in (
        "p99_ttft", "p50_ttft", "mean_ttft", "p99_e2e", "p50_e2e", "mean_e2e", "throughput", "tokens_per_sec")},
    "output.replica_samples_s": acts(0.0, 0.01),
    "output.streamed": refuses(True, "output.requests: expected false with output.streamed = true, found true"),
    "output.requests_every": refuses(3, "output.requests_every: expected 0 without output.streamed = true, found 3"),
    "output.decisions": acts(0, 2, **RANDOM),
}

HELD = QUEUE | {"cluster__gateway_queue__saturation__max_concurrency": 3}
LATENCIES = [{"prompt_tokens": 64, "output_tokens": 8, "latency_ms": 10.0},
             {"prompt_tokens": 64, "output_tokens": 32, "latency_ms": 9e4}]
REVOKES = SLOW | {"cluster__gateway_queue__in_flight_eviction": True,
                  "cluster__gateway_queue__reclamation": {"grace_s": 0.0},
                  "cluster__gateway_queue__saturation": {
                      "detector": "concurrency", "mode": "tokens", "max_tokens": 300},
                  "slo__classes": [{"name": "standard", "priority": -1}]}
FRONT = {
    "cluster.admission.policy": acts("always", "reject_all"),
    "cluster.admission.latency_s": acts(0.0, 0.01),
    "cluster.gateway_queue.order": acts("fifo", "priority", **QUEUE),
    "cluster.gateway_queue.fairness": acts("none", "round_robin", **QUEUE),
    **{f"cluster.gateway_queue.las.{key}": acts(*values, cluster__gateway_queue__fairness="las", **QUEUE)
       for key, values in {
        "service_weight": (0.0, 5.0), "wait_weight": (0.0, 5.0), "half_life_s": (0.001, 60.0),
        "output_weight": (0.0, 50.0), "ttl_s": (0.001, 3600.0)}.items()},
    "cluster.gateway_queue.limits.policy": acts("static", "reflective", **HELD),
    **{f"cluster.gateway_queue.limits.{key}": acts(*values, **HELD | {
        "cluster__gateway_queue__limits": {"policy": "holdback", "least_ceiling": 0.3}}) for key, values in {
            "least_ceiling": (0.3, 1.0), "largest_ceiling": (0.5, 1.0), "spacing": ("rank", "value")}.items()},
    "cluster.gateway_queue.dispatch": acts("ticks", "departures", **QUEUE),
    "cluster.gateway_queue.tick_s": acts(0.001, 0.05, **QUEUE),
    "cluster.gateway_queue.max_requests": acts(0, 3, **QUEUE),
    "cluster.gateway_queue.max_requests_per_band": acts(0, 2, **QUEUE),
    "cluster.gateway_queue.max_bytes": acts(0, 1000, **QUEUE),
    "cluster.gateway_queue.max_bytes_per_band": acts(0, 1000, **QUEUE),
    "cluster.gateway_queue.bytes_per_token": acts(1.0, 100.0, cluster__gateway_queue__max_bytes=1000, **QUEUE),
    **{f"cluster.gateway_queue.slack.{key}": acts(*values, cluster__gateway_queue__order="slack", **QUEUE | {
        "cluster__gateway_queue__slack": {"profile": LATENCIES, **targets}}) for key, values, targets in (
            ("profile[].prompt_tokens", (64, 4096), {"e2el_ms": 1.0}), ("profile[].output_tokens", (8, 4096), {
                "e2el_ms": 1.0}), ("profile[].latency_ms", (1.0, 9e4), {"e2el_ms": 1.0}),
            ("tpat_ms", (0.001, 100.0), {}), ("tpot_ms", (0.001, 100.0), {}))},
    "cluster.gateway_queue.slack.ttft_ms": refuses(
        1.0, "give one target", cluster__gateway_queue__order="slack", **QUEUE | {
            "cluster__gateway_queue__slack": {"profile": LATENCIES, "tpat_ms": 1.0}}),
    "cluster.gateway_queue.slack.e2el_ms": refuses(
        1.0, "give one target", cluster__gateway_queue__order="slack", **QUEUE | {
            "cluster__gateway_queue__slack": {"profile": LATENCIES, "tpat_ms": 1.0}}),
    "cluster.gateway_queue.reclamation.max_evictions": acts(1, 9, **REVOKES),
    "cluster.gateway_queue.reclamation.grace_s": acts(0.0, 0.5, **REVOKES),
    "cluster.gateway_queue.shedding": acts("none", "sheddable", cluster__gateway_queue__max_requests=3, **QUEUE),
    "cluster.gateway_queue.ttl_s": acts(0.0, 0.1, **QUEUE),
    "cluster.gateway_queue.no_endpoint_ttl_s": acts(0.0, 0.01, **QUEUE | FAILS | {"topology__replicas": 1}),
    "cluster.gateway_queue.expiry_scan_s": acts(0.0, 0.3, cluster__gateway_queue__ttl_s=0.1, **QUEUE),
    "cluster.gateway_queue.saturation_legs": acts("first", "all", **QUEUE | APART | {
        "cluster__gateway_queue__saturation__max_concurrency": 2}),
    "cluster.gateway_queue.lowest_ceiling": acts(1.0, 0.3, **QUEUE | {
        "cluster__gateway_queue__saturation__max_concurrency": 3}),
    "cluster.gateway_queue.in_flight_eviction": acts(False, True, **QUEUE),
    "cluster.gateway_queue.upstream_compat": acts(False, True, **QUEUE | {
        "cluster__gateway_queue__in_flight_eviction": True, "latency__host__queue_base_us": 30_000.0}),
    "cluster.gateway_queue.saturation.detector": acts("utilisation", "never", **QUEUE | {
        "cluster__gateway_queue__saturation": {}}),
    "cluster.gateways.count": acts(1, 3, **COUNTED),
    "cluster.gateways.assignment": acts("round_robin", "random", cluster__gateways__count=2, **COUNTED),
    "cluster.gateways.like": acts(ABSENT, "litellm", **COUNTED),
    "cluster.gateways.decision_us": acts(0.0, 5000.0, **COUNTED),
    "cluster.gateways.decision_us_per_replica": acts(0.0, 1000.0, **COUNTED),
    "cluster.gateways.workers": acts(1, 3, cluster__gateways__decision_us=20_000.0, **COUNTED),
    "cluster.routing.queue.threshold": acts(0.0, 100.0, **QUEUED),
    "cluster.routing.queue.threshold_tokens": acts(0, 10**6, **QUEUED | {"cluster__routing__queue__threshold": 100.0}),
    "cluster.routing.queue.busy_ratio": acts(0.1, 1.0, **QUEUED),
    "cluster.routing.queue.order": acts("fcfs", "lcfs", **QUEUED),
    "cluster.routing.queue.classes[].slo_class": acts("critical", "sheddable", **QUEUED | {
        "cluster__routing__queue__classes": [{"max_requests": 0}, {}]}),
    "cluster.routing.queue.classes[].min_tokens": acts(40, 1000, **QUEUED | {
        "cluster__routing__queue__classes": [{"max_requests": 0}, {}]}),
    "cluster.routing.queue.classes[].quantum": acts(1, 10**6, **QUEUED | {
        "cluster__routing__queue__classes": [{}, {"min_tokens": 100, "quantum": 100}]}),
    **{f"cluster.routing.queue.classes[].{key}": acts(*values, **QUEUED | {
        "cluster__routing__queue__classes": [{}]} | settings) for key, values, settings in (
            ("order", ("fcfs", "lcfs"), {}), ("threshold", (0.0, 100.0), {}),
            ("threshold_tokens", (0, 10**6), {"cluster__routing__queue__threshold": 100.0}),
            ("max_requests", (0, 1000), {}), ("max_prompt_tokens", (0, 10**6), {}),
            ("max_cached_tokens", (0, 10**6), {}))},
    "cluster.routing.policy": acts("round_robin", "least_loaded"),
    "cluster.routing.snapshot_refresh_interval_s": acts(0.0, 0.1, cluster__routing__policy="vllm_dp"),
    "cluster.routing.retry_timeout_s": acts(0.0, 0.2, **FAILS | {
        "topology__replicas": 1, "cluster__routing__retry_interval_s": 0.01}),
    "cluster.routing.retry_interval_s": acts(0.01, 0.2, **FAILS | {
        "topology__replicas": 1, "cluster__routing__retry_timeout_s": 0.5}),
    "cluster.routing.cache_signal_delay_s": acts(0.0, 0.1, cluster__routing__policy="dynamo"),
    "cluster.routing.latency_s": acts(0.0, 0.01),
    "cluster.routing.like": acts(ABSENT, "llm-d-default"),
    "cluster.routing.filters[].name": acts("session-affinity", "prefix-affinity", cluster__routing__policy="weighted"),
    "cluster.routing.scorers[].name": acts("queue-depth", "session-affinity", cluster__routing__policy="weighted",
                                           cluster__routing__scorers=[{"weight": 1.0}]),
    "cluster.routing.scorers[].weight": acts(0.01, 100.0, cluster__routing__policy="weighted",
                                             cluster__routing__scorers=[{"name": "session-affinity"},
                                                                        {"name": "active-requests", "weight": 1.0}]),
    "cluster.rescheduling.policy": acts(
        "rebalance", "llumnix", cluster__rescheduling__bandwidth_gb_per_s=1.0,
        cluster__rescheduling__kv_bytes_per_token=1e5, cluster__routing__policy="always_busiest"),
    "cluster.rescheduling.interval_s": acts(0.01, 0.1, **MOVES),
    "cluster.rescheduling.mode": acts("live", "blocking", **MOVES | {"cluster__rescheduling__last_stage_blocks": 1}),
    "cluster.rescheduling.max_migrations_in": acts(1, 3, **MOVES | {
        "cluster__rescheduling__num_requests": 3, "cluster__rescheduling__max_migrations_out": 3}),
    "cluster.rescheduling.max_migrations_out": acts(1, 3, **MOVES | {
        "cluster__rescheduling__num_requests": 3, "cluster__rescheduling__max_migrations_in": 3}),
    "cluster.rescheduling.max_stages": acts(1, 3, **MOVES | {"cluster__rescheduling__last_stage_blocks": 1}),
    "cluster.rescheduling.last_stage_blocks": acts(1, 16, **MOVES),
    "cluster.rescheduling.bandwidth_gb_per_s": acts(0.1, 10.0, **MOVES),
    "cluster.rescheduling.latency_s": acts(0.0, 0.01, **MOVES),
    "cluster.rescheduling.kv_bytes_per_token": acts(1e4, 1e6, **MOVES),
    "cluster.health.check_interval_s": acts(0.0, 0.03, **FAILS),
    "cluster.health.failures": acts(1, 2, cluster__health__check_interval_s=0.015, **FAILS),
    "cluster.health.successes": acts(1, 3, cluster__health__check_interval_s=0.015, **FAILS),
    "cluster.health.detection_delay_s": acts(0.0, 0.02, **FAILS),
    "cluster.health.reopening_delay_s": acts(0.0, 0.05, **FAILS),
    "restarts[].at_s": acts(0.02, 0.1, **RESTARTED), "restarts[].at_once": acts(1, 2, **RESTARTED),
    "restarts[].pool": acts("a", "b", **RESTARTED | TWO_POOLS), "restarts[].to": acts("b", "c", **UPDATED),
    "restarts[].max_surge": acts(1, 3, **UPDATED), "restarts[].max_unavailable": acts(0, 2, **UPDATED),
    "restarts[].drain": refuses("migrate", "it moves requests", **RESTARTED),
    "restarts[].grace_s": acts(0.01, 1.0, **RESTARTED), "restarts[].on_stop": acts("retry", "lost", **STOPPED),
    **{f"restarts[].{key}.{name}": case for key in ("loading_delay", "warm_up_delay") for name, case in {
        "mean_s": acts(0.01, 0.1, **RESTARTED),
        "stddev_s": acts(0.0, 0.02, **_normal_restart(key)),
        "law": acts("constant", "exponential", **RESTARTED)}.items()},
    "failures[].kind": acts("stop", "slow", **FAILS),
    "failures[].target": acts("replica", "node", **FAILS | {
        "hardware__name": "h100-sxm-80gb", "topology__node": "dgx-h100"}),
    "failures[].which": acts(0, 1, **FAILS),
    "failures[].pool": acts("a", "b", **BREAKS | TWO_POOLS),
    "failures[].at_s": acts(0.02, 0.1, **FAILS),
    "failures[].mtbf_s": acts(0.05, 0.2, **BREAKS),
    "failures[].mtbf_law": acts("exponential", "constant", **BREAKS),
    "failures[].mtbf_shape": acts(1.0, 3.0, **BREAKS | {
        "failures": [{"kind": "stop", "mtbf_s": 0.1, "mttr_s": 0.05, "mtbf_law": "weibull"}]}),
    "failures[].duration_s": acts(0.02, 0.2, **FAILS),
    "failures[].mttr_s": acts(0.02, 0.2, **BREAKS),
    "failures[].mttr_law": acts("exponential", "constant", **BREAKS),
    "failures[].mttr_shape": acts(1.0, 3.0, **BREAKS | {
        "failures": [{"kind": "stop", "mtbf_s": 0.1, "mttr_s": 0.05, "mttr_law": "weibull"}]}),
    "failures[].slow_factor": acts(2.0, 5.0, **FAILS | {
        "failures": [{"kind": "slow", "which": 0, "at_s": 0.05}]}),
    "failures[].on_failure": acts("retry", "lost", **FAILS),
    "failures[].max_retries": acts(0, 3, **FAILS),
    "failures[].name": acts("one", "another", **BREAKS),
    "autoscaling.policy": acts("queue", "utilisation", autoscaling__max_replicas=6, autoscaling__interval_s=0.05,
                               **SLOW),
    "autoscaling.interval_s": acts(0.05, 0.1, **SCALES),
    "autoscaling.min_replicas": acts(1, 2, **SHRINKS),
    "autoscaling.max_replicas": acts(4, 6, **SCALES),
    "autoscaling.scale_up_stabilization_window_s": acts(0.0, 0.1, **SCALES),
    "autoscaling.scale_down_stabilization_window_s": acts(0.0, 0.1, **SHRINKS),
    "autoscaling.stabilization": acts("unbroken", "extreme", **SCALES | {
        "autoscaling__scale_up_stabilization_window_s": 0.04, "autoscaling__interval_s": 0.02}),
    "autoscaling.weights.gb_per_s": acts(0.1, 10.0, **SCALES | {"autoscaling__weights__size_gb": 0.01}),
    "autoscaling.weights.size_gb": acts(0.01, 0.1, **SCALES | {"autoscaling__weights__gb_per_s": 1.0}),
    "autoscaling.ready_probe_s": acts(0.0, 0.07, **SCALES | {"autoscaling__warm_up_delay__mean_s": 0.02}),
    "autoscaling.rates.up[].percent": acts(30, 100, **SCALES | ONE_RATE),
    "autoscaling.rates.up[].replicas": acts(1, 3, **SCALES | {"autoscaling__rates__up": [{"period_s": 0.1}]}),
    "autoscaling.rates.up[].period_s": acts(0.05, 0.2, **SCALES | ONE_RATE),
    "autoscaling.rates.down[].percent": acts(30, 70, **SHRINKS | {"autoscaling__rates__down": [{"period_s": 0.2}]}),
    "autoscaling.rates.down[].replicas": acts(1, 2, **SHRINKS | {"autoscaling__rates__down": [{"period_s": 0.2}]}),
    "autoscaling.rates.down[].period_s": acts(0.05, 0.2, **SHRINKS | {
        "autoscaling__rates__down": [{"replicas": 1, "period_s": 0.05}]}),
    "autoscaling.rates.select": acts("max", "disabled", **SCALES),
    "autoscaling.rates.select_down": acts("max", "disabled", **SHRINKS),
    "autoscaling.metrics.scrape_interval_s": acts(0.02, 0.12, **SCRAPED),
    "autoscaling.metrics.offset": acts("random", "none", **SCRAPED | {
        "autoscaling__metrics__scrape_interval_s": 0.3}),
    "autoscaling.metrics.window_s": acts(0.01, 0.2, **SCRAPED | {"autoscaling__metrics__aggregate": "mean"}),
    "autoscaling.metrics.aggregate": acts("last", "mean", **SCRAPED),
    "autoscaling.metrics.staleness_s": acts(0.001, 9.0, **SCRAPED),
    "autoscaling.zero.poll_s": acts(0.02, 0.09, **SLEEPS),
    "autoscaling.zero.cooldown_s": acts(0.0, 300.0, **SLEEPS),
    "autoscaling.zero.activation": acts(0, 40, **SLEEPS),
    "autoscaling.shared_budget.min_gpus": acts(1, 3, **SHRINKS),
    "autoscaling.shared_budget.max_gpus": acts(3, 9, **SCALES),
    "autoscaling.shared_budget.intent_ttl_s": acts(0.01, 9.0, **PAIRED_UP),
    "autoscaling.drains": acts("newest", "oldest", **SHRINKS),
    "autoscaling.drain": acts("finish", "migrate", **SHRINKS | {
        "cluster__rescheduling__bandwidth_gb_per_s": 1.0, "cluster__rescheduling__kv_bytes_per_token": 1e5}),
    **delay("actuation_delay"), **delay("provisioning_delay"), **delay("image_pull_delay"),
    **delay("loading_delay"), **delay("warm_up_delay"),
}

POOLS = {
    "pools[].name": acts("a", "c", pools=[{}, {"name": "b"}]),
    "pools[].replicas": acts(1, 2, pools=[{"name": "a"}, {"name": "b"}]),
    "pools[].max_replicas": acts(3, 5, **SCALES | {"pools": [{"name": "a"}]}),
    "pools[].serves": acts("m0", "m1", pools=[{"name": "a"}, {"name": "b"}]),
    "pools[].nodes_per_unit": acts(1, 2, topology__replicas=4, **SLOW, pools=[{"name": "a"}], failures=[
        {"kind": "stop", "target": "unit", "which": 0, "at_s": 0.05, "duration_s": 0.05}]),
    "cluster.cooldown.seconds": acts(0.01, 5.0, cluster__cooldown__min_requests=1, **FAILS),
    "cluster.cooldown.failed_share": acts(0.0, 1.0, cluster__cooldown__min_requests=1, **GIVEN_UP),
    "cluster.cooldown.min_requests": acts(1, 1000, cluster__cooldown__failed_share=0.0, **GIVEN_UP),
    "cluster.cooldown.allowed_fails": acts(0, 1000, **GIVEN_UP),
    "cluster.breaker.failures": acts(1, 1000, **GIVEN_UP),
    "cluster.breaker.window_s": acts(1e-6, 100.0, cluster__breaker__failures=2, **GIVEN_UP),
    "cluster.breaker.open_s": acts(0.01, 60.0, cluster__breaker__failures=1, **GIVEN_UP),
    "cluster.retry.attempts": acts(0, 5, **RETRIES),
    "cluster.retry.backoff_s": acts(0.0, 0.1, **RETRIES),
    "cluster.retry.factor": acts(1.0, 10.0, **AWAY),
    "cluster.retry.max_s": acts(0.01, 1.0, cluster__retry__backoff_s=0.1, **RETRIES),
    "cluster.retry.jitter": acts(0.0, 0.5, **FAILS),
    **{f"workload.client_retry.{key}": case for key, case in {
        "attempts": acts(0, 2, **RESENT), "backoff_s": acts(0.01, 0.2, **RESENT), "factor": acts(1.0, 10.0, **RESENT),
        "max_s": acts(0.005, 1.0, **RESENT), "jitter": acts(0.0, 0.5, **RESENT),
        "timeout_s": acts(0.05, 5.0, workload={"type": "synthetic"} | DRAWN["workload"], **SLOW),
        "on": acts(["timeout"], ["rejected"], **RESENT),
        "budget_share": acts(0.0, 1.0, **RESENT),
        "budget_window_s": acts(0.01, 100.0, workload__client_retry__budget_share=0.3, **RESENT)}.items()},
    "cluster.regions.names": acts(["here", "there"], ["a", "b"], "summary", **REGIONAL),
    "cluster.regions.replicas": acts([1, 2], [2, 1], **REGIONAL),
    "cluster.regions.pools": refuses([["a"], ["c"]], 'there is no pool "c"', **REGIONAL | TWO_POOLS | {
        "cluster__regions__replicas": []}),
    "cluster.regions.latency_ms": acts([[0.0, 30.0], [30.0, 0.0]], [[0.0, 30.0], [60.0, 0.0]], **REGIONAL),
    "cluster.regions.share": acts([1.0, 1.0], [9.0, 1.0], **REGIONAL),
    "cluster.regions.by": refuses("tenant", "no request has a tenant", **REGIONAL),
    "cluster.regions.column": refuses("tenant", "expected names of regions", **REGIONAL),
    "cluster.regions.policy": acts("local_first", "lowest_latency", **REGIONAL | {
        "cluster__regions__names": ["a", "b", "c"], "cluster__regions__replicas": [1, 1, 1],
        "cluster__regions__latency_ms": [[0.0, 80.0, 20.0], [80.0, 0.0, 20.0], [20.0, 20.0, 0.0]],
        "cluster__regions__spill_at": 4.0}),
    "cluster.regions.spill_at": acts(1.0, 1e6, **REGIONAL),
    "cluster.traffic_split.pools": refuses(["a", "c"], 'there is no pool "c"', **SHARED_OUT),
    "cluster.traffic_split.weights": acts([1.0, 3.0], [3.0, 1.0], **SHARED_OUT),
    "cluster.traffic_split.by": acts("request", "tenant", **SHARED_OUT),
    "pools[].weight": acts(1.0, 5.0, cluster__routing__policy="weighted_random", pools=[
        {"name": "a"}, {"name": "b", "weight": 1.0}]),
    "pools[].rpm": acts(1.0, 5.0, cluster__routing__policy="weighted_random", pools=[
        {"name": "a"}, {"name": "b", "rpm": 1.0}]),
    "pools[].tpm": acts(10.0, 1e6, cluster__routing__policy="litellm_usage", pools=[{"name": "a"}, {"name": "b"}]),
    "pools[].context_range": acts([0, 80], [100, 200], pools=[{"name": "a"}, {"name": "b"}], cluster__routing={
        "policy": "weighted", "scorers": [{"name": "context-length", "weight": 1.0}]}),
    "pools[].cost_per_hour": acts(0.0, 3.0, **TWO_POOLS),
}
TIERS = {"kv_tiers__cpu_gib": 0.0005, "kv_tiers__kv_bytes_per_token": 1000.0, "kv_tiers__d2h_gb_per_s": 0.01,
         "kv_tiers__h2d_gb_per_s": 0.01, "engine__num_gpu_blocks": 26}
OF_TIERS = {"kv_tiers.protocol": refuses("none", 'no protocol of KV tiers "none"', **TIERS)}
SECTIONS = GENERAL | OF_EXPERTS | FRONT | POOLS | OF_TIERS
