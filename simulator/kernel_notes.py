"""What is known of the kernels that a pool's engine picks, and no backend prices: a sentence each."""
from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.experts.tuned import untuned_note

WITHOUT_SINKS = ("Volta", "Turing", "Ampere", "Ada")     # FlashAttention 3 has them, which begins at Hopper


def kernel_notes(pool, deployment: Deployment | None) -> tuple[str, ...]:
    """Return what a reader of the predictions has to know.

    pool : of an experiment, or the experiment itself; nothing where its backend was given whole iterations.
    """
    backend = registry.load("latency", pool.latency.backend)
    if deployment is None or deployment.accelerator is None or not (backend.takes_padding and backend.takes_collective):
        return ()
    version = getattr(pool.engine.parameters, "vllm_version", None)
    notes = [sinks_note(deployment)]
    if pool.engine.scheduler == "vllm" and version is not None:
        notes.append(untuned_note(deployment, version))
    return tuple(filter(None, notes))


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
