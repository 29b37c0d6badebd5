"""As every_key_sections.py, for the keys of schedulers, front end, autoscaling and workloads."""
from support.every_key import ABSENT, acts, refuses
from support.every_key_sections import MOVES, PLANNED, SCALES, SLOW, TIERS, WITH_TOWER
from support.every_key_workloads import DRAWN_WORKLOADS, of_files

TIGHT = {"engine__num_gpu_blocks": 22}
CHUNKED = {"engine__num_gpu_blocks": 16, "engine__long_prefill_token_threshold": 16}


def of(kind, entries):
    """Return entries under the name of a class."""
    return {f"{kind}.{name}": case for name, case in entries.items()}


def at(table, **settings):
    """Return settings of a table."""
    return {f"{table}__{key}": value for key, value in settings.items()}


def routing(**settings):
    """Return settings of [cluster.routing]."""
    return at("cluster__routing", **settings)


def of_drawn_times(key, scale=1, beside=None, **settings):
    """Return entries of a time that may be drawn; settings of its table, and settings beside it."""
    table = (beside or {}) | {f"engine__structured_outputs__{name}": value for name, value in settings.items()}
    values = (50.0 * scale, 90.0 * scale)
    name = f"engine__{key.replace('.', '__')}"
    return {
        key: acts(10.0 * scale, 100.0 * scale, **table),
        f"{key}.distribution": acts("empirical", "listed", **{f"{name}__values": [*values]}, **table),
        f"{key}.value": acts(10.0 * scale, 100.0 * scale, **table),
        f"{key}.median": acts(10.0, 20.0 * scale, **{name: {"distribution": "lognormal", "mean": 90.0 * scale}},
                              **table),
        f"{key}.mean": acts(10.0, 100.0 * scale, **{name: {"distribution": "exponential"}}, **table),
        f"{key}.values": acts([10.0 * scale], [100.0 * scale], **{name: {"distribution": "empirical"}}, **table)}


SGLANG = at("engine", max_num_seqs=ABSENT, max_num_batched_tokens=ABSENT, num_gpu_blocks=24, block_size=16) | SLOW
CHAIN = SGLANG | at("engine__speculative", method="eagle", num_steps=3, drafter_share=0.1, acceptance=[0, 1, 2])
TREE = SGLANG | at("engine__speculative", method="eagle", num_steps=2, eagle_topk=2, num_draft_tokens=4,
                   drafter_share=0.0, acceptance={"rates": [0.9]})
KEYED = SGLANG | at("engine", schedule_policy="routing-key", max_running_requests=3)
OWN_SHARE = PLANNED | at("engine", max_num_seqs=ABSENT, max_num_batched_tokens=ABSENT, gpu_memory_utilization=ABSENT)
PREFERS = SGLANG | at("engine", enable_priority_scheduling=True, max_running_requests=2,
                      priority_scheduling_preemption_threshold=0)
SCORES = at("engine", policy="priority-fcfs", priority_policy="slo-based", max_num_seqs=2)
BLIS_LORA = at("engine__lora", adapter_capacity=2, load_base_latency_us=2000.0, load_bandwidth_bytes_us=100.0,
               footprint_bytes_per_rank=1e4, adapters=[{"id": f"a{i}", "rank": 8} for i in range(4)])


def adapters_but(missing):
    """Return the adapters of BLIS, the first without a key."""
    first, *others = BLIS_LORA["engine__lora__adapters"]
    return at("engine__lora", adapters=[{key: first[key] for key in first if key != missing}, *others])


def by_text(**keys):
    """Return settings of acceptance by text, other than that of all other requests."""
    return at("engine__speculative", num_tokens=3, acceptance={"rates": [0.1]}, by_text=[
        {"acceptance": {"rates": [0.8]}} | keys])


READERS = at("engine", max_num_seqs=2, expected_ttft_s=0.05, tokens_per_s=100.0, horizon_s=0.2, token_latency_ms=5.0)

# Of schedulers that rank who waits; of TensorRT-LLM's, which has names of its own for the limits of a batch.
LIMITS = {"max_num_seqs": acts(1, 4), "max_num_batched_tokens": acts(64, 128),
          "long_prefill_token_threshold": acts(0, 16)}
FORETOLD = {"workload__output_knowledge__predictor": "exact"}
TENSORRT = at("engine", max_num_seqs=ABSENT, max_num_batched_tokens=ABSENT, max_num_tokens=190, num_gpu_blocks=200,
              block_size=16) | {
    "topology__replicas": 1, "latency__per_prefill_token_us": 100.0}
STRUCTURED = at("engine__structured_outputs", fraction=0.5)
LLAMA = {"model__name": "llama-3.1-8b", "hardware__name": "h100-sxm-80gb"}
LAUNCHES = LLAMA | {"engine__eager_us_per_layer": 1e4}
OF_ADAPTERS = {"engine__lora__adapter_mb": 50.0}
PADS = {"latency__per_decode_token_us": 100.0}
GROUPS = {"engine__kv_cache_groups": [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 48}]}
STATES = {"engine__kv_cache_groups": [{"kind": "full_attention"}, {"kind": "linear_attention"}]}
DRAFTS = at("engine__speculative", num_tokens=3, acceptance=[0, 1, 2])
DRAFTER = at("engine__speculative", num_tokens=3, method="draft_model", drafter_share=0.1)
EAGLE_HITS = at("engine__speculative", num_tokens=2, method="eagle", drafter_share=0.0)
SMALL_DRAFTER = {"model__name": "qwen3-8b", "hardware__name": "h100-sxm-80gb", "latency__backend": "roofline", **at(
    "engine__speculative", num_tokens=3, method="draft_model")}
SGLANG_DRAFTER = SGLANG | {"model__name": "qwen3-8b", "hardware__name": "h100-sxm-80gb", "latency": {
    "backend": "roofline"}, **at("engine__speculative", num_steps=3, method="draft_model")}
PICTURES = {"workload": {
    "type": "synthetic", "num_requests": 30, "arrival": {"process": "poisson", "rate_per_s": 100.0},
    "prompt_tokens": {"distribution": "constant", "tokens": 30},
    "output_tokens": {"distribution": "constant", "tokens": 3}, "images": {
        "count": {"distribution": "uniform", "min": 0, "max": 3}, "rule": "tokens_per_image", "tokens_per_image": 40,
        "distinct": 9}}}
