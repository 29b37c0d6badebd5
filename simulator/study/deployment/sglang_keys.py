"""SGLang's resolved values as keys of an experiment."""
from simulator.domain.measured_acceptance import published
from simulator.server_line.facts.answers import Answer
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.study.deployment.keyed import Keyed, comment_of, drop, say, take, value_of

# Our key -> SGLang's key, which is also its flag.
PLACES_OF_SGLANG = {
    "topology.tensor_parallel": "tp_size", "topology.pipeline_parallel": "pp_size",
    "engine.block_size": "page_size", "engine.max_model_len": "context_length",
    "engine.num_gpu_blocks": "max_total_tokens", "engine.mem_fraction_static": "mem_fraction_static",
    **{f"engine.{key}": key for key in (
        "max_running_requests", "max_queued_requests", "chunked_prefill_size", "max_prefill_tokens",
        "prefill_max_requests", "enable_mixed_chunk", "schedule_policy", "schedule_conservativeness",
        "enable_priority_scheduling", "prefill_decode_interval", "scheduler_recv_interval",
        "disable_overlap_schedule")}}
# Flags of SGLang that are keys as given: the server resolves none.
AS_GIVEN = ("disable_priority_preemption", "prefill_decode_interval_min_bs", "priority_scheduling_preemption_threshold",
            "schedule_low_priority_values_first")
EVICTION_POLICIES = {"lfu", "lru", "priority", "slru"}      # ours of SGLang's --radix-eviction-policy
GRAPH_FLAGS = ("disable_cuda_graph", "disable_decode_cuda_graph", "disable_prefill_cuda_graph",
               "cuda_graph_backend_decode", "cuda_graph_backend_prefill")
OF_LORA = {"enable_lora": "engine.lora", "max_loras_per_batch": "engine.lora.max_loras_per_batch",
           "max_lora_rank": "engine.lora.rank"}
FLAGS_OF_SGLANG = {
    "disable_radix_cache": "engine.enable_prefix_caching", "dp_size": "topology.data_parallel",
    "enable_dp_attention": "topology.data_parallel", "attn_dp_size": "topology.data_parallel",
    "ep_size": "topology.expert_parallel", "moe_a2a_backend": "topology.expert_parallel",
    "disaggregation_mode": "pools.role", "disaggregation_transfer_backend": "kv_transfer.protocol",
    "kv_cache_dtype": "model.kv_cache_dtype"}

ALGORITHMS = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NGRAM": "ngram"}
DRAFT_FLAGS = ("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk",
               "speculative_num_draft_tokens", "speculative_draft_model_path")


