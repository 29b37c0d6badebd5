"""Requests that are drawn in chunks are those that are drawn at once."""
import mmap

import numpy as np
import pytest

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload import chunks
from simulator.workload.drawing import timing
from simulator.workload.load import load
from simulator.workload.types import drawn_chunks
from simulator.workload.types.drawn_chunks import LENGTHS, PROCESSES, chunked
from support.every_key import read

COUNT, ROWS = 10_000, mmap.PAGESIZE // 4
KEYS = {
    "constant": {"tokens": 7}, "uniform": {"max": 900}, "normal": {"mean": 90.5, "std": 40.5},
    "lognormal": {"mean": 90.5, "cv": 1.5}, "exponential": {"mean": 90.5}, "zipf": {"max": 900},
    "pareto_lognormal": {"alpha": 1.5, "xm": 9.0, "mu": 4.0, "sigma": 1.0, "mix_weight": 0.5},
    "empirical": {"values": [3, 9, 200], "weights": [1.0, 2.5, 0.5]}}
ARRIVALS = {"burst": {"size": 7, "interval_s": 0.25}, "gamma": {"rate_per_s": 9.5, "cv": 2.5},
            "weibull": {"rate_per_s": 9.5, "cv": 2.5}}


def section(process, length, arrival=(), keys=()):
    engine = {"num_gpu_blocks": 99, "max_model_len": 99}
    usual = {"process": process} | ARRIVALS.get(process, {"rate_per_s": 9.5})
    return read({"engine": engine, "latency": {"backend": "linear"}, "workload": {
        "type": "synthetic", **(keys or {"num_requests": COUNT, "time_scale": 1.25}),
        **({} if arrival is None and "rate" in keys else {"arrival": arrival or usual}),
        "prompt_tokens": {"distribution": length, "min": 1} | KEYS[length],
        "output_tokens": {"distribution": length} | KEYS[length]}}).workload


class Kept:
    def __init__(self):
        self.parts = []

    def take(self, part):
        self.parts.append(part)

    def take_gaps(self, gaps):
        pass


@pytest.mark.parametrize("length", LENGTHS)
def test_each_property_goes_on_in_its_stream(monkeypatch, length):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", ROWS)
    given = section(PROCESSES[LENGTHS.index(length) % len(PROCESSES)], length)
    whole, workload = load(given, 11), chunked(given, 11)
    while workload.chunks.draw() < COUNT:
        pass
    assert workload.requests.tobytes() == whole.requests.tobytes()
    assert workload.demands.tobytes() == whole.demands.tobytes()
    assert workload.outcomes.tobytes() == whole.outcomes.tobytes()
    assert list(workload.request_ids) == list(whole.request_ids)
    texts = whole.requests["prompt_tokens"].astype(np.int64) + np.maximum(whole.outcomes["output_tokens"], 1)
    assert texts.max() <= workload.chunks.longest_text


DUE = {
    "an end": ({"process": "gamma", "rate_per_s": 9.5, "cv": 2.0}, {"duration_s": 555.5}),
    "an end, or a number": ({"process": "poisson", "rate_per_s": 9.5}, {"duration_s": 5555.5, "num_requests": 4321}),
    "days": ({"process": "gamma", "cv": 2.0}, {
        "duration_s": 555.5, "rate": {"kind": "diurnal", "mean_per_s": 9.5, "period_s": 99.0}}),
    "a number by days": (None, {
        "num_requests": 5432, "time_scale": 0.25, "rate": {"kind": "diurnal", "mean_per_s": 9.5, "period_s": 99.0}}),
    "states": ({"process": "poisson"}, {"duration_s": 333.25, "rate": {
        "kind": "mmpp", "rates_per_s": [1.0, 30.0], "leave_per_s": [0.5, 0.25]}}),
    "a number in states": (None, {"num_requests": 5432, "rate": {
        "kind": "mmpp", "rates_per_s": [1.0, 30.0], "leave_per_s": [0.5, 0.25]}}),
    "a table": (None, {"num_requests": 10**6, "duration_s": 444.5, "rate": {
        "kind": "piecewise", "times_s": [0.0, 99.0, 222.0], "rates_per_s": [5.0, 0.0, 20.0], "interpolate": "linear"}}),
    "a spike": (None, {"duration_s": 444.5, "rate": {
        "kind": "spike", "base_per_s": 9.5, "spikes": [{"at_s": 99.0, "duration_s": 33.0, "factor": 4.0}]}})}


