"""vLLM's parallel configuration. Sources: vLLM 0.32.0 and 0.33.0, vllm/engine/arg_utils.py, vllm/config/parallel.py."""
from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint

EPLB = {"window_size": 1000, "step_interval": 3000, "num_redundant_experts": 0, "log_balancedness": False,
        "log_balancedness_interval": 1, "use_async": True, "policy": "default", "communicator": None,
        "enable_migration_batching": False}
BATCHED = ("deepep_low_latency", "nixl_ep")
SEQUENCE_PARALLEL = (*BATCHED, "allgather_reducescatter", "deepep_high_throughput", "deepep_v2",
                     "flashinfer_nvlink_one_sided", "passthrough", "mori_high_throughput", "mori_low_latency")
GONE_BACKENDS = ("pplx", "naive")
POSITIVE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size",
            "decode_context_parallel_size", "nnodes")


def resolve_parallel(work: Work, checkpoint: Checkpoint) -> None:
    """Resolve ranks and their backends.

    Raises
    ------
    Refused
        Ranks that contradict each other, the model or the node.
    """
    for flag in POSITIVE:
        if work.flag(flag) < 1:
            raise Refused("config", "bad number", f"{flag} {work.flag(flag)}: expected 1 or more")
    external, local, rank = _data_parallel(work, checkpoint)
    work.take("parallel", *POSITIVE[:3], data_parallel_backend="data_parallel_backend")
    work.set("parallel.data_parallel_size_local", local, *_of(work, "data_parallel_size_local"))
    work.set("parallel.data_parallel_rank", rank or 0)
    work.set("parallel.data_parallel_external_lb", external)
    work.take("parallel", *POSITIVE[3:], "enable_expert_parallel", "enable_eplb", "expert_placement_strategy",
              "enable_dbo", "ubatch_size", "dbo_decode_token_threshold", "dbo_prefill_token_threshold",
              "disable_custom_all_reduce", "dp_sync_interval")
    work.set("parallel.dcp_comm_backend", work.flag("dcp_comm_backend") or "ag_rs")
    work.set("parallel.cp_kv_cache_interleave_size", work.flag("cp_kv_cache_interleave_size") or 1)
    backend = work.flag("all2all_backend")
    if backend in GONE_BACKENDS:
        work.notes.append(f"all2all backend {backend} is gone: allgather_reducescatter")
        work.set("parallel.all2all_backend", "allgather_reducescatter", "engine", f"{backend} is gone")
    else:
        work.take("parallel", "all2all_backend")
    _check(work)
    _resolve_world(work)
    work.set("parallel.worker_cls", "vllm.v1.worker.gpu_worker.Worker")


def _of(work: Work, flag: str) -> tuple[str, str]:
    return ("flag", f"--{flag.replace('_', '-')}") if flag in work.given else ("engine", "= data_parallel_size")


def _data_parallel(work: Work, checkpoint: Checkpoint) -> tuple[bool, int, int | None]:
    """Return whether an external balancer serves the ranks, the ranks of this command, and its first rank."""
    size, local, rank = (work.flag(flag) for flag in ("data_parallel_size", "data_parallel_size_local",
                                                      "data_parallel_rank"))
    start, hybrid = work.flag("data_parallel_start_rank"), bool(work.flag("data_parallel_hybrid_lb"))
    headless = bool(work.flag("headless"))
    external = bool(work.flag("data_parallel_external_lb")) or rank is not None
    _check_balancers(work, hybrid, external, checkpoint)
    local, inferred = _by_nodes(work, local)
    if external:
        if rank is None:
            raise _launch("an external balancer needs --data-parallel-rank")
        if local not in (1, None):
            raise _launch("an external rank has one local rank")
        hybrid, local = False, 1
    elif local is not None:
        hybrid = hybrid or (start is not None and not headless)
        if hybrid and local == 1:
            external, hybrid = True, False
        hybrid = hybrid and local != size
        rank = start if start is not None else inferred
    elif hybrid:
        raise _launch("a hybrid balancer needs --data-parallel-size-local")
    else:
        local = size
    work.set("parallel.data_parallel_hybrid_lb", hybrid)
    if local > size:
        raise Refused("config", "data parallel launch", f"{local} local ranks of {size}")
    if size <= 1 and external:
        raise Refused("config", "data parallel launch", "an external balancer needs more than one rank")
    if size > 1 and not 0 <= (rank or 0) < size:
        raise Refused("config", "data parallel launch", f"rank {rank} of {size}")
    return external, local, rank


def _launch(why: str) -> Refused:
    return Refused("config", "data parallel launch", why)


def _check_balancers(work: Work, hybrid: bool, external: bool, checkpoint: Checkpoint) -> None:
    if hybrid and work.flag("data_parallel_external_lb"):
        raise _launch("one balancer, hybrid or external")
    if work.flag("nnodes") > 1 and work.flag("data_parallel_backend") != "mp":
        raise _launch("several nodes need --data-parallel-backend mp")
    if work.flag("data_parallel_size") > 1 and external and checkpoint.num_experts == 0:
        raise Refused("config", "external ranks of a dense model",
                      "a dense model has no external data parallelism: start independent servers")


