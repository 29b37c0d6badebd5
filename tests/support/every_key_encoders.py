"""As every_key_sections.py, for pools that encode for others and what comes with them."""
from support.every_key import acts
from support.every_key_policies import IMAGES

POOLS = [{"name": "e", "role": "encode", "replicas": 2, "engine": {"encoder": {"us_per_embedding": 50.0}}},
         {"name": "pd", "replicas": 2}]
APART = IMAGES | {"pools": POOLS, "embeddings": {"bandwidth_gb_per_s": 0.01, "bytes_per_embedding": 1e3}}
OF_MODEL = APART | {"model__name": "llama-3.1-8b", "engine__max_model_len": 512}
ENCODERS = {
    "embeddings.bandwidth_gb_per_s": acts(0.01, 0.02, **APART),
    "embeddings.latency_us": acts(0.0, 9000.0, **APART),
    "embeddings.bytes_per_embedding": acts(1e3, 2e3, **OF_MODEL),
    "cluster.encode.policy": acts("round_robin", "random", **APART),
}