SCHEDULERS = {
    **of("scheduler:vllm", {
        "max_num_seqs": acts(1, 4), "max_num_batched_tokens": acts(64, 128),
        "max_num_scheduled_tokens": acts(32, 128), "max_num_active_seqs": acts(1, 4),
        "max_num_queued_reqs": acts(1, 9), "max_num_queued_tokens": acts(1, 900),
        "enable_chunked_prefill": acts(
            True, False, engine__max_num_batched_tokens=300, engine__max_model_len=300, engine__max_num_seqs=16,
            engine__num_gpu_blocks=400, topology__replicas=1, **SLOW),
        "long_prefill_token_threshold": acts(0, 16),
        "long_prefill_token_threshold_adaptive": acts(False, True, engine__long_prefill_token_threshold=16),
        "policy": acts("fcfs", "priority"), "scheduler_reserve_full_isl": acts(True, False, **CHUNKED),
        "kv_cache_memory_bytes": acts(2**28, 2**33, **PLANNED),
        "language_model_only": acts(False, True, "memory", **WITH_TOWER),
        "skip_mm_profiling": acts(False, True, "memory", **WITH_TOWER),
        "limit_mm_per_prompt.image": acts(999, 0, "memory", **WITH_TOWER),
        "limit_mm_per_prompt.video": acts(999, 0, "memory", **WITH_TOWER | {
            "model__name": "qwen2-vl-7b", "engine__max_model_len": 32_768}),
        "watermark": acts(0.0, 0.5, **TIGHT), "async_scheduling": acts(False, True),
        "vllm_version": acts("0.10", "0.32", **CHUNKED), "task": acts("generate", "pooling"),
        "prefill_schedule_interval": acts(1, 5, engine__vllm_version="0.33", topology__replicas=1),
        "disable_hybrid_kv_cache_manager": acts(False, True, model__name="gpt-oss-20b"),
        "prefix_cache_retention_interval": acts(0, "dense", **GROUPS),
        "prefix_match_unit": acts(2, 16, **STATES),
        "kv_cache_groups[].kind": acts("sliding_attention", "chunked_attention",
                                       engine__kv_cache_groups=[{"window": 64}]),
        "kv_cache_groups[].block_size": acts(16, 32, engine__kv_cache_groups=[{"kind": "full_attention"}]),
        "kv_cache_groups[].window": acts(32, 128, engine__kv_cache_groups=[{"kind": "sliding_attention"}]),
        "kv_cache_groups[].checkpoint": refuses(1, "sliding_attention has no states", engine__kv_cache_groups=[
            {"kind": "sliding_attention", "window": 64}]),
        "encoder.us_per_embedding": acts(0.0, 50.0, **PICTURES),
        "encoder.tokens_per_s": acts(1e4, 1e5, **PICTURES),
        "encoder.cache_tokens": acts(1, 4096, **PICTURES | at("engine__encoder", us_per_embedding=50.0)),
        "encoder.max_num_encoder_input_tokens": acts(1, 4096, **PICTURES),
        "encoder.disable_chunked_mm_input": acts(False, True, engine__max_num_batched_tokens=50, **PICTURES),
        "lora.max_loras": acts(1, 8), "lora.step_factor": acts(1.0, 1.5), "lora.per_adapter_us": acts(0.0, 500.0),
        "lora.adapter_mb": acts(10.0, 100.0, engine__lora__h2d_gb_per_s=20.0),
        "lora.disk_gb_per_s": acts(ABSENT, 1.0, **OF_ADAPTERS), "lora.h2d_gb_per_s": acts(ABSENT, 1.0, **OF_ADAPTERS),
        "lora.rank": acts(8, 64, **LLAMA, engine__lora__h2d_gb_per_s=20.0),
        "lora.max_cpu_loras": refuses(1, "is below max_loras = 2", engine__lora__max_loras=2),
        **of_drawn_times("structured_outputs.compile_ms", fraction=0.5, mask_us=0.0),
        **of_drawn_times("structured_outputs.mask_us", fraction=1.0, compile_ms=0.0, scale=100),
        "structured_outputs.fraction": acts(0.0, 0.5),
        "structured_outputs.num_grammars": acts(0, 1, **STRUCTURED), "structured_outputs.backend": acts(
            "xgrammar", "guidance", **STRUCTURED),
        "structured_outputs.kind": acts("json_schema", "ebnf", **STRUCTURED),
        "structured_outputs.size": acts(16, 160, engine__structured_outputs__kind="ebnf", **STRUCTURED),
        "structured_outputs.new_lengths": acts(0, 1, engine__structured_outputs__kind="json_schema", **STRUCTURED),
        "structured_outputs.max_length": acts(
            64, 128, engine__structured_outputs__kind="json_schema", engine__structured_outputs__new_lengths=1,
            **STRUCTURED),
        "structured_outputs.vocabulary": acts(
            32_768, 131_072, engine__structured_outputs__kind="ebnf", **STRUCTURED),
        "structured_outputs.failing_fraction": acts(0.0, 0.5, **STRUCTURED),
        "structured_outputs.failing": acts([], ["0"], **STRUCTURED),
        "structured_outputs.cpus": acts(1, 8, **STRUCTURED),
        "structured_outputs.draft_valid_rate": acts(1.0, 0.5, **STRUCTURED, **DRAFTS),
        "cuda_graphs.mode": acts("none", "full", **PADS), "cuda_graphs.capture_sizes": acts([], [64], **PADS),
        "cuda_graphs.memory_gib": acts(0.0, 30.0, **PLANNED),
        "cuda_graphs.piecewise_us_per_layer": acts(0.0, 100.0, **LLAMA),
        "cuda_graphs.eager_us_per_layer": acts(0.0, 1000.0, **LLAMA,
                                               engine__cuda_graphs={"mode": "none"}),
        "speculative.num_tokens": acts(1, 3, engine__speculative__acceptance=[0, 1]),
        "speculative.num_lookahead_tokens": acts(0, 64, **DRAFTS, **TIGHT),
        "speculative.disable_lookahead_block_hashes": acts(
            False, True, engine__vllm_version="0.33", engine__block_size=24, **EAGLE_HITS),
        "speculative.disable_eagle_block_drop": acts(False, True, engine__vllm_version="0.32", **EAGLE_HITS),
        "speculative.parallel_drafting": acts(False, True, **at(
            "engine__speculative", num_tokens=3, method="eagle3", drafter_forward_us=500.0, acceptance=[0, 1])),
        "speculative.acceptance": acts([0], [2], **DRAFTS),
        "speculative.method": acts("eagle3", "mtp", **DRAFTER),
        "speculative.model": acts("qwen3-0.6b", "qwen3-1.7b", **SMALL_DRAFTER),
        "speculative.config": refuses("no-such-config.json", "no-such-config.json: ", **SMALL_DRAFTER),
        "speculative.draft_tensor_parallel_size": acts(
            1, 2, **SMALL_DRAFTER, **at("engine__speculative", model="qwen3-0.6b"), topology__tensor_parallel=2),
        "speculative.drafter_share": acts(0.0, 0.5, **DRAFTER),
        "speculative.drafter_forward_us": acts(0.0, 500.0, **DRAFTER),
        "speculative.drafter_per_sequence_us": acts(0.0, 500.0, **at(
            "engine__speculative", num_tokens=3, method="ngram")),
        **of("speculative.acceptance", {
            "distribution": acts([1.0, 0.0], [1.0, 1.0], engine__speculative={"num_tokens": 3}),
            "rates": acts([0.2], [0.9, 0.8], engine__speculative={"num_tokens": 3}),
            "per_position": acts([0.2], [0.9, 0.8], engine__speculative={"num_tokens": 3}),
            "mean_length": acts(1.1, 3.5, engine__speculative={"num_tokens": 3}),
            "measured": acts("qwen3-8b/eagle3-redhat/mt-bench", "llama-4-maverick/eagle3-nvidia/gsm8k",
                             engine__speculative={"num_tokens": 3}),
            "length_std": acts(0.0, 0.9, engine__speculative={"num_tokens": 3, "acceptance": {"rates": [0.6]}})}),
        "speculative.by_text[].label": refuses("slo_class", "no request has slo_class", **by_text(name="t0")),
        "speculative.by_text[].name": acts("t0", "t1", **by_text(label="tenant")),
        **of("speculative.by_text[].acceptance", {
            "distribution": acts([1.0, 0.0], [0.0, 1.0], **by_text(label="tenant", name="t0", acceptance={})),
            "rates": acts([0.2], [0.9, 0.8], **by_text(label="tenant", name="t0", acceptance={})),
            "per_position": acts([0.2], [0.9, 0.8], **by_text(label="tenant", name="t0", acceptance={})),
            "mean_length": acts(1.1, 3.5, **by_text(label="tenant", name="t0", acceptance={})),
            "measured": acts("qwen3-8b/eagle3-redhat/mt-bench", "llama-4-maverick/eagle3-nvidia/gsm8k",
                             **by_text(label="tenant", name="t0", acceptance={})),
            "length_std": acts(0.0, 0.9, **by_text(label="tenant", name="t0"))})}),
    **of("scheduler:sglang", {
        "max_running_requests": acts(1, 4, **SGLANG), "max_queued_requests": acts(1, 100, **SGLANG),
        "mem_fraction_static": acts(0.5, 0.8, "memory", **OWN_SHARE),
        "chunked_prefill_size": acts(32, 64, **SGLANG), "max_prefill_tokens": acts(32, 1000, **SGLANG),
        "prefill_max_requests": acts(1, 8, **SGLANG | {"engine__num_gpu_blocks": 60}),
        "enable_mixed_chunk": acts(False, True, **SGLANG),
        "schedule_policy": acts("fcfs", "lof", **SGLANG),
        "schedule_conservativeness": acts(0.1, 3.0, **SGLANG),
        "enable_priority_scheduling": acts(False, True, **SGLANG),
        "schedule_low_priority_values_first": acts(False, True, **PREFERS),
        "disable_priority_preemption": acts(False, True, **PREFERS | {
            "engine__priority_scheduling_preemption_threshold": ABSENT, "engine__ignore_eos": True}),
        "priority_scheduling_preemption_threshold": acts(0, 100, **PREFERS),
        "retraction_policy": acts("default", "priority", **PREFERS | at(
            "engine", max_running_requests=16, schedule_conservativeness=0.0, disable_priority_preemption=True,
            priority_scheduling_preemption_threshold=ABSENT, num_gpu_blocks=40)),
        "prefill_decode_interval": acts(0, 5, **SGLANG),
        "prefill_decode_interval_min_bs": acts(0, 4, **SGLANG | {"engine__prefill_decode_interval": 5}),
        "scheduler_recv_interval": acts(1, 40, **SGLANG),
        "cuda_graph_backend_decode": acts("full", "disabled", **SGLANG | LAUNCHES),
        "cuda_graph_backend_prefill": acts("breakable", "disabled", **SGLANG | LAUNCHES),
        "eager_us_per_layer": acts(0.0, 1e4, **SGLANG | LAUNCHES, engine__cuda_graph_backend_prefill="disabled"),
        "radix_eviction_policy": acts("lru", "mru", **SGLANG),
        "cuda_graph_max_bs_decode": acts(1, 8, **SGLANG | PADS),
        "cuda_graph_bs_decode": acts([1], [8], **SGLANG | PADS),
        "lora.max_loras_per_batch": acts(1, 8, **SGLANG), "lora.step_factor": acts(1.0, 1.5, **SGLANG),
        "lora.per_adapter_us": acts(0.0, 500.0, **SGLANG),
        "lora.adapter_mb": acts(10.0, 100.0, **SGLANG, engine__lora__h2d_gb_per_s=20.0),
        "lora.h2d_gb_per_s": acts(ABSENT, 1.0, **SGLANG | OF_ADAPTERS),
        "lora.rank": acts(8, 64, **SGLANG | LLAMA, engine__lora__h2d_gb_per_s=20.0),
        **of_drawn_times("structured_outputs.compile_ms", beside=SGLANG, fraction=0.5, mask_us=0.0),
        **of_drawn_times("structured_outputs.mask_us", beside=SGLANG, fraction=1.0, compile_ms=0.0, scale=100),
        "structured_outputs.fraction": acts(0.0, 0.5, **SGLANG),
        "structured_outputs.num_grammars": acts(0, 1, **SGLANG | STRUCTURED),
        "structured_outputs.backend": acts("xgrammar", "llguidance", **SGLANG | STRUCTURED),
        "structured_outputs.kind": acts("json_schema", "ebnf", **SGLANG | STRUCTURED),
        "structured_outputs.size": acts(16, 160, **SGLANG | STRUCTURED, engine__structured_outputs__kind="ebnf"),
        "structured_outputs.new_lengths": acts(
            0, 1, **SGLANG | STRUCTURED, engine__structured_outputs__kind="json_schema"),
        "structured_outputs.max_length": acts(
            64, 128, **SGLANG | STRUCTURED, engine__structured_outputs__kind="json_schema",
            engine__structured_outputs__new_lengths=1),
        "structured_outputs.vocabulary": acts(
            32_768, 131_072, **SGLANG | STRUCTURED, engine__structured_outputs__kind="ebnf"),
        "structured_outputs.failing_fraction": acts(0.0, 0.5, **SGLANG | STRUCTURED),
        "structured_outputs.failing": acts([], ["0"], **SGLANG | STRUCTURED),
        "structured_outputs.cpus": acts(1, 64, **SGLANG | STRUCTURED),
        "speculative.method": acts("mtp", "draft_model", **CHAIN), "speculative.num_steps": acts(2, 5, **CHAIN),
        "speculative.eagle_topk": acts(2, 4, **TREE), "speculative.num_draft_tokens": acts(2, 7, **TREE),
        "speculative.acceptance": acts([0], [2], **CHAIN), "speculative.drafter_share": acts(0.0, 0.5, **CHAIN),
        "speculative.drafter_forward_us": acts(0.0, 500.0, **CHAIN),
        "speculative.drafter_per_sequence_us": acts(0.0, 500.0, **CHAIN),
        "speculative.model": acts("qwen3-0.6b", "qwen3-1.7b", **SGLANG_DRAFTER),
        "speculative.config": refuses("no-such-config.json", "no-such-config.json: ", **SGLANG_DRAFTER),
        "disable_overlap_schedule": acts(False, True, **SGLANG), "ignore_eos": acts(False, True, **SGLANG),
        "routing_key": acts("slo_class", "tenant", **KEYED), "upstream_compat": acts(False, True, **SGLANG | at(
            "engine", schedule_policy="hrrn", max_running_requests=3))}),
    **of("scheduler:blis", {
        "max_num_seqs": acts(1, 4), "max_num_batched_tokens": acts(64, 128),
        "long_prefill_token_threshold": acts(0, 16),
        "policy": acts("fcfs", "priority-fcfs"), "preemption_policy": acts("fcfs", "priority", **TIGHT),
        "priority_policy": acts("class", "constant", engine__policy="priority-fcfs"),
        "age_weight": acts(1e-6, -1e-6, **SCORES), "base": acts(
            {}, {"sheddable": 100.0}, topology__replicas=1, **SCORES),
        "blis_version": acts("0.7", "head", **TIGHT), "upstream_compat": acts(False, True),
        "lora.adapter_capacity": acts(1, 4, **BLIS_LORA),
        "lora.adapters[].id": refuses("b", "a0 missing", **BLIS_LORA | adapters_but("id")),
        "lora.adapters[].rank": acts(8, 400, **BLIS_LORA | adapters_but("rank")),
        "lora.load_base_latency_us": acts(0.0, 5000.0, **BLIS_LORA),
        "lora.load_bandwidth_bytes_us": acts(10.0, 1000.0, **BLIS_LORA),
        "lora.footprint_bytes_per_rank": acts(1e4, 1e6, **BLIS_LORA),
        "lora.step_overhead_tiers[].rank": acts(8, 64, **BLIS_LORA | at("engine__lora", step_overhead_tiers=[
            {"k6": 0.1}, {"rank": 32, "k6": 5.0}])),
        "lora.step_overhead_tiers[].k6": acts(0.0, 1.0, **BLIS_LORA | at("engine__lora", step_overhead_tiers=[
            {"rank": 8}])),
        "lora.step_overhead_tiers[].k7": acts(1.0, 2.0, **BLIS_LORA | at("engine__lora", step_overhead_tiers=[
            {"rank": 8, "k6": 0.5}]))}),
    **of("scheduler:edf", LIMITS),
    **of("scheduler:fastserve", LIMITS | {
        "quantum_ms": acts(1.0, 1000.0, engine__max_num_seqs=2),
        "quantum_ratio": acts(1.0, 8.0, engine__max_num_seqs=2),
        "starvation_s": acts(0.01, 100.0, engine__max_num_seqs=2),
        "prefill_us_per_token": acts(ABSENT, 1000.0, engine__max_num_seqs=2)}),
    **of("scheduler:andes", LIMITS | {
        "expected_ttft_s": acts(0.0, 0.2, **READERS), "tokens_per_s": acts(20.0, 500.0, **READERS),
        "token_latency_ms": acts(1.0, 20.0, **READERS), "horizon_s": acts(0.02, 1.0, **READERS),
        "running_bonus": acts(0.0, 10.0, **READERS), "preemptions_per_request": acts(0.0, 2.0, **READERS),
        "kv_watermark": acts(0.0, 1.0, **SLOW, **at(
            "engine", max_num_seqs=64, num_gpu_blocks=4000, max_num_batched_tokens=64))}),
    **of("scheduler:sjf_aging", {key: acts(*case.values, **FORETOLD) for key, case in LIMITS.items()} | {
        "aging_tokens_per_s": acts(0.0, 1e5, **FORETOLD)}),
    **of("scheduler:sarathi_slo", LIMITS | {
        "tbt_slo_ms": acts(1.0, 100.0), "chunk_tokens": acts(16, 128),
        "min_chunk_tokens": acts(1, 64, engine__tbt_slo_ms=1.0),
        "chunk_step_tokens": acts(1, 64, engine__chunk_tokens=16)}),
    **of("scheduler:vtc", LIMITS | {"input_token_weight": acts(0, 1), "output_token_weight": acts(0, 2)}),
    **of("scheduler:tensorrt_llm", {
        "max_batch_size": acts(1, 4, **TENSORRT), "max_num_tokens": acts(190, 512, **TENSORRT),
        "capacity_scheduler_policy": acts("MAX_UTILIZATION", "STATIC_BATCH", **TENSORRT),
        "enable_chunked_context": acts(False, True, **TENSORRT),
        "context_chunking_policy": acts("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS",
                                        engine__enable_chunked_context=True, **TENSORRT),
        "batching_type": acts("INFLIGHT", "STATIC", **TENSORRT),
        "batch_wait_timeout_iters": acts(1, 50, engine__batch_wait_max_tokens_ratio=1.0, **TENSORRT),
        "batch_wait_max_tokens_ratio": acts(0.01, 1.0, engine__batch_wait_timeout_iters=50, **TENSORRT),
        "cuda_graph_max_batch_size": acts(0, 64, **TENSORRT | LAUNCHES),
        "eager_us_per_layer": acts(0.0, 1e4, **TENSORRT | LAUNCHES),
        "free_gpu_memory_fraction": acts(0.5, 0.9, "memory", **OWN_SHARE)}),
}

