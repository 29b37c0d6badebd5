"""Keys of which one small experiment shows nothing, and the test, or the reason, that stands for it."""

# Files whose tests change the key and see another result.
SHOWN_IN = {
    "engine/test_patience.py": ("cluster", "give_up_after_s give_up_failing_after_s"),
    "engine/test_guards.py": ("cluster.breaker", "successes"),
    "latency/test_forest_training.py": (
        "latency:forest", "estimator num_estimators max_depth polynomial_degree polynomial_interaction_only "
        "k_fold_cv_splits training_seed cpu_overhead_model"),
    "latency/test_forest_cache.py": ("latency:forest", "cache_directory"),
    "latency/test_residual.py": ("latency", "residual"),
    "engine/test_accepting.py": (           # as with vLLM's scheduler
        "scheduler:sglang.speculative", "acceptance.distribution acceptance.rates acceptance.per_position "
        "acceptance.mean_length acceptance.length_std by_text[].label by_text[].name by_text[].acceptance.distribution "
        "by_text[].acceptance.rates by_text[].acceptance.per_position by_text[].acceptance.mean_length "
        "by_text[].acceptance.length_std"),
    "scheduling/test_measured_acceptance.py": (
        "scheduler:sglang.speculative", "acceptance.measured by_text[].acceptance.measured"),
    "latency/test_aicb.py": ("latency:aicb", "pipeline"),
    "latency/test_operators.py": ("latency:operators", "expert_load cuda_graph outside"),
    "latency/test_operator_prices.py": ("latency:operators", "expert_kernel without"),
    "latency/test_operator_engines.py": ("latency:operators", "engine_version table_version"),
    "latency/test_operator_files.py": ("latency:operators", "system framework cache_directory"),
    "latency/test_operator_exchange.py": ("latency:operators", "all2all_backend"),
    "collective/test_collective_busbw.py": ("collective:busbw", "size_ratios"),
    "collective/test_network_flow.py": ("collective:flow", "seed"),
    "collective/test_network_topology.py": ("collective:flow.fabric", "num_spine_switches"),
    "collective/test_collective_table.py": ("collective:table", "statistic dtype cuda_graph outside"),
    "collective/test_collective_external.py": (
        "collective:external", "program topology config checkout arguments send_latency_us nvls send_recv_gb_per_s "
        "time_limit_s cache"),
    "routing/test_llumnix_compositions.py": (
        "router:llumnix", "infer_types[].filters[].instance_staleness_s infer_types[].filters[].failover_domain "
        "failover_domain instance_staleness_s"),
    "routing/test_llumnix_rescheduler.py": ("rescheduler:llumnix", "tpot_migrate_out_ceil_threshold"),
    "engine/test_scaling_clock.py": ("autoscaling", "weights.warm_gb_per_s"),
    "scaling/test_concurrency_and_steps.py": ("autoscaler:kpa", "zero_grace_s"),
    "routing/test_proxy_routers.py": ("router:prefixaware", "counts_rest"),
    "test_hicache.py": (
        "kv_tier:hicache", "prefetch_policy prefetch_timeout_base_s prefetch_timeout_per_ki_token_s"),
    "scheduling/test_ranked.py": ("scheduler:edf", "default_deadline_ms"),
    "workload/test_recycling.py": ("workload.load", "snapshot recycle"),
    "workload/test_primers.py": ("workload.warmup", "requests_per_lane"),
    "workload/formats/test_native_waits.py": ("workload:trace", "sessions sessions.gap"),
    "workload/test_history.py": (
        "workload:trace", "sessions.accumulate sessions.history sessions.history_keeps_reasoning"),
    "workload/formats/test_mooncake_sessions.py": ("trace_format:mooncake_delta", "block_size"),
    "workload/formats/test_tracev2.py": (
        "trace_format:tracev2", "header session_mode think_time_s priorities upstream_compat"),
    "workload/clients/test_blis.py": ("client_format:blis", "path upstream_compat"),
    "workload/clients/test_servegen.py": (
        "client_format:servegen", "path servegen.clients servegen.top servegen.start_s servegen.duration_s "
        "servegen.rate servegen.rate_scale servegen.rate_per_s servegen.max_rate_per_s servegen.correlation "
        "servegen.missing_dataset servegen.counts"),
    "live/test_serve_table.py": (
        "serve", "speed like text dataset output_tokens output_tokens.distribution default_max_tokens stream_interval "
        "tool_calls metrics metrics_clock on_overrun limits.body_bytes limits.header_bytes limits.connections "
        "limits.idle_s limits.requests_per_s"),
    "live/test_spans.py": ("serve", "spans"),
    "live/test_tokenizer.py": ("serve", "tokenizer"),
    "live/test_templates.py": ("serve", "chat_template"),
    "live/test_kv_events.py": (
        "serve", "kv_events.endpoint kv_events.replay_endpoint kv_events.topic kv_events.buffer_steps kv_events.hwm "
        "kv_event_encoding"),
    "routing/test_llumnix_parts.py": ("router:llumnix", "data_parallel_size"),
    "workload/formats/test_bailian.py": ("trace_format:bailian", "mode gap"),
    "workload/formats/test_burstgpt.py": ("trace_format:burstgpt", "failures model_filter"),
    "workload/formats/test_observed.py": ("trace_format:observed", "prompts"),
    "workload/formats/test_timed_trace.py": ("trace_format:timed_trace", "block_size timestamp_unit_s"),
}
# Keys that promise to change no result.
SAME = {
    "arrival:constant.rescale_to_rate": "equal gaps end at N / rate already",
    "engine.fast_forward": "runs of equal iterations, at once or one by one",
    "latency:forest.num_training_jobs": "processes that train",
    "client_format:toml.clients[].load.unit": "each request of a client is a play of its own",
    "collective:external.threads": "of the program of the user",
    "collective:flow.fabric.gpu_type": "a name in the topology file, for the record",
}
# Keys of files: what is written, and where. tests/results says what is in them.
FILES = ("output.directory", "output.requests", "output.iterations", "output.chrome_trace",
         "output.chrome_trace_window_s", "output.chrome_trace_max_events", "output.token_times", "output.vidur_csv")
# Keys that nothing asks yet, and why they are there.
WAITING = {
    **{f"collective:busbw.{group}.{kind}": "asked by the backend operators and by `simulator collective`"
       for group in ("tensor", "expert") for kind in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
       if (group, kind) not in (("tensor", "all_reduce"), ("expert", "all_to_all"))},
    **{f"collective:busbw.data.{kind}": "of experts over ranks: tests/collective/test_iteration_collectives.py"
       for kind in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")},
    "collective:busbw.data_overlap": "likewise",
    "rescheduler:llumnix.max_num_batched_tokens": "of replicas that do not say; all do",
    "latency:trained_physics.expert_exchange": "of experts over data-parallel ranks: tests/latency",
}


def shown_in() -> dict[str, str]:
    """Return key -> file of its test."""
    return {f"{owner}.{name}": file for file, (owner, names) in SHOWN_IN.items() for name in names.split()}
