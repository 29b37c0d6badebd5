"""What is known of the kernels that a pool's engine picks, and no backend prices: a sentence each."""
from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.experts.tuned import untuned_note
from simulator.latency.around.launches import LAUNCH_US, num_launches

# Which kernels have no graph. SGLang: those of prompts, unless it captures them (--enable-piecewise-cuda-graph);
# TensorRT-LLM's PyTorch backend: the same, cuda_graph_config is of decodes.
UNPRICED = {"sglang": "kernels of iterations with prompts are launched one by one",
            "tensorrt_llm": "kernels of iterations with prompts are launched one by one"}
WITHOUT_SINKS = ("Volta", "Turing", "Ampere", "Ada")     # FlashAttention 3 has them, which begins at Hopper


def kernel_notes(pool, deployment: Deployment | None) -> tuple[str, ...]:
    """Return what a reader of the predictions has to know.

    pool : of an experiment, or the experiment itself; nothing where its backend was given whole iterations.
    """
    backend = registry.load("latency", pool.latency.backend)
    if deployment is None or deployment.accelerator is None or not (backend.takes_padding and backend.takes_collective):
        return ()
    version = getattr(pool.engine.parameters, "vllm_version", None)
    notes = [sinks_note(deployment), launch_note(pool.engine.scheduler, deployment)]
    if pool.engine.scheduler == "vllm" and version is not None:
        notes.append(untuned_note(deployment, version))
    return tuple(filter(None, notes))


def launch_note(scheduler: str, deployment: Deployment) -> str:
    """Return that an engine other than vLLM launches what has no graph for nothing."""
    if scheduler not in UNPRICED:
        return ""
    number = num_launches(deployment)
    ms = LAUNCH_US * number * 1e-3
    return (f"{scheduler}: {UNPRICED[scheduler]}, and what launching them takes is not counted: "
            f"{ms:.0f} ms an iteration or more where the accelerator takes less, by the host of one published server "
            f"({number:,} launches of {LAUNCH_US} us)")


def sinks_note(deployment: Deployment) -> str:
    """Return that attention with sinks has another kernel there than was timed.

    Engines take Triton's below Hopper: FlashAttention 2 has no sinks. How far that is off: gpt-oss-20b on an A100, vLLM
    0.11.0, gpustack's performance lab; without sinks, and on H100, such runs agree.
    """
    model = deployment.model
    attentions = (model.attention, model.windowed_attention)
    if not any(getattr(each, "sinks", False) for each in attentions) or (
            deployment.accelerator.architecture not in WITHOUT_SINKS):
        return ""
    return (f"attention: {model.name} has sinks, for which engines take a Triton kernel on "
            f"{deployment.accelerator.name}; the prices are FlashAttention's. Iterations of an A100 were seen to take "
            "1.6 times as long as predicted with prompts of 4,000 tokens, 2.3 times with 32,000, and as long as "
            "predicted with 128")
