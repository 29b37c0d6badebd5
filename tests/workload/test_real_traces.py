"""The recorded traces in ../shared, against the statistics published with them."""
import json
import os
from pathlib import Path

import numpy as np
import pytest

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload.build import build_workload
from simulator.workload.reading.tables import read_integer_column
from simulator.workload.types.trace import Trace, TraceParameters

TRACES = Path(os.environ.get("SIM_TRACES", Path(__file__).resolve().parents[3] / "shared/data/traces"))
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason=f"no traces in {TRACES}")

FILES = {       # name in stats.json: file, format, tokens behind a hash id
    "vidur/splitwise_conv": ("vidur/splitwise_conv.csv.gz", "csv", 0),
    "vidur/splitwise_code": ("vidur/splitwise_code.csv.gz", "csv", 0),
    "azure2023/conv": ("azure2023/AzureLLMInferenceTrace_conv.csv.gz", "azure", 0),
    "azure2023/code": ("azure2023/AzureLLMInferenceTrace_code.csv.gz", "azure", 0),
    "mooncake/conversation": ("mooncake/conversation_trace.jsonl.gz", "mooncake", 512),
    "mooncake/synthetic": ("mooncake/synthetic_trace.jsonl.gz", "mooncake", 512),
    "lmcache_agent/miniswe": ("lmcache_agent/miniswe_blk16.jsonl.gz", "mooncake", 16),
}


def build(file, name, block_size=0):
    kind = registry.load("trace_format", name)
    inner = kind.Parameters(block_size=block_size) if block_size else None
    trace = Trace(TraceParameters(path=str(TRACES / file), format=name, parameters=inner))
    return build_workload(trace.columns(RandomStreams(0)))


def stats_of(name):
    stats = json.loads((TRACES / "stats.json").read_text())
    [key] = [each for each in stats if each.startswith(name)]
    return stats[key]


@pytest.mark.parametrize("name", FILES)
def test_a_trace_has_its_published_statistics(name):
    built, stats = build(*FILES[name]), stats_of(name)

    assert len(built) == stats["rows"]
    span_s = (built.requests["arrival_ns"][-1] - built.requests["arrival_ns"][0]) / 1e9
    assert span_s == pytest.approx(stats["duration_s"], abs=1e-3)
    prompt, output = built.requests["prompt_tokens"], built.outcomes["output_tokens"]
    for values, expected in ((prompt, stats["input_tokens"]), (output, stats["output_tokens"])):
        assert values.mean() == pytest.approx(expected["mean"], abs=0.006)
        assert (values.min(), values.max()) == (expected["min"], expected["max"])


def test_the_same_trace_in_two_formats_is_the_same():
    azure, native = build(*FILES["azure2023/conv"]), build(*FILES["vidur/splitwise_conv"])

    # the native copy has whole microseconds
    assert np.abs(azure.requests["arrival_ns"] - native.requests["arrival_ns"]).max() <= 1000
    assert (azure.outcomes == native.outcomes).all()


@pytest.mark.parametrize("name", ["mooncake/conversation", "mooncake/synthetic", "lmcache_agent/miniswe"])
def test_prompts_share_as_much_as_published(name):
    built, stats = build(*FILES[name]), stats_of(name)

    # tokens in blocks seen before, over all tokens, with a cache that never forgets
    seen, hits = set(), 0
    for stream, tokens in built.segments.tolist():
        hits += tokens * (stream in seen)
        seen.add(stream)
    hit_ratio = hits / built.segments["num_tokens"].sum()
    assert hit_ratio == pytest.approx(stats["prefix_hit_ratio_infinite_cache"], abs=0.01)


def test_a_table_without_arrivals_gives_lengths():
    table = (TRACES / "samples/arxiv_summarization_300.csv").read_bytes()

    values = read_integer_column("f", table, "num_prefill_tokens")

    assert (len(values), values[0], values[1]) == (300, 3772, 2015)
