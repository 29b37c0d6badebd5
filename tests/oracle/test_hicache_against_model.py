"""SGLang's scheduler with HiCache against a twin in plain Python: random scenes, every batch and token to the ns."""
from random import Random

import pytest

from oracle.radix import ORDERS
from oracle.sglang_hicache import Request, Sim
from support.kv_tiers import serve

BYTES_PER_TOKEN = 1000
GIB = 2**30


def scene_of(seed, has_store):
    """Return the requests of a scene, as rows of a trace, and its keys."""
    rng = Random(seed)
    page, lines, now_us = rng.choice([1, 1, 2, 16]), [], 0
    scale = rng.choice([4, 12])
    for i in range(rng.randint(4, 30)):
        now_us += rng.choice([1, 500, 7000, 40_000]) + rng.randrange(1000)
        pieces = [(rng.choice("abcd" if has_store else "aab"), scale * rng.randint(1, 8))
                  for _ in range(rng.randint(1, 3))]
        pieces.append((f"own{i}", rng.randint(1, 2 * scale)) if rng.random() < 0.5 else ("c", scale))
        output = rng.choice([1, rng.randint(1, 12), rng.randint(1, 40)])
        lines.append((now_us, pieces, output, output + rng.choice([0, 0, 3])))
    longest = max(sum(length for _, length in pieces) + most for _, pieces, _, most in lines)
    pages = -(-longest * rng.choice([1.1, 1.6, 3.0]) // page) + 3
    keys = {
        "page": page, "num_pages": int(pages), "policy": rng.choice(["lru", "lru", *sorted(ORDERS)]),
        "write_policy": rng.choice(["write_through", "write_through_selective", *["write_back"] * (not has_store)]),
        "ratio": rng.choice([0.3, 0.5, 1.0] if has_store else [0.3, 1.0, 2.0, 8.0]), "has_store": has_store,
        "depth": rng.choice([1, 2]),
        "max_running": rng.choice([2, 8, 64]), "chunk_tokens": page * rng.choice([16, 40, 1000]),
        "most_inputs": rng.choice([30, 4000]), "prices_us": (rng.choice([50, 5000]), 10, rng.choice([2, 20]), 1),
        "base_us": rng.choice([0, 30]), "d2h_ns": rng.choice([10, 1000, 100_000]),
        "h2d_ns": rng.choice([10, 1000, 100_000]), "threshold": rng.choice([0, 0, 20]),
        "prefetch_policy": rng.choice(["wait_complete", "best_effort", "timeout"]),
        "timeout_s": (rng.choice([0.0, 0.004, 1.0]), rng.choice([0.0, 0.125])),
        "store_us": (rng.choice([0, 200, 5000]), rng.choice([10, 1000, 50_000]), rng.choice([10, 1000, 50_000]))}
    return lines, keys


def settings_of(keys, path):
    """Return the experiment of a scene."""
    tiers = {"protocol": "hicache", "ratio": keys["ratio"], "write_policy": keys["write_policy"],
             "kv_bytes_per_token": BYTES_PER_TOKEN, "first_byte_us": keys["base_us"],
             "d2h_gb_per_s": BYTES_PER_TOKEN / keys["d2h_ns"], "h2d_gb_per_s": BYTES_PER_TOKEN / keys["h2d_ns"]}
    if keys["has_store"]:
        base_us, read_ns, write_ns = keys["store_us"]
        tiers |= {"prefetch_policy": keys["prefetch_policy"], "prefetch_threshold": keys["threshold"],
                  "secondary": [{"name": "l3", "base_us": base_us, "read_gb_per_s": BYTES_PER_TOKEN / read_ns,
                                 "write_gb_per_s": BYTES_PER_TOKEN / write_ns}]}
        if keys["prefetch_policy"] == "timeout":
            tiers |= {"prefetch_timeout_base_s": keys["timeout_s"][0],
                      "prefetch_timeout_per_ki_token_s": keys["timeout_s"][1]}
    base_us, sequence_us, token_us, context_us = keys["prices_us"]
    return {
        "name": "scene",
        "engine": {"scheduler": "sglang", "num_gpu_blocks": keys["num_pages"], "block_size": keys["page"],
                   "max_model_len": 100_000, "max_running_requests": keys["max_running"],
                   "chunked_prefill_size": keys["chunk_tokens"], "max_prefill_tokens": keys["most_inputs"],
                   "radix_eviction_policy": keys["policy"], "disable_overlap_schedule": keys["depth"] == 1},
        "latency": {"backend": "linear", "base_us": base_us, "per_sequence_us": sequence_us,
                    "per_prefill_token_us": token_us, "per_context_token_us": context_us},
        "workload": {"type": "trace", "path": str(path), "time_origin": "trace"}, "kv_tiers": tiers}


def write(path, lines):
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens,prompt"]
    for now_us, pieces, output, most in lines:
        prompt = sum(length for _, length in pieces)
        rows.append(f"{now_us / 1e6:.6f},{prompt},{output},{most},"
                    + "/".join(f"{name}:{length}" for name, length in pieces))
    path.write_text("\n".join(rows) + "\n")


def twin_of(lines, keys):
    """Return the twin after its run, and its requests."""
    pool, page = keys["num_pages"] * keys["page"], keys["page"]
    requests = []
    for row, (now_us, pieces, output, most) in enumerate(lines):
        tokens = tuple((name, offset) for name, length in pieces for offset in range(length))
        most = min(most, pool - 1 - len(tokens) - 1, pool - -(-len(tokens) // page) * page - page - 1)
        requests.append(Request(row, now_us * 1000, len(tokens), min(output, most), most,
                                lambda count, tokens=tokens, row=row: (
                                    tokens + tuple((f"out{row}", i) for i in range(count - len(tokens))))[:count]))
    sim = Sim(requests, **keys | {
        "capacity": int(keys["ratio"] * keys["num_pages"]) * page, "layers": 1, "base_ns": keys["base_us"] * 1000,
        "d2h_ns": keys["d2h_ns"] * page, "h2d_ns": keys["h2d_ns"] * page,
        "threshold": max(keys["threshold"], page), "timeout_base_ns": keys["timeout_s"][0] * 1e9,
        "timeout_page_ns": keys["timeout_s"][1] * 1e9 / 1024 * page,
        "store_ns": (keys["store_us"][0] * 1000, keys["store_us"][1] * page, keys["store_us"][2] * page)})
    sim.run()
    return sim, requests


def compare(folder, seed, has_store):
    """Check that a scene goes as in the twin; return what its tier did."""
    lines, keys = scene_of(seed, has_store)
    write(folder / "trace.csv", lines)
    try:
        sim, requests = twin_of(lines, keys)
    except NotImplementedError:
        return None
    cluster, run = serve(settings_of(keys, folder / "trace.csv"), seed % 2 == 0)
    cluster.replicas[0].check()
    cluster.replicas[0].scheduler.tier.check()
    found = run.workload.requests
    for name, values in {"first_token_ns": [each.first_ns for each in requests],
                         "completed_ns": [each.done_ns for each in requests],
                         "cached_tokens": [each.cached for each in requests]}.items():
        assert found[name].tolist() == values, (seed, name)
    assert run.columns["loaded_tokens"].tolist() == [each.loaded for each in requests], seed
    host = run.tables["kv_tiers"][0]
    assert host["hit_chunks"] == sim.hits // keys["page"]
    assert host["refusals"] == sim.tree.refused + sim.declined
    assert host["waited_ns"] == sim.waited_ns
    return run.tables["kv_tiers"]


@pytest.mark.parametrize("has_store", [False, True])
def test_random_scenes_are_those_of_the_twin(tmp_path, has_store):
    done = [tiers for seed in range(60) if (tiers := compare(tmp_path, seed, has_store)) is not None]

    assert len(done) > 50
    assert sum(tiers["hit_chunks"][0] > 0 for tiers in done) > 10
    assert sum(tiers["evicted_chunks"][0] > 0 for tiers in done) > 5
    assert sum(tiers["loads"][-1] > 0 for tiers in done) > 10           # from the store, where there is one