GROWS = {key: value for key, value in SCALES.items()
         if key not in ("autoscaling__policy", "autoscaling__target_waiting")}
ORDERED = {key: value for key, value in GROWS.items() if key != "autoscaling__interval_s"}
AT_ONCE = {"autoscaling__scale_down_stabilization_window_s": 0.0}
CONCURRENT = GROWS | {"autoscaling__interval_s": 0.02, "topology__replicas": 1, "autoscaling__target_concurrency": 6.0,
                      "autoscaling__stable_window_s": 0.2}
MIRROR = at("engine", scheduler="blis", upstream_compat=True, num_gpu_blocks=16) | at(
    "kv_tiers", protocol="blis_mirror", cpu_blocks=60) | at("latency", base_us=5000.0)
OFFLOAD = at("engine", scheduler="blis", upstream_compat=True, num_gpu_blocks=16) | at(
    "kv_tiers", protocol="blis_offload", cpu_blocks=60, offload_threshold=0.1) | at("latency", base_us=5000.0)
CHAIN = at("engine", scheduler="blis", upstream_compat=True, num_gpu_blocks=24) | at(
    "kv_tiers", protocol="blis_chain", cpu_gib=0.0005, kv_bytes_per_token=1000.0) | at("latency", base_us=5000.0)
LINKS = {"d2h_gb_per_s": (0.01, 1.0), "h2d_gb_per_s": (0.01, 1.0), "first_byte_us": (0.0, 2000.0),
         "kv_bytes_per_token": (1000.0, 2000.0)}


