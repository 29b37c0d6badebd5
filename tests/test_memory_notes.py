"""Runs name the laws that decide over a planned KV cache, and no others."""
import pytest

from simulator.assembly.memory_notes import memory_notes
from simulator.assembly.site import sites_of
from simulator.config.load import load_experiment
from simulator.domain.memory_reserve import GRAPH_ERROR

EXPERIMENT = """
model = {{name = "{model}"}}
hardware = {{name = "h100-sxm-80gb"}}
engine = {{max_model_len = 4096, {engine}}}
workload = {{type = "trace", path = "t.csv"}}
"""


@pytest.fixture
def site(tmp_path):
    def site(model, engine=""):
        (tmp_path / "a.toml").write_text(EXPERIMENT.format(model=model, engine=engine))
        return sites_of(load_experiment(tmp_path / "a.toml"))[0].check()
    return site


def test_the_law_of_graphs_is_named_where_its_spread_is_a_good_part_of_the_cache(site):
    # 102 graphs of 64 layers: 2.0 GB, which may be 9.9, beside 7 GB of KV; of 32 layers 1.0 GB beside 51 GB
    large, small = site("qwen3-32b"), site("llama-3.1-8b", 'gpu_memory_utilization = 0.95')
    note, = memory_notes(large)
    assert note.startswith("memory: 2.0 GB for CUDA graphs follow a law of 1.7 times off in the mean, 5 at most")
    assert large.memory.graph_bytes * (GRAPH_ERROR - 1) >= 0.5 * large.memory.kv_cache_bytes
    assert small.memory.graph_bytes * (GRAPH_ERROR - 1) < 0.5 * small.memory.kv_cache_bytes and not memory_notes(small)
    assert "CUDA graphs, by a law 1.7 to 5 x off" in small.memory.explain()


@pytest.mark.parametrize("engine", ["cuda_graphs = {memory_gib = 1.8}", "num_gpu_blocks = 300",
                                    "kv_cache_memory_bytes = 2_000_000_000", 'scheduler = "sglang"'])
def test_a_size_that_no_law_decides_has_no_note(site, engine):
    assert memory_notes(site("qwen3-32b", engine)) == ()


def test_a_large_encoder_is_named(site):
    tight = "gpu_memory_utilization = 0.85, cuda_graphs = {memory_gib = 1.0}"       # 1.8 GB beside 12 GB of KV
    note, = memory_notes(site("gemma-3-27b", tight))
    assert note.startswith("memory: 1.8 GB for the encoder's profile run follow from the shape of its tower alone")
    assert not memory_notes(site("gemma-3-27b", f"{tight}, skip_mm_profiling = true"))


def test_given_blocks_that_do_not_fit_are_named_with_both_numbers(site):
    fitting = site("qwen3-32b").num_gpu_blocks
    larger, exact = (site("qwen3-32b", f"num_gpu_blocks = {fitting + more}") for more in (1, 0))
    note, = memory_notes(larger)
    assert note == (f"memory: engine.num_gpu_blocks = {fitting + 1:,} is used; the memory plan has room for "
                    f"{fitting:,}, and a server with more may run out of memory")
    assert note.removeprefix("memory: ") in larger.explain() and larger.num_gpu_blocks == fitting + 1
    assert memory_notes(exact) == () and not any("num_gpu_blocks" in line for line in exact.explain())
    nothing, = memory_notes(site("llama-3.1-405b", "num_gpu_blocks = 1000"))           # 810 GB of weights
    assert "has room for 0," in nothing
