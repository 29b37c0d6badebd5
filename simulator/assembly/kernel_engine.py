"""Framework and version of the kernels that a latency backend prices, from [engine] if [latency] names none."""
from msgspec.structs import replace

FRAMEWORKS = {"sglang": "sglang", "tensorrt_llm": "trtllm"}     # by scheduler; all others price vLLM's kernels


def with_engine(pool, parameters):
    """Return the backend's parameters with framework and version of the engine.

    pool : config.experiment.Pool, or an Experiment without pools.
    """
    engine = pool.engine
    if getattr(parameters, "framework", "") is None:
        parameters = replace(parameters, framework=FRAMEWORKS.get(engine.scheduler, "vllm"))
    version = getattr(engine.parameters, "vllm_version", None)
    if version is not None and getattr(parameters, "engine_version", "") is None and parameters.framework == "vllm":
        parameters = replace(parameters, engine_version=version)
    return parameters
