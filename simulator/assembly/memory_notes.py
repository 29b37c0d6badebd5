"""Notes on a planned KV cache that rests on a law of other servers' logs, or on shapes alone."""
from simulator.domain.memory_reserve import GRAPH_ERROR, GRAPH_MEAN_ERROR

LEAST_SHARE = 0.1               # of the KV cache: a smaller uncertainty has no note
GB = 1e9


def memory_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of a run.

    site : assembly.site.Site of a pool; no notes if the experiment gives the blocks or sizes the KV cache.
    """
    plan = site.memory
    if plan is None or plan.share.of not in ("total", "free"):
        return ()
    notes, cache = [], f"a KV cache of {plan.kv_cache_bytes / GB:.1f} GB"
    if plan.graphs_are_guessed and is_large(plan.graph_bytes * (GRAPH_ERROR - 1), plan):
        notes.append(f"{plan.graph_bytes / GB:.1f} GB for CUDA graphs follow a law of {GRAPH_MEAN_ERROR:g} times off "
                     f"in the mean, {GRAPH_ERROR:g} at most, which decides over {cache}: give "
                     "engine.cuda_graphs.memory_gib")
    if is_large(plan.encoder_bytes, plan):
        notes.append(f"{plan.encoder_bytes / GB:.1f} GB for the encoder's profile run follow from the shape of its "
                     f"tower alone, and decide over {cache}")
    return tuple(f"memory: {note}" for note in notes)


def is_large(num_bytes: float, plan) -> bool:
    """Return whether so many bytes are a good part of the KV cache of a plan."""
    return num_bytes >= LEAST_SHARE * plan.kv_cache_bytes
