"""Context parallelism: rows of the table of conflicts, and sizes that do not divide evenly."""
from collections.abc import Iterator

from simulator.config import features as has
from simulator.config.conflicts import Conflict, without
from simulator.config.layers import Path

Fault = tuple[Path, str]
NOTHING_SHARED = "nothing is shared"
ALIKE = 'as "roofline", "operators" and "linear" do'

# Sources: vLLM 0.32.0, vllm/config/parallel.py and vllm.py, vllm/v1/worker/gpu/pcp_manager.py (validate_config).
CONFLICTS = (
    Conflict(has.INTERLEAVE, without(has.SHARED_CONTEXT), NOTHING_SHARED),
    Conflict(has.COMBINING, without(has.SHARED_CONTEXT), NOTHING_SHARED),
    Conflict(has.SHARED_CONTEXT, has.UNPRICED_CONTEXT,
             f"it does not price the context of decodes separately, {ALIKE}"),
    Conflict(has.WINDOWS, has.SHARED_CONTEXT, "vLLM shares no windows"),
    Conflict(has.DIVIDED_PROMPTS, has.UNPRICED_CONTEXT, f"it does not price parts of a prompt, {ALIKE}"),
    Conflict(has.SHARED_CONTEXT, has.DIVIDED_PROMPTS, "sharing of the gathered KV over ranks is not supported"),
    Conflict(has.PIPELINE, has.DIVIDED_PROMPTS, "vLLM does not divide prompts over ranks of a stage"),
    Conflict(has.RANKS, has.DIVIDED_PROMPTS, "vLLM 0.32 does not start such ranks"),
    Conflict(has.ENCODER, has.DIVIDED_PROMPTS, "vLLM refuses it"),
    Conflict(has.GRAPHS, has.DIVIDED_PROMPTS, "padding of the rows of a rank is not supported"),
    Conflict(has.STATES, has.DIVIDED_PROMPTS, "a state passes from token to token"),
    Conflict(has.ALL2ALL, has.DIVIDED_PROMPTS, "vLLM gathers and scatters"),
)


def size_faults(topology, engine) -> Iterator[Fault]:
    """Yield the sizes of parallelism that do not divide other sizes."""
    degree, interleave = topology.decode_context_parallel, topology.cp_kv_cache_interleave_size
    if topology.tensor_parallel % degree:
        yield ("topology", "decode_context_parallel"), (
            f"expected a divisor of tensor_parallel = {topology.tensor_parallel}, found {degree}")
    if degree > 1 and engine.block_size % interleave:
        yield ("topology", "cp_kv_cache_interleave_size"), (
            f"expected a divisor of engine.block_size = {engine.block_size}, found {interleave}")
    for key in ("data_parallel", "prefill_context_parallel"):
        ways = topology.tensor_parallel * getattr(topology, key)
        if getattr(topology, key) > 1 and topology.expert_parallel not in (1, ways):
            yield ("topology", "expert_parallel"), (
                f"expected 1, or tensor_parallel x {key} = {ways}, found {topology.expert_parallel}")
