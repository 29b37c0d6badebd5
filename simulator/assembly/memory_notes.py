"""Notes on a planned KV cache that rests on a law of other servers' logs, or on shapes alone."""
from simulator.assembly.experts import exchanging
from simulator.domain.memory_plan import blocks_that_fit
from simulator.domain.memory_reserve import GRAPH_ERROR, GRAPH_MEAN_ERROR

LEAST_SPREAD = 0.5              # of the KV cache: a law that is off by less at worst has no note
LEAST_ENCODER = 0.1             # of the KV cache: a smaller encoder has no note
GB = 1e9


def memory_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of a run.

    site : assembly.site.Site of a pool; where the experiment gives the blocks, one note if they do not fit; none if it
        sizes the KV cache.
    """
    plan, notes = site.memory, excess_notes(site)
    if notes:
        return tuple(f"memory: {note}" for note in notes)
    if plan is None or plan.share.of not in ("total", "free"):
        return ()
    cache = f"a KV cache of {plan.kv_cache_bytes / GB:.1f} GB"
    if plan.graphs_are_guessed and (
            plan.graph_bytes * (GRAPH_ERROR - 1) >= LEAST_SPREAD * plan.kv_cache_bytes):
        notes.append(f"{plan.graph_bytes / GB:.1f} GB for CUDA graphs follow a law of {GRAPH_MEAN_ERROR:g} times off "
                     f"in the mean, {GRAPH_ERROR:g} at most, which decides over {cache}: give "
                     "engine.cuda_graphs.memory_gib")
    if plan.encoder_bytes >= LEAST_ENCODER * plan.kv_cache_bytes > 0:
        notes.append(f"{plan.encoder_bytes / GB:.1f} GB for the encoder's profile run follow from the shape of its "
                     f"tower alone, and decide over {cache}")
    return tuple(f"memory: {note}" for note in notes)


def excess_notes(site) -> list[str]:
    """Return the note on given blocks that are more than fit.

    Nothing if they fit, or no plan can be made. They are used all the same: vLLM's num_gpu_blocks_override replaces the
    number that its profile run finds (vLLM 0.33.0, vllm/v1/core/kv_cache_planning.py, may_override_num_blocks).
    """
    given = site.pool.engine.num_gpu_blocks
    if given is None or site.deployment is None or (site.layer_groups is not None and site.group_plan is None):
        return []
    try:
        fitting = blocks_that_fit(
            exchanging(site.pool, site.deployment), site.limits, site.group_plan, site.needs.reserve)
    except ValueError:                          # a scheduler that does not state its needs
        return []
    return [] if fitting >= given else [
        f"engine.num_gpu_blocks = {given:,} is used; the memory plan has room for {fitting:,}, and a server with more "
        "may run out of memory"]
