"""The answer on a screen: 80 columns at most, whatever keys and values are."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.capacity.bounds import Bound, Bounds
from simulator.study.capacity.mix import Chosen, Kind, Mix
from simulator.study.capacity.point_search import Answer
from simulator.study.capacity.search import Found, Span
from simulator.study.capacity.summary_text import line_of, mix_table, table_of
from simulator.study.capacity.varied import Varied
from simulator.study.capacity.verdict import Observation, Rules, weigh
from simulator.study.telling.screen import width_of

KEYS = st.sampled_from(["ttft_ms.p99", "by_tenant.a-tenant-with-a-very-long-name.ttft_ms.p99", "goodput_share",
                        "energy.electricity_cost_per_million_output_tokens", "itl_ms.mean", "x" * 100])
VARIED = st.sampled_from(["workload.arrival.rate_per_s", "topology.replicas", "pools.0.topology.replicas",
                          "workload.parameters.clients.0.arrival.parameters.rate_per_s", "y" * 120])
VALUES = st.floats(1e-6, 1e12)


def judged(value, keys, values):
    bounds = Bounds(tuple(Bound(key, 100.0, True) for key in keys), wants_stable=False)
    seen = [Observation(seed, dict(zip(keys, values, strict=True)), 90, 100, 100) for seed in range(3)]
    return bounds, weigh(value, seen, Rules(bounds))


@given(VARIED, st.lists(KEYS, min_size=1, max_size=6, unique=True), st.lists(VALUES, min_size=1, max_size=6), st.data())
def test_the_table_of_an_answer_fits_a_screen(varied_key, keys, probes, data):
    values = data.draw(st.lists(VALUES, min_size=len(keys), max_size=len(keys)))
    bounds, verdict = judged(probes[0], keys, values)
    curve = [{"value": value, "verdict": "pass, undecided", "request_throughput": value, "request_goodput": value}
             | dict(zip(keys, values, strict=True)) | {f"{key}.ci": 1.25 for key in keys}
             for value in probes]
    for value in (None, probes[0]):
        found = Found(None if value is None else verdict, verdict, None)
        answer = Answer(value, (1.0, 1e9), found, [verdict], [verdict, verdict], True, curve,
                        {"gpus": 123_456, "requests_per_s": 1e9, "tokens_per_s_per_gpu": 1e9})
        told = table_of(answer, Varied(varied_key, Span(1e-6, 1e12), None), bounds)
        assert max(map(width_of, told.split("\n"))) <= 80
    assert max(map(width_of, line_of(verdict, varied_key).split("\n"))) <= 80


@given(st.lists(st.sampled_from(["big", "a-pool-with-a-long-name-of-forty-letters", "z" * 90, "日本" * 20]), min_size=1,
                max_size=4, unique=True), st.integers(1, 10**6))
def test_the_table_of_mixes_fits_a_screen(names, count):
    kinds = [Kind(name, 0, count, 12.5, 1.25, 8) for name in names]
    mix = Mix((count,) * len(names), 1e9, 1e9, 10**9)
    _, verdict = judged(1.0, ["ttft_ms.p99"], [500.0])
    for answer in (None, mix):
        told = mix_table(Chosen(answer, [(mix, verdict)], 12_345, []), kinds, 1e6)
        assert max(map(width_of, told.split("\n"))) <= 80


@pytest.mark.parametrize("key", ["rate", "workload.arrival.rate_per_s"])
@pytest.mark.parametrize(("goodput", "head", "shown"), [(0.5, "goodput/s", "0.50"), (0.0, "goodput/s", "0.00"),
                                                        (None, "requests/s", "1.00")])      # None: no [slo]
def test_a_table_that_fits_stays_in_one_part_and_calls_goodput_only_what_is(key, goodput, head, shown):
    bounds, verdict = judged(1.0, ["ttft_ms.p99"], [5.0])
    curve = [{"value": 1.0, "verdict": "pass", "request_throughput": 1.0, "request_goodput": goodput,
              "ttft_ms.p99": 5.0, "ttft_ms.p99.ci": 0.1}]
    answer = Answer(1.0, None, Found(verdict, None, "to"), [verdict], [], None, curve, {})

    table = table_of(answer, Varied(key, Span(0.1, 1.0), None), bounds).split("\n\n")[0].splitlines()
    assert table[0].split() == [key, head, "ttft_ms.p99", "verdict"] and len(table) == 2
    assert table[1].split()[1] == shown