def levels(**tiers):
    """Return cases of [[kv_tiers.secondary]]."""
    disk, store = (tiers | {"kv_tiers__secondary": [{"name": "disk", "scope": scope}]}
                   for scope in ("replica", "cluster"))
    return {
        "secondary[].name": refuses("nvme", 'two levels are named "nvme"', **tiers, kv_tiers__secondary=[
            {"name": "disk"}, {"name": "nvme"}]),
        "secondary[].scope": acts("replica", "cluster", **disk),
        "secondary[].capacity_gib": acts(0.0005, 0.01, **disk),
        "secondary[].base_us": acts(0.0, 20_000.0, **store),
        "secondary[].read_gb_per_s": acts(0.005, 1.0, **store),
        "secondary[].write_gb_per_s": acts(0.0005, 1.0, **store)}


def served_levels():
    """Return cases of [[kv_tiers.secondary]] of BLIS's chain."""
    level = {"readers": 1, "writers": 1, "read_gb_per_s": 0.01, "write_gb_per_s": 0.01, "base_us": 100}
    keys = {"readers": (1, 4), "writers": (1, 4), "read_gb_per_s": (0.001, 1.0), "write_gb_per_s": (0.0001, 1.0),
            "base_us": (0, 50_000), "full_depth": (0, 4), "first_frac": (0.01, 1.0)}
    slow = {"read_gb_per_s": 0.001, "write_gb_per_s": 0.001}
    more = {"readers": slow, "writers": slow, "full_depth": {"first_frac": 0.1}, "first_frac": {"full_depth": 4}}
    return {f"secondary[].{key}": acts(*values, **CHAIN, kv_tiers__secondary=[
        {name: value for name, value in (level | more.get(key, {})).items() if name != key}])
        for key, values in keys.items()}


