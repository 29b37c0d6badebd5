"""Random experiments with KV tiers."""
from simulator.assembly import assemble
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve
from simulator.results.memory import NO_SINK

GIB = 2**30
BLOCK_BYTES = 16_000


def random_levels(rng):
    """Return [[kv_tiers.secondary]] of one to three levels."""
    return [{"name": f"level{i}", "scope": rng.choice(["replica", "cluster"]),
             "capacity_gib": rng.choice([3, 20, 200, 10**6]) * BLOCK_BYTES / GIB,
             "read_gb_per_s": rng.choice([0.001, 0.01, 1.0]), "write_gb_per_s": rng.choice([0.001, 0.01, 1.0]),
             "base_us": rng.choice([0.0, 100.0, 5000.0])} for i in range(rng.randint(1, 3))]


def random_tiers(rng):
    """Return [kv_tiers] with something below host memory."""
    host_gib = rng.choice([8, 40, 300]) * 4.1 * 4096 / GIB
    tiers = {"kv_bytes_per_token": 1000.0, "d2h_gb_per_s": rng.choice([0.01, 0.2]), "h2d_gb_per_s": 0.1,
             "first_byte_us": rng.choice([0.0, 50.0])}
    return tiers | rng.choice([
        {"protocol": "vllm_offload", "cpu_gib": host_gib, "secondary": random_levels(rng),
         "eviction_policy": rng.choice(["lru", "arc", "free_queue"]), "contention": rng.choice(["fifo", "fair"]),
         "offload_prompt_only": rng.random() < 0.5, "store_threshold": rng.choice([0, 2]),
         "sync_load_budget_bytes": rng.choice([0, 0, 100_000])},
        {"protocol": "lmcache", "cpu_gib": host_gib, "chunk_tokens": rng.choice([16, 32]),
         "async_loading": rng.random() < 0.5, "secondary": random_levels(rng)},
        {"protocol": "hicache", "ratio": rng.choice([0.3, 2.0]), "page_tokens": 16,
         "prefetch_threshold": rng.choice([0, 64]), "secondary": random_levels(rng)},
        {"protocol": "kvbm", "g2_gib": host_gib, "g3_gib": host_gib * 3, "g3_is_shared": rng.random() < 0.5},
        {"protocol": "mooncake_store", "buffer_gib": host_gib, "pool_gib": host_gib * 3, "ssd_gib": host_gib * 9,
         "lease_s": rng.choice([0.0, 0.2]), "pool_gb_per_s": 0.05}])


def serve(data, fast_forward):
    """Return the cluster and what came of it."""
    layers = Layers(Source("experiment", ""))
    layers.merge(data | {"engine": data["engine"] | {"fast_forward": fast_forward}}, Source("experiment", ""))
    prepared = assemble.prepare(resolve(layers))
    cluster = assemble.build(prepared, NO_SINK)
    return cluster, cluster.run()