@pytest.mark.parametrize("name", DUE)
def test_requests_come_until_an_end_and_at_rates_that_change(monkeypatch, name):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", ROWS)
    monkeypatch.setattr(timing, "BLOCK", 99)
    arrival, keys = DUE[name]
    given = section("poisson", "uniform", arrival, keys)
    whole, workload = load(given, 11), chunked(given, 11)
    assert len(workload) == len(whole) > ROWS
    while workload.chunks.draw() < len(whole):
        pass
    assert workload.requests.tobytes() == whole.requests.tobytes()
    assert workload.outcomes.tobytes() == whole.outcomes.tobytes()


@pytest.mark.parametrize(("keys", "text"), [
    ({"duration_s": 1e-9}, "no request arrives before 1e-09 s"), ({"duration_s": 1e9}, "more than 1000000 requests"),
    ({"num_requests": 5000, "rate": {"kind": "piecewise", "times_s": [0.0, 9.0], "rates_per_s": [9.5, 0.0]}},
     "ends after 81 requests")])
def test_too_few_and_too_many_are_refused(monkeypatch, keys, text):
    monkeypatch.setattr(drawn_chunks, "MAX_REQUESTS", 10**6)
    monkeypatch.setattr(timing, "MAX_REQUESTS", 10**6)
    given = section("poisson", "uniform", {"process": "poisson"} if "rate" in keys else None, keys)
    found = []
    for draw in (load, chunked):
        with pytest.raises(InputErrors, match=text) as caught:
            draw(given, 11)
        found.append(str(caught.value.faults[0]).split(":")[0])
    assert found[0] == found[1]


def test_rows_go_in_order_once_no_iteration_can_hold_them(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", ROWS)
    workload, gaps = chunked(section("constant", "uniform"), 1), WeightedSamples()
    held = workload.chunks
    held.taker, column = Kept(), held.column(np.int64, lambda part: part.requests["prompt_tokens"] + 1)
    held.draw()
    held.draw()
    workload.requests["status"][ROWS:2 * ROWS] = records.COMPLETED
    held.sum_up(gaps)
    assert not held.taker.parts                 # the oldest request goes on
    workload.requests["status"][:ROWS] = records.FAILED
    held.sum_up(gaps)
    assert [len(part) for part in held.taker.parts] == [ROWS, ROWS]
    last_ns = int(workload.requests["arrival_ns"][2 * ROWS - 1])
    held.give_up(last_ns)
    assert column[0] > 0                        # an iteration that began then may hold rows
    held.give_up(last_ns + 1)
    for rows in (column, workload.requests, workload.outcomes):
        assert not rows[:2 * ROWS].view(np.uint8).any()
    assert held.draw() == 3 * ROWS
    assert (held.num_given_up, held.most_held) == (2 * ROWS, 2 * ROWS)
    rest = held.rest(workload, gaps)
    assert list(rest.request_ids) == list(range(2 * ROWS, 3 * ROWS))
    assert len(held.taker.parts) == 3


@pytest.mark.parametrize("shared", [
    {"num_tokens": 50, "num_prompts": 30, "popularity": "zipf", "share": 0.6}, {"num_tokens": 9},
    {"num_tokens": 9, "num_prompts": 7, "num_questions": 5}, {"num_tokens": 9, "num_prompts": 7, "num_questions": 500}])
def test_shared_texts_are_those_of_a_whole_draw(monkeypatch, shared):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", ROWS)
    given = section("poisson", "uniform", keys={"num_requests": COUNT, "system_prompts": shared})
    whole, workload = load(given, 11), chunked(given, 11)
    while workload.chunks.draw() < COUNT:
        pass
    (begins, counts), (own_begins, own_counts) = (
        (each.demands["segments_begin"].astype(np.int64), each.demands["num_segments"]) for each in (whole, workload))
    for place in range(int(counts.max())):
        has_one = counts > place
        assert (whole.segments[begins[has_one] + place] == workload.segments[own_begins[has_one] + place]).all()
    assert (counts == own_counts).all()
    assert (whole.requests == workload.requests).all()
    assert (workload.outcomes == whole.outcomes).all()
    public = whole.requests["prompt_tokens"] if "num_questions" in shared else np.where(
        counts > 0, shared["num_tokens"], 0)
    assert (workload.chunks.public_tokens == public).all()
    assert ((counts > 0).mean() == 1.0) == ("share" not in shared)