def say_sglang(keyed: Keyed, answer: Answer, checkpoint: Checkpoint) -> None:
    """Write the keys of a server of SGLang."""
    values = answer.values
    keyed.keys["engine.scheduler"] = ("sglang", "")
    for key, place in PLACES_OF_SGLANG.items():
        if values.get(place, False) is not False:
            say(keyed, key, answer, place)
        take(keyed, answer, place, key)
    keyed.keys["engine.enable_prefix_caching"] = (not values["disable_radix_cache"], comment_of(
        answer, "disable_radix_cache"))
    for flag, key in FLAGS_OF_SGLANG.items():
        take(keyed, answer, flag, key)
    if values["kv_cache_dtype"] in ("fp8_e4m3", "fp8_e5m2"):
        say(keyed, "model.kv_cache_dtype", answer, "kv_cache_dtype")
    if values["attn_dp_size"] > 1:          # TP of the experts, DP of attention
        ranks = values["attn_dp_size"]
        keyed.keys["topology.data_parallel"] = (ranks, "given: --enable-dp-attention")
        keyed.keys["topology.tensor_parallel"] = (values["tp_size"] // ranks, "given: tp_size / attention ranks")
        keyed.keys["topology.expert_parallel"] = (values["tp_size"], "the ranks of the experts")
        if keyed.keys.pop("engine.scheduler_recv_interval", None):
            keyed.taken.pop("scheduler_recv_interval", None)
            keyed.left["scheduler_recv_interval"] = "attention ranks read requests together, by all their batches"
    elif values["ep_size"] > 1:
        keyed.keys["topology.expert_parallel"] = (values["tp_size"], comment_of(answer, "ep_size"))
    _say_policies_of_sglang(keyed, answer)
    _say_graphs_of_sglang(keyed, answer)
    _say_adapters_of_sglang(keyed, answer)
    _say_drafts_of_sglang(keyed, answer, checkpoint)


def _say_drafts_of_sglang(keyed: Keyed, answer: Answer, checkpoint: Checkpoint) -> None:
    """Take speculative decoding: chains and trees by drafters of the model, and n-grams."""
    values = answer.values
    algorithm, head = values["speculative_algorithm"], values["speculative_draft_model_path"]
    if algorithm is None:
        return
    method = "mtp" if algorithm == "EAGLE" and head == values["model_path"] else ALGORITHMS.get(algorithm)
    why = "" if method is not None else f"drafts by {algorithm}"
    if values["attn_dp_size"] > 1 or values["disaggregation_mode"] != "null":
        why = "drafts of attention ranks, or of servers for prefill or decode"
    if why:
        keyed.left.update(dict.fromkeys((flag for flag in DRAFT_FLAGS if flag in answer.given), why))
        return
    table = "engine.speculative"
    keyed.keys[f"{table}.method"] = (method, comment_of(answer, "speculative_algorithm"))
    is_chain = values["speculative_eagle_topk"] == 1
    for key in ("num_steps", "eagle_topk", *(() if is_chain else ("num_draft_tokens",))):
        say(keyed, f"{table}.{key}", answer, f"speculative_{key}")
    if method == "ngram":
        keyed.keys[f"{table}.drafter_per_sequence_us"] = (0.0, "not known: host time of the look-up")
    if method == "ngram" or not is_chain:
        keyed.keys[f"{table}.acceptance.mean_length"] = (1.0, "not known: depends on drafter and texts")
    elif (measured := published(checkpoint.model or "", method, str(head))) is not None:
        keyed.keys[f"{table}.acceptance.measured"] = (measured, "published: depends on the texts")
    for flag in DRAFT_FLAGS:
        take(keyed, answer, flag, table)


def _say_policies_of_sglang(keyed: Keyed, answer: Answer) -> None:
    """Take the orders in which requests run, are put back, and leave the tree of prefixes."""
    for flag in AS_GIVEN:
        if flag in answer.given:
            keyed.keys[f"engine.{flag}"] = (answer.given[flag], "given")
            keyed.taken[flag] = f"engine.{flag}"
    eviction = answer.given.get("radix_eviction_policy")
    if eviction in EVICTION_POLICIES:
        keyed.taken["radix_eviction_policy"] = "engine.radix_eviction_policy"
        if eviction != "lru":
            keyed.keys["engine.radix_eviction_policy"] = (eviction, "given")
    elif eviction is not None:
        keyed.left["radix_eviction_policy"] = "which prefixes stay in the tree"
    if answer.given.get("retraction_policy") == "priority":
        keyed.keys["engine.retraction_policy"] = ("priority", "given")
        keyed.taken["retraction_policy"] = "engine.retraction_policy"


def _say_adapters_of_sglang(keyed: Keyed, answer: Answer) -> None:
    """Take LoRA, unless it is off or of servers for prefill or decode."""
    if not answer.values["enable_lora"]:
        return
    if answer.values["attn_dp_size"] > 1 or answer.values["disaggregation_mode"] != "null":
        why = "adapters of attention ranks, or of servers for prefill or decode"
        keyed.left.update(dict.fromkeys((flag for flag in OF_LORA if flag in answer.given), why))
        return
    keyed.keys["engine.lora.max_loras_per_batch"] = (
        answer.values["max_loras_per_batch"], comment_of(answer, "max_loras_per_batch"))
    if answer.values["max_lora_rank"] is not None:
        keyed.keys["engine.lora.rank"] = (answer.values["max_lora_rank"], "given")
    for flag, key in OF_LORA.items():
        take(keyed, answer, flag, key)


def _say_graphs_of_sglang(keyed: Keyed, answer: Answer) -> None:
    """Take graphs that are off: of all batches, or of batches with prompts."""
    places = {phase: f"cuda_graph_config.{phase}.backend" for phase in ("decode", "prefill")}
    decode, prefill = (value_of(answer, place) for place in places.values())
    given = [flag for flag in GRAPH_FLAGS if flag in answer.given]
    if prefill == "disabled" and decode in ("full", "disabled"):
        phase = "decode" if decode == "disabled" else "prefill"
        keyed.keys[f"engine.cuda_graph_backend_{phase}"] = (
            "disabled", "given" if given else "engine: not with these ranks, kernels or images")
        keyed.taken.update(dict.fromkeys(given, f"engine.cuda_graph_backend_{phase}"))
    elif (decode, prefill) != ("full", "breakable"):
        keyed.left.update(dict.fromkeys(given, "graphs of another kind: the time to launch kernels"))
    for flag in ("cuda_graph_max_bs_decode", "cuda_graph_bs_decode"):
        if flag in answer.given and decode == "full":
            keyed.keys[f"engine.{flag}"] = (answer.given[flag], "given")
            keyed.taken[flag] = f"engine.{flag}"
    if "engine.cuda_graph_bs_decode" in keyed.keys and "engine.cuda_graph_max_bs_decode" in keyed.keys:
        drop(keyed, "cuda_graph_max_bs_decode")         # the server takes the largest of the sizes
