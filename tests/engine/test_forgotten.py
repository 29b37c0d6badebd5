"""What a process had loaded, compiled or encoded goes with it when it stops, and stays when its link is lost."""
import pytest

import simulator

BASE = """
latency = {backend = "linear"}
[engine]
num_gpu_blocks = 1000
max_model_len = 4000
%s
[workload]
type = "trace"
path = "trace.csv"
[cluster.health]
detection_delay_s = %g
[[failures]]
kind = "%s"
which = 0
at_s = 3.0
duration_s = 1.0
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens,"
LORA = "async_scheduling = false\n[engine.lora]\nadapter_mb = 100\nh2d_gb_per_s = 1\nstep_factor = 1"
BLIS = """scheduler = "blis"
[engine.lora]
adapter_capacity = 2
adapters = [{id = "a", rank = 8}]
load_base_latency_us = 100000"""
MASKS = "async_scheduling = false\n[engine.structured_outputs]\ncompile_ms = 500\nmask_us = 0"
ENCODER = "async_scheduling = false\n[engine.encoder]\nus_per_embedding = 1000"
TIMES = [("stop", 0.1), ("stop", 10.0), ("link", 10.0)]     # the gateway knows, or never learns of it


@pytest.fixture
def run(tmp_path):
    def run(extra, kind, delay_s, *rows, more=None):
        (tmp_path / "trace.csv").write_text("\n".join([HEAD + rows[0], *rows[1:]]) + "\n")
        (tmp_path / "e.toml").write_text(BASE % (extra, delay_s, kind))
        return simulator.run(tmp_path / "e.toml", more or {}, out=tmp_path / "out")

    return run


@pytest.mark.parametrize(("kind", "delay_s"), TIMES)
def test_adapters_are_loaded_again(run, kind, delay_s):
    result = run(LORA, kind, delay_s, "adapter", "0,100,2,a", "1,100,2,a", "5,100,2,a")

    assert result.summary["adapters"]["loads"] == (2 if kind == "stop" else 1)
    # 100 MB at 1 GB/s before 5.01 ms and 2 ms of the prompt
    waits_ns = (result.requests["first_token_ns"] - result.requests["arrival_ns"]).tolist()
    assert waits_ns == [107_010_000, 7_010_000, 107_010_000 if kind == "stop" else 7_010_000]


@pytest.mark.parametrize(("kind", "delay_s"), TIMES)
def test_adapters_of_blis_are_loaded_again(run, kind, delay_s):
    result = run(BLIS, kind, delay_s, "adapter", "0,100,2,a", "1,100,2,a", "5,100,2,a")

    assert result.summary["adapters"]["loads"] == (2 if kind == "stop" else 1)
    waits_ns = (result.requests["scheduled_ns"] - result.requests["arrival_ns"]).tolist()
    assert waits_ns == [100_000_000, 0, 100_000_000 if kind == "stop" else 0]


@pytest.mark.parametrize(("kind", "delay_s"), TIMES)
def test_grammars_are_compiled_again(run, kind, delay_s):
    result = run(MASKS, kind, delay_s, "grammar", "0,100,2,g", "1,100,2,g", "5,100,2,g")

    waits_ns = (result.requests["first_token_ns"] - result.requests["arrival_ns"]).tolist()
    assert waits_ns == [507_010_000, 7_010_000, 507_010_000 if kind == "stop" else 7_010_000]


@pytest.mark.parametrize(("kind", "delay_s"), TIMES)
def test_images_are_encoded_again(run, kind, delay_s):
    prompts = ("0,100,2,one:50/cat.img:50", "1,100,2,two:50/cat.img:50", "5,100,2,three:50/cat.img:50")
    result = run(ENCODER, kind, delay_s, "prompt", *prompts)

    assert result.requests["encoded_tokens"].tolist() == [50, 0, 50 if kind == "stop" else 0]


def test_a_grammar_asked_for_while_the_replica_is_down_is_compiled_when_it_is_up_again(run):
    # Nobody notices the stop; the request that came meanwhile is given up with the others, and comes again at 4 s.
    result = run(MASKS, "stop", 10.0, "grammar", "0,100,2,g", "3.5,100,2,g")

    assert result.requests["first_token_ns"].tolist() == [507_010_000, 4_507_010_000]
    assert result.requests["retries"].tolist() == [0, 1]