def _by_nodes(work: Work, local: int | None) -> tuple[int | None, int]:
    """Return the local ranks and the first one, as several nodes imply them."""
    nodes = work.flag("nnodes")
    if nodes == 1:
        return local, 0
    inner = (work.flag("pipeline_parallel_size") * work.flag("tensor_parallel_size")
             * work.flag("prefill_context_parallel_size"))
    world, node = work.flag("data_parallel_size") * inner, work.flag("node_rank")
    if world % nodes or not 0 <= node < nodes:
        raise _launch(f"{world} ranks on {nodes} nodes, node {node}")
    here = world // nodes
    return (max(here // inner, 1) if local is None else local), node * here // inner


def _check(work: Work) -> None:
    """Check expert and context parallelism."""
    values = work.values["parallel"]
    eplb = EPLB | (work.flag("eplb_config") or {})
    if values["enable_eplb"]:
        if not values["enable_expert_parallel"]:
            raise Refused("config", "EPLB without experts in parallel", "enable_eplb needs --enable-expert-parallel")
        ranks = (values["tensor_parallel_size"] * values["prefill_context_parallel_size"]
                 * values["data_parallel_size"])
        if ranks <= 1:
            raise Refused("config", "EPLB on one rank", "EPLB needs tensor, context or data parallelism")
    elif eplb["num_redundant_experts"]:
        raise Refused("config", "redundant experts without EPLB", "num_redundant_experts needs --enable-eplb")
    tensor, prefill, decode = (values[f"{kind}_parallel_size"] for kind in ("tensor", "prefill_context",
                                                                            "decode_context"))
    if prefill == 1 and tensor % decode:
        raise Refused("config", "DCP by TP", f"tensor parallel size {tensor} is no multiple of {decode}")
    if prefill > 1 and decode not in (1, prefill, tensor * prefill):
        raise Refused("config", "DCP by TP", f"decode context {decode} with tensor {tensor} and prefill {prefill}")
    if values["enable_eplb"] and eplb["communicator"] is None:
        eplb["communicator"] = "torch_gloo"
    work.set("parallel.eplb_config", f"EPLBConfig({', '.join(f'{key}={value!r}' for key, value in eplb.items())})")


def _resolve_world(work: Work) -> None:
    values = work.values["parallel"]
    world = (values["pipeline_parallel_size"] * values["tensor_parallel_size"]
             * values["prefill_context_parallel_size"])
    data, expert = values["data_parallel_size"], values["enable_expert_parallel"]
    backend = work.flag("distributed_executor_backend")
    if backend is None and world * data > 1:
        if values["nnodes"] == 1 and work.question.gpus < world:
            raise Refused("config", "more ranks than GPUs",
                          f"{world} GPUs a replica, {work.question.gpus} in the node; --nnodes or ray span nodes")
        backend = "mp"
    work.set("parallel.distributed_executor_backend", backend or "uni")
    work.set("parallel.world_size", world)
    work.set("parallel.use_batched_dp_moe", values["all2all_backend"] in BATCHED and expert and data > 1)
    work.set("parallel.use_sequence_parallel_moe", values["all2all_backend"] in SEQUENCE_PARALLEL and expert
             and values["tensor_parallel_size"] > 1 and data > 1)


def check_model_ranks(work: Work, checkpoint: Checkpoint) -> None:
    """Check the model against the ranks, and count its parts on one rank.

    Raises
    ------
    Refused
        Heads that do not divide, experts that are none, context ranks beyond the KV heads' copies.
    """
    values, heads, kv_heads = work.values["parallel"], checkpoint.num_heads, checkpoint.num_kv_heads
    tensor, decode = values["tensor_parallel_size"], values["decode_context_parallel_size"]
    if heads % tensor:
        raise Refused("config", "heads by TP", f"{heads} attention heads on tensor parallel size {tensor}")
    if values["enable_expert_parallel"] and checkpoint.num_experts == 0:
        raise Refused("config", "no experts", "expert parallelism of a model without experts")
    if decode > 1 and not checkpoint.is_latent and (
            tensor <= kv_heads or decode > tensor // kv_heads or heads // kv_heads % decode):
        raise Refused("config", "DCP by KV heads", f"decode context {decode} with {kv_heads} KV heads on {tensor}")
    stages = values["pipeline_parallel_size"]
    work.set("model.num_kv_heads_per_gpu", 1 if checkpoint.is_latent else max(1, kv_heads // tensor))
    work.set("model.num_attention_heads_per_gpu", heads // tensor)
    work.set("model.num_layers_per_gpu", _first_stage(checkpoint.num_layers, stages))
    work.set("model.head_size", checkpoint.head_size)


def _first_stage(layers: int, stages: int) -> int:
    """Return the layers of the first stage: spare layers go to stages before the last, from the back."""
    each, spare = divmod(layers, stages)
    shares = [each] * stages
    for place in range(2, spare + 2):
        shares[-place] += 1
    return shares[0]
