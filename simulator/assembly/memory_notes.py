"""Notes on a planned KV cache that rests on a law of other servers' logs, or on shapes alone."""
from simulator.domain.memory_reserve import GRAPH_ERROR, GRAPH_MEAN_ERROR

LEAST_SPREAD = 0.5              # of the KV cache: a law that is off by less at worst has no note
LEAST_ENCODER = 0.1             # of the KV cache: a smaller encoder has no note
GB = 1e9


def memory_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of a run.

    site : assembly.site.Site of a pool; no notes if the experiment gives the blocks or sizes the KV cache.
    """
    plan = site.memory
    if plan is None or plan.share.of not in ("total", "free"):
        return ()
    notes, cache = [], f"a KV cache of {plan.kv_cache_bytes / GB:.1f} GB"
    if plan.graphs_are_guessed and (
            plan.graph_bytes * (GRAPH_ERROR - 1) >= LEAST_SPREAD * plan.kv_cache_bytes):
        notes.append(f"{plan.graph_bytes / GB:.1f} GB for CUDA graphs follow a law of {GRAPH_MEAN_ERROR:g} times off "
                     f"in the mean, {GRAPH_ERROR:g} at most, which decides over {cache}: give "
                     "engine.cuda_graphs.memory_gib")
    if plan.encoder_bytes >= LEAST_ENCODER * plan.kv_cache_bytes > 0:
        notes.append(f"{plan.encoder_bytes / GB:.1f} GB for the encoder's profile run follow from the shape of its "
                     f"tower alone, and decide over {cache}")
    return tuple(f"memory: {note}" for note in notes)