def system(protocol, keys, has_levels=False, **settings):
    """Return cases of a protocol's keys, each (first, second) or a Case, and of those that all of them have."""
    base = {key: value for key, value in TIERS.items() if key != "kv_tiers__cpu_gib"} | at(
        "kv_tiers", protocol=protocol, **settings)
    return of(f"kv_tier:{protocol}", {
        key: case if hasattr(case, "refused") else acts(*case, **base) for key, case in (LINKS | keys).items()}
        | (levels(**base) if has_levels else {}))


def refused(protocol, value, message):
    """Return the case of a value that a protocol refuses."""
    return refuses(value, message, **TIERS | {"kv_tiers__cpu_gib": ABSENT}, kv_tiers__protocol=protocol)


SYSTEMS = (
    system("vllm_simple", {"cpu_gib": (0.0005, 0.01), "lazy_offload": refused(
        "vllm_simple", True, "is not built")}, cpu_gib=0.0005)
    | system("lmcache", {
        "cpu_gib": (0.0005, 0.01), "chunk_tokens": (16, 32), "save_decode_cache": (False, True),
        "async_loading": (False, True)}, has_levels=True, cpu_gib=0.0005, chunk_tokens=16)
    | system("hicache", {
        "ratio": (1.0, 4.0), "page_tokens": (16, 32), "write_policy": ("write_through", "write_through_selective"),
        "prefetch_threshold": acts(0, 300, **TIERS | at(
            "kv_tiers", cpu_gib=ABSENT, protocol="hicache", page_tokens=16, ratio=0.5,
            secondary=[{"name": "store", "scope": "cluster"}]))}, has_levels=True, page_tokens=16,
        prefetch_threshold=0, ratio=0.5)
    | system("kvbm", {
        "g2_gib": (0.0005, 0.01), "g3_gib": (0.0005, 0.01), "g3_is_shared": (True, False),
        "g2_g3_gb_per_s": (0.005, 1.0)}, g2_gib=0.0005, g3_gib=0.01)
    | system("mooncake_store", {
        "buffer_gib": (0.0005, 0.01), "pool_gib": (0.0005, 0.01), "ssd_gib": (0.0005, 0.01),
        "blocks_per_object": (1, 2), "pool_gb_per_s": (0.005, 1.0), "pool_base_us": (0.0, 20_000.0),
        "ssd_gb_per_s": (0.0005, 1.0), "lease_s": (0.0, 10.0), "eviction_high_watermark": (0.5, 1.0),
        "eviction_ratio": (0.05, 0.5)}, buffer_gib=0.0003, pool_gib=0.001, ssd_gib=0.01))
KV_TIERS = of("kv_tier:blis_mirror", {
    "cpu_blocks": acts(4, 60, **MIRROR), "tokens_per_us": acts(0.01, 100.0, **MIRROR),
    "base_us": acts(0.0, 500.0, **MIRROR), "when_full": acts(False, True, **MIRROR),
}) | of("kv_tier:blis_offload", {
    "cpu_blocks": acts(2, 60, **OFFLOAD), "tokens_per_us": acts(0.01, 100.0, **OFFLOAD),
    "base_us": acts(0.0, 500.0, **OFFLOAD), "offload_threshold": acts(0.1, 0.9, **OFFLOAD),
}) | of("kv_tier:blis_chain", {
    "cpu_gib": acts(0.0002, 0.01, **CHAIN), "kv_bytes_per_token": acts(1000.0, 2000.0, **CHAIN),
    "offload_prompt_only": acts(True, False, **CHAIN), **served_levels()}) | of("kv_tier:vllm_offload", {
    "cpu_gib": acts(0.0005, 0.01, **TIERS), "blocks_per_chunk": acts(1, 2, **TIERS),
    "eviction_policy": acts("lru", "arc", **TIERS), "store_threshold": acts(0, 2, **TIERS),
    "offload_prompt_only": acts(True, False, **TIERS), "d2h_gb_per_s": acts(0.01, 1.0, **TIERS),
    "sync_load_budget_bytes": acts(0, 10**9, **TIERS),
    "h2d_gb_per_s": acts(0.01, 1.0, **TIERS), "first_byte_us": acts(0.0, 2000.0, **TIERS),
    "contention": acts("fifo", "fair", **TIERS), "kv_bytes_per_token": acts(1000.0, 2000.0, **TIERS),
    **levels(**TIERS)}) | SYSTEMS
