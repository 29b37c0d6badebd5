"""Models with caches of several sizes in a block, in experiment files."""
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors

HEAD = """
num_layers = 6
hidden_size = 512
vocab_size = 32000
dtype = "bfloat16"
max_position_embeddings = 131072
mlp = {intermediate_size = 512}
"""
COMPRESSED = """{{kind = "csa_hca", num_heads = 8, head_dim = 512, rope_head_dim = 64, query_rank = 256,
output_rank = 64, output_groups = 8, window = 128, ratio = {ratio}{more}}}""".replace("\n", " ")
INDEXER = ", indexer = {num_heads = 8, head_dim = 128, top_k = 512}"
V4 = HEAD + f"""
attention = {COMPRESSED.format(ratio=4, more=INDEXER)}
parts.hca.mixer = {COMPRESSED.format(ratio=128, more="")}
parts.near.mixer = {COMPRESSED.format(ratio=0, more="")}
layer_kinds = [{{layers = [0, 1], parts = ["near", "mlp"]}}, {{layers = [2, 4], parts = ["attention", "mlp"]}},
               {{layers = [3, 5], parts = ["hca", "mlp"]}}]
"""
GLM = HEAD + """
layer_pattern = "LLF"
[attention]
kind = "multi_head_latent"
num_heads = 8
query_rank = 256
kv_rank = 512
nope_head_dim = 128
rope_head_dim = 0
value_head_dim = 128
indexer = {num_heads = 8, head_dim = 128, top_k = 512, pool = 16}
[linear_attention]
kind = "kda"
num_heads = 8
head_dim = 128
conv_kernel = 4
"""
MODELS = {"v4": V4, "glm": GLM}
ENGINE = """
[model]
name = "model.toml"
[hardware]
name = "h100-sxm-80gb"
[engine]
max_model_len = 8192
max_num_seqs = 8
[latency]
backend = "linear"
"""
DRAWN = """
[workload]
type = "synthetic"
num_requests = 40
arrival = {process = "poisson", rate_per_s = 20.0}
prompt_tokens = {distribution = "uniform", min = 100, max = 3000}
output_tokens = {distribution = "uniform", min = 1, max = 100}
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a model with overrides."""
    def of(model, overrides=(), workload=DRAWN):
        (tmp_path / "model.toml").write_text(MODELS[model])
        path = tmp_path / "packed.toml"
        path.write_text(ENGINE + workload)
        return simulator.run(path, overrides=dict(overrides))
    return of


@pytest.mark.parametrize(("model", "more"), [
    ("v4", {}), ("v4", {"engine.enable_prefix_caching": False}), ("v4", {"topology.pipeline_parallel": 2}),
    ("v4", {"engine.num_gpu_blocks": 6000}), ("glm", {"engine.enable_prefix_caching": False})])
def test_results_do_not_depend_on_how_they_are_computed(run, model, more):
    fast, stepwise = run(model, more), run(model, more | {"engine.fast_forward": False})

    assert fast.summary["requests"]["completed"] == 40
    np.testing.assert_array_equal(fast.requests, stepwise.requests)
    np.testing.assert_array_equal(fast.iterations, stepwise.iterations)


def test_a_prefix_is_found_to_the_ends_of_the_largest_blocks(run, tmp_path):
    (tmp_path / "shared.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
        "0,1600,1,s:1600\n5,1600,1,s:1600\n10,1600,1,s:1600\n")
    found = run("v4", workload='[workload]\ntype = "trace"\npath = "shared.csv"\n').requests["cached_tokens"]

    assert found.tolist() == [0, 1536, 1536]        # six blocks of 256


def test_hits_beside_a_ring_are_refused(run):
    with pytest.raises(InputErrors, match=r"engine\.enable_prefix_caching: expected false, found true: hits beside"):
        run("glm")


def test_one_block_table_does_not_hold_caches_of_several_sizes(run):
    with pytest.raises(InputErrors, match=r'engine\.scheduler: expected vllm, found sglang: model keeps caches'):
        run("v4", {"engine.scheduler": "sglang"})
