"""Requests that are drawn in chunks are those that are drawn at once."""
import mmap

import numpy as np
import pytest

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.workload import chunks
from simulator.workload.load import load
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


def section(process, length):
    engine = {"num_gpu_blocks": 99, "max_model_len": 99}
    return read({"engine": engine, "latency": {"backend": "linear"}, "workload": {
        "type": "synthetic", "num_requests": COUNT, "time_scale": 1.25,
        "arrival": {"process": process} | ARRIVALS.get(process, {"rate_per_s": 9.5}),
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