OLD = {"cluster__routing__policy": "least_loaded", "cluster__routing__snapshot_refresh_interval_s": 0.05}
FRONT = {
    **of("admission:saturation_shed", {
        "queue_depth_threshold": acts(0.5, 50.0, **SLOW), "kv_usage_threshold": acts(0.1, 1.0, **SLOW),
        "staleness_s": acts(0.0, 0.001, **SLOW | OLD)}),
    **of("admission:tenant_budgets", {
        "budgets[].tenant": acts("t0", "t1", **SLOW, cluster__admission__budgets=[{"share": 0.01}]),
        "budgets[].share": acts(0.01, 1.0, **SLOW, cluster__admission__budgets=[{"tenant": "t0"}]),
        "sheddable_only": acts(True, False, **SLOW, cluster__admission__budgets=[{"tenant": "t0", "share": 0.01}]),
        "inner.policy": acts("always", "reject_all", cluster__admission__budgets=[{"tenant": "t0", "share": 0.5}])}),
    **of("admission:tier_shed", {"max_load": acts(0, 100, **SLOW), "min_priority": acts(3, 5, **SLOW)}),
    **of("admission:token_bucket", {
        "capacity_tokens": acts(200.0, 10000.0), "refill_tokens_per_s": acts(
            1.0, 10000.0, cluster__admission__capacity_tokens=200.0)}),
    **of("admission:probabilistic", {
        "queue_depth_threshold": acts(1.0, 100.0, **SLOW), "kv_usage_threshold": acts(0.1, 1.0, **SLOW),
        "staleness_s": acts(0.0, 0.001, **SLOW | OLD),
        "power": acts(1.0, 50.0, **SLOW), "k": acts(0.0, 300.0, **SLOW)}),
    **of("admission:latency_slo", {
        "ttft_slo_ms": acts(0.1, 5000.0, **SLOW), "tpot_slo_ms": acts(0.1, 5000.0, **SLOW),
        "idle_kv_usage": acts(0.0, 1.0, **SLOW | at("cluster__admission", ttft_slo_ms=0.1)),
        "base_us": acts(0.0, 1e6, **SLOW), "per_sequence_us": acts(0.0, 1e6, **SLOW),
        "per_prefill_token_us": acts(0.0, 1e6, **SLOW)}),
    **of("admission:token_quota", {
        "tokens": acts(100, 10**6), "window_s": acts(0.02, 100.0, cluster__admission__tokens=100),
        "cost": acts("input", "output", cluster__admission__tokens=100),
        "shared_by": acts("all", "tenant", cluster__admission__tokens=300)}),
    **of("saturation:concurrency", {
        "max_concurrency": acts(1, 5, **SLOW),
        "mode": acts("requests", "tokens", **SLOW | at("cluster__gateway_queue__saturation", max_concurrency=1)),
        "max_tokens": acts(100, 10**6, **SLOW | at("cluster__gateway_queue__saturation", mode="tokens"))}),
    **of("saturation:token_bucket", {
        "capacity": acts(1, 5, **SLOW), "refill_per_s": acts(0.0, 20.0, **SLOW | at(
            "cluster__gateway_queue__saturation", capacity=2))}),
    **of("saturation:utilisation", {
        "queue_depth_threshold": acts(0.5, 50.0, **SLOW), "kv_usage_threshold": acts(0.1, 1.0, **SLOW),
        "staleness_s": acts(0.0, 0.001, **SLOW | OLD)}),
    **of("autoscaler:blis", {
        "kv_cache_threshold": acts(0.01, 0.8, **GROWS), "scale_up_threshold": acts(0.05, 0.99, **GROWS),
        "scale_down_boundary": acts(0.01, 0.7, **GROWS), "avg_input_tokens": acts(1, 100_000, **GROWS)}),
    **of("autoscaler:hpa", {
        "targets[].metric": acts("waiting", "requests", **GROWS, autoscaling__targets=[{"average_value": 4.0}]),
        "targets[].value": acts(0.1, 0.7, **GROWS, autoscaling__targets=[{"metric": "kv_cache"}]),
        "targets[].average_value": acts(1.0, 5.0, **GROWS, autoscaling__targets=[{"metric": "waiting"}]),
        "targets[].quantile": acts(0.01, 0.9, **GROWS, autoscaling__targets=[{"metric": "ttft", "value": 0.03}]),
        "tolerance": acts(0.0, 0.9, **GROWS)}),
    **of("autoscaler:apa", {
        "metric": acts("kv_cache", "in_flight", **GROWS), "target": acts(0.1, 0.9, **GROWS),
        "up_tolerance": acts(0.0, 0.9, **GROWS, autoscaling__target=0.3),
        "down_tolerance": acts(0.0, 0.9, **GROWS, **AT_ONCE, autoscaling__target=0.8),
        "max_scale_up_rate": acts(1.1, 2.0, **GROWS, autoscaling__target=0.1),
        "max_scale_down_rate": acts(1.1, 3.0, **GROWS, **AT_ONCE, autoscaling__target=10.0)}),
    **of("autoscaler:kpa", {
        "target_concurrency": acts(4.0, 9.0, **CONCURRENT), "target_utilization": acts(0.1, 0.7, **CONCURRENT),
        "stable_window_s": acts(0.05, 1.0, **CONCURRENT),
        "panic_window_frac": acts(0.05, 1.0, **CONCURRENT),
        "panic_threshold": acts(1.1, 9.0, **CONCURRENT), "panic_by": acts("replicas", "load", **CONCURRENT),
        "max_scale_up_rate": acts(1.1, 9.0, **CONCURRENT | {"autoscaling__target_concurrency": 1.0}),
        "max_scale_down_rate": acts(1.1, 9.0, **CONCURRENT | {
            "topology__replicas": 3, "autoscaling__target_concurrency": 1e6})}),
    **of("autoscaler:queue", {"target_waiting": acts(1.0, 3.0, **GROWS), "tolerance": acts(0.0, 0.9, **GROWS)}),
    **of("autoscaler:schedule", {
        "changes[].at_s": acts(0.05, 0.2, **ORDERED, autoscaling__changes=[{"replicas": 6}]),
        "changes[].pool": refuses("none", 'there is no pool "none"', **ORDERED,
                                  autoscaling__changes=[{"at_s": 0.05, "replicas": 3}]),
        "changes[].replicas": acts(1, 3, **ORDERED, autoscaling__changes=[{"at_s": 0.05}]),
        "changes[].remove": acts(0, 1, **ORDERED, autoscaling__changes=[{"at_s": 0.1}])}),
    **of("autoscaler:slo_attainment", {
        **{name: acts(1.0, 10_000.0, **GROWS) for name in ("ttft_ms", "tpot_ms", "e2el_ms")},
        "target": acts(0.01, 0.98, autoscaling__ttft_ms=50.0, **GROWS), "comfortable": acts(
            0.0, 1.0, **GROWS | {
                "autoscaling__target": 0.0, "autoscaling__ttft_ms": 12.0, "latency__base_us": 3000.0})}),
    **of("autoscaler:utilisation", {
        "metric": acts("kv_cache", "in_flight", **GROWS), "target": acts(0.1, 0.9, **GROWS),
        "tolerance": acts(0.0, 0.9, **GROWS)}),
    **of("rescheduler:rebalance", {"least_difference": acts(0.01, 0.9, **MOVES), "num_requests": acts(1, 3, **MOVES | {
        "cluster__rescheduling__max_migrations_in": 4, "cluster__rescheduling__max_migrations_out": 4})}),
}
DRAWN = {"workload": {"type": "synthetic", "num_requests": 30, "arrival": {"process": "poisson", "rate_per_s": 500.0},
                      "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 100},
                      "output_tokens": {"distribution": "uniform", "max": 20}}}


def arrival(**keys):
    """Return settings of an arrival process."""
    return DRAWN | {"workload__arrival": keys}


def length(**keys):
    """Return settings of a distribution of lengths."""
    return DRAWN | {"workload__output_tokens": keys}


def lengths(name, least, most, **keys):
    """Return entries of a distribution whose bounds cut what it draws."""
    given = {key: values[0] for key, values in keys.items()}
    cut = {} if name in ("uniform", "zipf") else {"max": acts(2, 200, **length(**given))}
    return of(f"length_distribution:{name}", {
        "min": acts(least, most, **length(**given)), **cut,
        **{key: acts(*values, **length(**given)) for key, values in keys.items()}})


LOOP = DRAWN | at("workload__load", mode="concurrency", concurrency=4)
ENDLESS = LOOP | {"workload__num_requests": ABSENT, "workload__duration_s": 0.3}
LANES = DRAWN | at("workload__load", mode="lanes", lanes=4)
USERS = DRAWN | at("workload__load", mode="user_rate", users=4, rate_per_s=100.0)
STAGES = DRAWN | {"workload__load__mode": "stages"}
THINKING = {f"time_distribution:{name}.{key}": acts(*values, **LOOP | {"workload__load__think_time_s": given})
            for name, given, keys in (
                ("constant", {"value": 0.1}, {"value": (0.1, 0.2)}),
                ("exponential", {"mean": 0.1}, {"mean": (0.1, 0.2)}),
                ("lognormal", {"mean": 0.1, "cv": 1.0}, {"mean": (0.1, 0.2), "cv": (0.5, 2.0)}),
                ("uniform", {"min": 0.0, "max": 0.2}, {"min": (0.0, 0.1), "max": (0.2, 0.4)}))
            for key, values in keys.items()}


