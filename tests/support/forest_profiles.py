"""Profiles in Vidur's format, small enough to work out by hand: DENSE of small_models, on one or more accelerators."""
from msgspec import convert

from simulator.latency.forest.model import Forest
from simulator.latency.forest.profiles import ROUNDED_OPERATORS

SUBJECT = {"n_head": 4, "n_kv_head": 2, "n_embd": 64, "n_expanded_embd": 128, "use_gated_mlp": True, "vocab_size": 1024}
ATTENTION_SUBJECT = {"n_embd": 64, "n_q_head": 4, "n_kv_head": 2, "block_size": 16}


def write(path, rows):
    """Write rows, dicts of the same keys, as CSV."""
    lines = [",".join(rows[0])] + [",".join(str(value) for value in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def compute_rows(tokens=(1, 8, 16, 32, 64), tensor_parallel=1):
    """Return rows of mlp.csv: operator i takes (i + 1) x tokens microseconds."""
    return [{f"time_stats.{name}.median": (i + 1) * count / 1000 for i, name in enumerate(ROUNDED_OPERATORS)}
            | SUBJECT | {"num_tokens": count, "num_tensor_parallel_workers": tensor_parallel} for count in tokens]


def attention_rows(tensor_parallel=1):
    """Return rows of attention.csv: prompts take tokens x (context + tokens) ns, decodes batch x context ns."""
    same = ATTENTION_SUBJECT | {"num_tensor_parallel_workers": tensor_parallel}
    rows = [{"time_stats.attn_prefill.median": chunk * (context + chunk) / 1e6, "time_stats.attn_decode.median": "",
             "time_stats.attn_kv_cache_save.median": chunk / 1e6, "batch_size": 1, "prefill_chunk_size": chunk,
             "kv_cache_size": context} | same for chunk in (1, 16, 32, 64) for context in (0, 16, 32, 64)]
    return rows + [
        {"time_stats.attn_prefill.median": "", "time_stats.attn_decode.median": batch * context / 1e6,
         "time_stats.attn_kv_cache_save.median": batch / 1e6, "batch_size": batch, "prefill_chunk_size": 0,
         "kv_cache_size": context} | same for batch in (1, 2, 4) for context in (16, 32, 64)]


def network_rows(name, devices, workers=2, sizes=(128, 1024, 8192)):
    """Return rows of all_reduce.csv or send_recv.csv: 1 ns a byte."""
    return [{f"time_stats.{name}.median": size / 1e6, "num_workers": workers, "size": size,
             "devices_per_node": devices, "max_devices_per_node": 4} for size in sizes]


def parameters_for(folder, **changes):
    """Return parameters for profiles in `folder`, with a training of milliseconds."""
    given = {
        "compute_file": str(folder / "mlp.csv"), "attention_file": str(folder / "attention.csv"),
        "cache_directory": str(folder / "cache"), "num_estimators": [3], "max_depth": [8], "min_samples_split": [2],
        "num_training_jobs": 1, "kv_granularity_tokens": 16}
    return convert(given | changes, Forest.Parameters)


def write_profiles(folder, tensor_parallel=1):
    """Write mlp.csv and attention.csv; return `folder`."""
    write(folder / "mlp.csv", compute_rows(tensor_parallel=tensor_parallel))
    write(folder / "attention.csv", attention_rows(tensor_parallel))
    return folder
