"""Notes on kernels that a pool's engine chooses and no latency backend prices."""
from simulator.domain.deployment import Deployment
from simulator.experts.tuned import untuned_note
from simulator.latency.overheads.launches import LAUNCH_US, num_launches

# Kernels without a CUDA graph. SGLang: in prompts, unless it captures them (--enable-piecewise-cuda-graph);
# TensorRT-LLM's PyTorch backend: in prompts, since cuda_graph_config covers decodes.
UNPRICED = {"sglang": "kernels of iterations with prompts are launched one by one",
            "tensorrt_llm": "kernels of iterations with prompts are launched one by one"}
WITHOUT_SINKS = ("Volta", "Turing", "Ampere", "Ada")     # FlashAttention 3 has them, which begins at Hopper


def kernel_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of the predictions.

    site : assembly.site.Site of a pool; no notes if its backend predicts whole iterations.
    """
    deployment, engine = site.deployment, site.pool.engine
    if deployment is None or not (site.backend.takes_padding and site.backend.takes_collective):
        return ()
    version = getattr(engine.parameters, "vllm_version", None)
    notes = [sinks_note(deployment), launch_note(engine.scheduler, deployment)]
    if engine.scheduler == "vllm" and version is not None:
        notes.append(untuned_note(deployment, version))
    return tuple(filter(None, notes))


def launch_note(scheduler: str, deployment: Deployment) -> str:
    """Return a note on unpriced launches of an engine other than vLLM, or ""."""
    if scheduler not in UNPRICED:
        return ""
    number = num_launches(deployment)
    ms = LAUNCH_US * number * 1e-3
    return (f"{scheduler}: {UNPRICED[scheduler]}, and the time of their launches is not counted: "
            f"{ms:.0f} ms an iteration or more if the accelerator takes less, by the host of one published server "
            f"({number:,} launches of {LAUNCH_US} us)")


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
            "1.6 times as long as predicted with prompts of 4,000 tokens, 2.3 times with 32,000, and as long as "
            "predicted with 128")