def stage(*values, key, **keys):
    """Return the case of a key of the first of two stages."""
    return acts(*values, **STAGES | {"workload__load__stages": [{key: values[0]} | keys, {"concurrency": 2,
                                                                                          "num_requests": 9}]})


def warming(*values, **keys):
    """Return the case of a key of the stage that warms up."""
    return acts(*values, **DRAWN | at("workload__warmup", stage=keys))


TALKS = {"workload": {
    "type": "sessions", "num_sessions": 12, "arrival": {"process": "constant", "rate_per_s": 20.0},
    "sessions": {"rounds": {"distribution": "uniform", "max": 4},
                 "new_tokens": {"distribution": "constant", "tokens": 40},
                 "output_tokens": {"distribution": "constant", "tokens": 20}}}}
BY_TURNS = TALKS | at("workload__load", mode="concurrency", concurrency=2, unit="session", sessions_per_slot=3)
PREFIXED = {"workload__sessions__prefix_groups": 2, "workload__sessions__prefix_tokens": 64}
TALK = {
    "rate.kind": refuses("diurnal", "workload.rate.mean_per_s: missing", **TALKS),
    "num_sessions": acts(5, 12, **TALKS), "duration_s": acts(0.1, 10.0, **TALKS),
    "arrival.process": acts("constant", "poisson", **TALKS),
    **{f"sessions.{name}.distribution": acts("uniform", "zipf", **TALKS | {f"workload__sessions__{name}": {"max": 30}})
       for name in ("rounds", "new_tokens", "first_tokens", "output_tokens", "max_tokens", "reasoning_tokens")},
    "sessions.history": acts("actual", "declared", **TALKS | {
        "workload__sessions__max_tokens": {"distribution": "constant", "tokens": 40}}),
    "sessions.history_keeps_reasoning": acts(False, True, **TALKS | {
        "workload__sessions__reasoning_tokens": {"distribution": "constant", "tokens": 9}}),
    "sessions.think_time_s": acts(0.0, 0.1, **TALKS),
    "sessions.think_time_s.distribution": refuses("no such", "no time distribution", **TALKS),
    "sessions.think_time_from": acts("end", "arrival", **TALKS | {"workload__sessions__think_time_s": 0.1}),
    "sessions.prefix_groups": acts(1, 4, **TALKS | PREFIXED),
    "sessions.prefix_tokens": acts(32, 64, **TALKS | PREFIXED),
    "sessions.accumulate": acts(True, False, **TALKS),
    "sessions.on_overflow": acts("end", "slide", **TALKS | {"engine__max_model_len": 128}),
    "sessions.on_reject": acts("end", "continue", **TALKS | {"cluster__admission": {
        "policy": "token_bucket", "capacity_tokens": 200.0, "refill_tokens_per_s": 400.0}}),
}
LOADS = {
    "workload.measure.warmup_requests": acts(0, 5), "workload.measure.warmup_s": acts(0.0, 0.1),
    "workload.measure.cooldown_requests": acts(0, 5), "workload.measure.cooldown_s": acts(0.0, 0.1),
    "workload.warmup.copies_of_first": acts(0, 2),
    **of("workload:sessions", TALK),
    "workload.load.mode": refuses("lanes", "does not read concurrency", **LOOP),
    "workload.load.concurrency": acts(2, 4, **LOOP),
    "workload.load.unit": acts("request", "session", **TALKS | at(
        "workload__load", mode="concurrency", concurrency=2) | {"workload__sessions__think_time_s": 0.1}),
    "workload.load.think_time_s": acts(0.0, 0.1, **LOOP),
    "workload.load.think_time_s.distribution": refuses("no such", "no time distribution", **LOOP),
    "workload.load.think_time_from": acts("end", "arrival", **LOOP | {"workload__load__think_time_s": 0.3}),
    "workload.load.sessions_per_slot": acts(1, 3, **BY_TURNS),
    "workload.load.requests_per_slot": acts(2, 4, **BY_TURNS),
    "workload.load.ends_with": acts("last_session", "first_slot", **BY_TURNS),
    "workload.load.private_prefix_tokens": acts(0, 16, **DRAWN),
    "workload.warmup.primers": acts("none", "first_turn", **TALKS),
    "workload.load.client_delay_s": acts(0.0, 0.001, **LOOP),
    "workload.load.ramp_up_s": acts(0.0, 1.0, **LOOP),
    "workload.load.max_in_flight": acts(0, 2, **DRAWN),
    "workload.load.grace_s": acts(0.01, 1.0, **ENDLESS),
    "workload.load.users": acts(2, 4, **USERS), "workload.load.rate_per_s": acts(50.0, 100.0, **USERS),
    "workload.load.lanes": acts(2, 4, **LANES), "workload.load.assign": acts("static", "dynamic", **LANES),
    "workload.load.tree_idle_cap_s": refuses(1.0, "no play of this workload has several", **DRAWN),
    "workload.load.stages[].concurrency": stage(1, 3, key="concurrency", num_requests=5),
    "workload.load.stages[].num_requests": stage(5, 8, key="num_requests", concurrency=2),
    "workload.load.stages[].rate_per_s": stage(100.0, 200.0, key="rate_per_s", num_requests=5),
    "workload.load.stages[].process": stage("poisson", "constant", key="process", rate_per_s=50.0, num_requests=5),
    "workload.load.stages[].cv": stage(0.5, 2.0, key="cv", process="gamma", rate_per_s=50.0, num_requests=5),
    "workload.load.stages[].duration_s": stage(0.1, 0.2, key="duration_s", rate_per_s=100.0),
    "workload.load.stages[].interval_s": stage(0.0, 0.1, key="interval_s", rate_per_s=50.0, num_requests=5),
    "workload.load.stages[].ramp_up_s": stage(0.0, 0.2, key="ramp_up_s", rate_per_s=50.0, num_requests=5),
    "workload.load.stages[].max_in_flight": stage(0, 1, key="max_in_flight", rate_per_s=500.0, num_requests=5),
    "workload.load.stages[].drain": stage(False, True, key="drain", rate_per_s=500.0, num_requests=5),
    **{f"workload.warmup.stage.{key}": case for key, case in {
        "concurrency": warming(1, 3, num_requests=5), "rate_per_s": warming(50.0, 100.0, num_requests=5),
        "num_requests": warming(3, 5, concurrency=2), "duration_s": warming(0.02, 0.2, rate_per_s=100.0),
        "process": warming("poisson", "constant", rate_per_s=100.0, num_requests=5),
        "cv": warming(0.5, 2.0, rate_per_s=100.0, num_requests=5, process="gamma"),
        "ramp_up_s": warming(0.0, 0.2, rate_per_s=100.0, num_requests=5),
        "max_in_flight": warming(0, 1, rate_per_s=500.0, num_requests=5),
        "interval_s": warming(0.0, 0.1, rate_per_s=100.0, num_requests=5),
        "drain": refuses(True, "stage.drain: the others come when all of it have ended", **DRAWN | at(
            "workload__warmup", stage={"rate_per_s": 100.0, "num_requests": 5}))}.items()},
}
FORETOLD = DRAWN | at("cluster__routing", policy="least_loaded", metric="expected_tokens")
IMAGES = DRAWN | {"workload__images": {"count": {"distribution": "uniform", "min": 0, "max": 2},
                                       "sizes": [[112, 112, 1.0]], "min_pixels": 784}}


