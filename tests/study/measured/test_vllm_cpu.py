"""Measurements of a real vLLM server on two CPU cores, imported."""
import pytest

from simulator.study.measured.formats import format_of
from simulator.study.measured.source import Source
from support.goldens import GOLDENS

DATA = GOLDENS.parent / "data" / "measured_vllm_cpu"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data/measured_vllm_cpu")


def read(name):
    source = Source(str(DATA / name))
    return format_of(source).read(source)[0]


def mean_ms(values):
    values = list(values)
    return 1e3 * sum(values) / len(values)


def test_what_vllm_bench_says_of_itself_comes_out_of_its_requests():
    found = read("bench_serve.json")
    rows = found.requests

    assert len(rows) == 60
    assert not any("not the latency" in note or "from its requests" in note for note in found.notes)
    assert sum(row["messages"] - 1 for row in rows) == sum(row["output_tokens"] - 1 for row in rows) == 1380
    assert mean_ms(row["ttft_s"] for row in rows) == pytest.approx(84.510, abs=5e-4)
    assert mean_ms(row["e2el_s"] for row in rows) == pytest.approx(455.982, abs=5e-4)
    assert mean_ms((row["e2el_s"] - row["ttft_s"]) / (row["output_tokens"] - 1) for row in rows) == pytest.approx(
        16.207, abs=5e-4)
    assert sum(row["e2el_s"] - row["ttft_s"] for row in rows) / 1380 * 1e3 == pytest.approx(16.151, abs=5e-4)


@pytest.mark.parametrize(("stem", "requests", "steps", "cached"), [
    ("w7_light_q", 220, 2981, 0), ("w8_moderate_prefix_q", 300, 3721, 295 * 160)])
def test_requests_and_iterations_count_from_the_same_moment(stem, requests, steps, cached):
    found = read(f"{stem}.requests.csv")

    assert (len(found.requests), len(found.steps)) == (requests, steps)
    assert sum(row["cached_tokens"] for row in found.requests) == pytest.approx(cached, abs=5 * 160)
    assert not any("are not the times of their messages" in note for note in found.notes)
    assert sum(row["prefill_tokens"] for row in found.steps) == sum(
        row["input_tokens"] - row["cached_tokens"] for row in found.requests)
    first = found.requests[0]
    assert first["sent_s"] < found.steps[0]["start_s"] < first["sent_s"] + first["ttft_s"]
    assert found.steps[0]["prefill_tokens"] == first["input_tokens"] - first["cached_tokens"]


def test_what_vllm_prints_is_what_the_scheduler_logs():
    printed = read("w7_light_q.iteration_log.txt.gz").steps
    logged = read("w7_light_q.steps.csv").steps

    assert len(printed) == 3028                     # warming up among them
    for name in ("num_sequences", "prefill_tokens"):
        assert [row[name] for row in printed[47:]] == [row[name] for row in logged]
