"""vLLM's KV connectors.

Sources: vLLM 0.32.0 and 0.33.0, vllm/config/kv_transfer.py, vllm/config/vllm.py,
vllm/distributed/kv_transfer/kv_connector/factory.py.
"""
from typing import Any

from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint

ROLES = ("kv_producer", "kv_consumer", "kv_both")
# Connectors, and whether they serve layers of several kinds at once (SupportsHMA).
CONNECTORS = {
    "ExampleConnector": False, "ExampleHiddenStatesConnector": True, "LMCacheConnectorV1": False,
    "LMCacheMPConnector": False, "NixlConnector": True, "NixlPullConnector": True, "NixlPushConnector": True,
    "MultiConnector": True, "HiSparseConnector": True, "MoRIIOConnector": True, "OffloadingConnector": True,
    "DecodeBenchConnector": True, "MooncakeConnector": True, "MooncakeStoreConnector": True,
    "FlexKVConnectorV1": False, "SimpleCPUOffloadConnector": True, "HF3FSKVConnector": False}
GIB = 2**30


def transfer_of(work: Work) -> dict[str, Any] | None:
    """Return the transfer configuration of the flag.

    Raises
    ------
    Refused
        A connector without a role, or a role that is none.
    """
    asked = work.flag("kv_transfer_config")
    if asked is None:
        return None
    role = asked.get("kv_role")
    if role is not None and role not in ROLES:
        raise Refused("parse", "bad value", f"kv_role {role}: expected one of {', '.join(ROLES)}")
    if asked.get("kv_connector") is not None and role is None:
        raise Refused("parse", "role of the connector", "kv_connector needs a kv_role")
    return {"kv_connector": asked.get("kv_connector"), "kv_role": role,
            "kv_connector_extra_config": dict(asked.get("kv_connector_extra_config") or {}),
            "kv_buffer_device": asked.get("kv_buffer_device", "cuda"),
            "kv_load_failure_policy": asked.get("kv_load_failure_policy", "fail")}


def check_graphs(work: Work, transfer: dict[str, Any] | None) -> None:
    """Check the connector where full graphs are captured: some take pieces alone.

    Raises
    ------
    Refused
        No such connector.
    """
    if transfer is None or transfer["kv_connector"] is None or "FULL" not in work.get("cudagraph.cudagraph_mode"):
        return
    _check_known(transfer)
    if any(config.get("use_layerwise") and name == "LMCacheConnectorV1" for name, config in _children(transfer)):
        work.set("cudagraph.cudagraph_mode", "PIECEWISE", "engine", "the connector works layer by layer")


def _children(transfer: dict[str, Any]) -> list[tuple[str, dict]]:
    extra = transfer["kv_connector_extra_config"]
    if transfer["kv_connector"] != "MultiConnector":
        return [(transfer["kv_connector"], extra)]
    return [(child.get("kv_connector"), child.get("kv_connector_extra_config") or {})
            for child in extra.get("connectors", [])]


def _check_known(transfer: dict[str, Any]) -> None:
    for name in {transfer["kv_connector"], *(name for name, _ in _children(transfer))}:
        if name not in CONNECTORS:
            raise Refused("config", "unknown connector", f"Unsupported connector type: {name}")


def resolve_transfer(work: Work, checkpoint: Checkpoint, transfer: dict[str, Any] | None) -> None:
    """Set the connector, and whether layers of several kinds share their blocks.

    Raises
    ------
    Refused
        No such connector, or sharing asked for where it is ruled out.
    """
    size = work.get("cache.kv_offloading_size")
    if size is not None:
        transfer = transfer or {"kv_connector_extra_config": {}, "kv_buffer_device": "cuda",
                                "kv_load_failure_policy": "fail"}
        if work.get("cache.kv_offloading_backend") == "native":
            simple = work.question.environment.get("VLLM_USE_SIMPLE_KV_OFFLOAD") in ("1", "true", "True")
            transfer["kv_connector"] = "SimpleCPUOffloadConnector" if simple else "OffloadingConnector"
            transfer["kv_connector_extra_config"]["cpu_bytes_to_use"] = size * GIB
        else:
            transfer["kv_connector"] = "LMCacheMPConnector"
        transfer["kv_role"] = "kv_both"
    _resolve_sharing(work, checkpoint, transfer)
    for key, value in (transfer or {}).items():
        work.set(f"kv_transfer.{key}", value, "flag", "--kv-offloading-size" if size is not None
                 else "--kv-transfer-config")


def _resolve_sharing(work: Work, checkpoint: Checkpoint, transfer: dict[str, Any] | None) -> None:
    asked = work.flag("disable_hybrid_kv_cache_manager")
    chunked = checkpoint.spec is not None and checkpoint.spec.sliding_attention is not None and (
        checkpoint.spec.sliding_attention.chunked)
    why = ["aligned chunks of attention"] if chunked else []
    if asked is None and transfer is not None:
        _check_known(transfer)
        if not all(CONNECTORS[name] for name, _ in _children(transfer)):
            why.append("the connector moves layers of one kind alone")
    if asked is False and why:
        raise Refused("config", "hybrid KV manager", f"the hybrid KV cache manager cannot be kept: {why[0]}")
    work.set("scheduler.disable_hybrid_kv_cache_manager", bool(why) if asked is None else asked, *(
        ("flag", "--disable-hybrid-kv-cache-manager") if asked is not None else
        ("engine", why[0] if why else "on where nothing rules it out")))


def check_ranks(work: Work, checkpoint: Checkpoint, transfer: dict[str, Any] | None) -> None:
    """Check NIXL with decode context parallelism.

    Raises
    ------
    Refused
        A context that is neither whole nor split over all ranks; one of a model without latent attention.
    """
    if transfer is None or all(name != "NixlConnector" for name, _ in _children(transfer)):
        return
    decode = work.get("parallel.decode_context_parallel_size")
    most = max(work.get("parallel.tensor_parallel_size"), work.get("parallel.prefill_context_parallel_size"))
    if decode not in (1, most) or (decode > 1 and not checkpoint.is_latent):
        raise Refused("config", "NIXL with DCP", f"NIXL with decode context {decode} of {most}")