def foretold(*values, **keys):
    """Return the case of a key of [workload.output_knowledge]."""
    return acts(*values, **FORETOLD | at("workload__output_knowledge", **keys))


def adapters(*values, **keys):
    """Return the case of a key of [workload.adapters]."""
    return acts(*values, **DRAWN | at("workload__adapters", **{"names": ["a", "b"]} | keys))


CLIPS = DRAWN | {"model__name": "qwen3.5-27b", "engine__max_model_len": 512, "workload__videos": {
    "count": {"distribution": "constant", "tokens": 1}, "clips": [[4.0, 64, 64, 1.0]]}}
TRAITS = {
    "workload.cancel_at_deadline": acts(True, False, latency__base_us=20_000.0),
    "workload.output_knowledge.predictor": acts("exact", "mean", **FORETOLD),
    "workload.output_knowledge.error_sigma": foretold(0.1, 2.0, predictor="lognormal_error"),
    "workload.output_knowledge.bias": foretold(0.01, 100.0, predictor="lognormal_error"),
    "workload.output_knowledge.buckets": foretold([4, 100], [10, 100], predictor="bucket"),
    "workload.output_knowledge.wrong_bucket_share": foretold(0.0, 0.9, predictor="bucket", buckets=[4, 100]),
    "workload.adapters.names": adapters(["a", "b"], ["a", "b", "c"]),
    "workload.adapters.assign": adapters("random", "round_robin"),
    "workload.adapters.weights": adapters([1.0, 9.0], [9.0, 1.0], assign="weighted"),
    "workload.adapters.exponent": adapters(0.0, 5.0, assign="zipf"),
    "workload.adapters.none_share": adapters(0.0, 0.5),
    "workload.images.count.distribution": refuses("no such", "no length distribution", **IMAGES),
    "workload.images.rule": refuses("tokens_per_image", "does not read sizes", **IMAGES),
    "workload.images.sizes": acts([[112, 112, 1.0]], [[28, 28, 1.0]], **IMAGES),
    "workload.images.min_pixels": acts(784, 50_000, **IMAGES),
    "workload.images.max_pixels": acts(3136, 12_845_056, **IMAGES),
    "workload.images.distinct": acts(1, 1000, **IMAGES),
    "workload.images.tokens_per_image": acts(10, 20, **DRAWN | {"workload__images": {
        "count": {"distribution": "constant", "tokens": 1}, "rule": "tokens_per_image"}}),
    "workload.videos.count.distribution": refuses("no such", "no length distribution", **CLIPS),
    "workload.videos.clips": acts([[4.0, 64, 64, 1.0]], [[8.0, 64, 64, 1.0]], **CLIPS),
    "workload.videos.frames_per_s": acts(1.0, 2.0, **CLIPS), "workload.videos.num_frames": acts(4, 8, **CLIPS),
    "workload.videos.min_pixels": acts(4096, 65_536, **CLIPS),
    "workload.videos.max_pixels": acts(8192, 65_536, **CLIPS),
    "workload.videos.distinct": acts(1, 1000, **CLIPS | {"engine__encoder": {"us_per_embedding": 50.0}}),
}
WORKLOADS = {
    "workload.measure.warmup_requests": acts(0, 5), "workload.measure.warmup_s": acts(0.0, 0.1),
    "workload.measure.cooldown_requests": acts(0, 5), "workload.measure.cooldown_s": acts(0.0, 0.1),
    "workload.warmup.copies_of_first": acts(0, 2),
    **LOADS, **THINKING, **TRAITS,
    **of("workload:trace", {
        "path": refuses("no-such.csv", "no-such.csv"), "format": refuses("azure", "TIMESTAMP"),
        "sessions.on_reject": refuses("continue", "no request of this workload waits for another"),
        "max_requests": acts(0, 5), "duration_s": acts(0.01, 10.0), "time_scale": acts(1.0, 2.0),
        "start_s": acts(0.0, 0.05), "end_s": acts(0.05, 10.0), "max_bytes": refuses(99, "more than 99 bytes of text"),
        "prefill_scale": acts(1.0, 2.0), "max_text_tokens": acts(ABSENT, 30),
        "decode_scale": acts(1.0, 2.0)}),
    **of("arrival:burst", {"size": acts(2, 5, **arrival(interval_s=0.01)), "interval_s": acts(
        0.01, 0.02, **arrival(size=2))}),
    **of("arrival:constant", {"rate_per_s": acts(100.0, 200.0, **DRAWN)}),
    **of("arrival:poisson", {"rate_per_s": acts(100.0, 200.0, **DRAWN)}),
    **{f"arrival:{name}.{key}": acts(*values, **arrival(rate_per_s=100.0)) for name in ("gamma", "weibull")
       for key, values in {"rate_per_s": (100.0, 200.0), "cv": (1.0, 3.0)}.items()},
    **lengths("constant", 0, 20, tokens=(9, 12)), **lengths("constant", 0, 20, value=(9, 12)),
    **lengths("exponential", 1, 30, mean=(9.0, 12.0)),
    **lengths("lognormal", 1, 30, mean=(9.0, 12.0), std=(3.0, 9.0)),
    **lengths("lognormal", 1, 30, mean=(9.0, 12.0), cv=(0.3, 0.9)),
    **lengths("normal", 1, 30, mean=(9.0, 12.0), std=(3.0, 9.0)),
    **lengths("pareto_lognormal", 1, 30, alpha=(1.5, 3.0), xm=(5.0, 9.0), mu=(2.0, 2.5), sigma=(0.5, 1.0),
              mix_weight=(0.5, 0.9)),
    **lengths("uniform", 1, 15, max=(20, 30)),
    **lengths("zipf", 1, 15, max=(20, 30), exponent=(1.0, 3.0)),
    **lengths("empirical", 0, 20, values=([5, 9], [5, 12])),
    **of("length_distribution:empirical", {
        "weights": acts([1.0, 9.0], [9.0, 1.0], **length(values=[5, 9])),
        "path": refuses("no-such.csv", "no-such.csv", **length(column="a")),
        "column": refuses("a", "column: belongs to path", **length(values=[5]))}),
}
POLICIES = SCHEDULERS | KV_TIERS | FRONT | WORKLOADS | DRAWN_WORKLOADS


def recorded(folder):
    """Return entries whose traces lie in a folder."""
    (folder / "mooncake.jsonl").write_text(
        '{"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]}\n')
    return of_files(folder) | {"trace_format:mooncake.block_size": refuses(
        512, "found 2; is block_size right?", workload__path=str(folder / "mooncake.jsonl"))}
