"""Notes on kernels that a pool's engine chooses and no latency backend prices."""
from simulator.domain.deployment import Deployment
from simulator.domain.host_defaults import FRONT_END_US, FRONT_ENDS_ALIKE
from simulator.experts.tuned import untuned_note

WITHOUT_SINKS = ("Volta", "Turing", "Ampere", "Ada")     # FlashAttention 3 has them, which begins at Hopper


def kernel_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of the predictions.

    site : assembly.site.Site of a pool; no notes if its backend predicts whole iterations.
    """
    deployment, engine = site.deployment, site.pool.engine
    if deployment is None or not (site.backend.takes_padding and site.backend.takes_collective):
        return ()
    version = getattr(engine.parameters, "vllm_version", None)
    notes = [sinks_note(deployment), front_end_note(site.pool), shared_experts_note(deployment)]
    if engine.scheduler == "vllm" and version is not None:
        notes.append(untuned_note(deployment, version))
    return tuple(filter(None, notes))


def front_end_note(pool) -> str:
    """Return a note that vLLM's front end is taken for another engine's, or ""."""
    host = pool.latency.host
    if pool.engine.scheduler not in FRONT_ENDS_ALIKE or host.defaults == "none" or host.queue_base_us:
        return ""
    before_ms, token_ms = FRONT_END_US["queue_base_us"] / 1e3, FRONT_END_US["output_token_us"] / 1e3
    return (f"latency.host: the front end of {pool.engine.scheduler} was not measured, vLLM's is taken: "
            f"{before_ms:.1f} ms before the queue and {token_ms:.1f} ms for a token")


def sinks_note(deployment: Deployment) -> str:
    """Return a note that the kernel of attention with sinks was not timed, or "".

    Engines take Triton's below Hopper: FlashAttention 2 has no sinks. Measured error: gpt-oss-20b on an A100, vLLM
    0.11.0, gpustack's performance lab; without sinks, and on H100, such runs agree.
    """
    model = deployment.model
    if not (model.attention.sinks or model.windowed_attention.sinks) or (
            deployment.accelerator.architecture not in WITHOUT_SINKS):
        return ""
    return (f"attention: {model.name} has sinks, for which engines take a Triton kernel on "
            f"{deployment.accelerator.name}; the prices are FlashAttention's. Iterations of an A100 were seen to take "
            "1.8 times as long as operators predict with prompts of 32,000 tokens, 1.1 times with 4,000, and 0.8 times "
            "with 128")


def shared_experts_note(deployment: Deployment) -> str:
    """Return a note that a shared expert is priced after the routed ones, or "".

    Engines compute it beside them on a second stream (vLLM, fused_moe: shared_experts_stream; SGLang, deepseek_v2.py:
    alt_stream; TensorRT-LLM, modeling_deepseekv3.py: aux_stream). Measured error: DeepSeek-R1 in nvfp4 on GB200, 8
    ranks of a TensorRT-LLM server with 3 sequences.
    """
    moe = deployment.model.moe
    if moe is None or moe.shared_expert is None:
        return ""
    return (f"experts: the shared expert of {deployment.model.name} is priced after the routed ones; engines compute "
            "it beside them in decodes: of 9.2 ms predicted for 3 sequences of DeepSeek-R1 on 8 GB200, 1.5 ms is the "
            "shared expert, and 6.9 ms were measured")
