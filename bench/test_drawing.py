"""Drawing of workloads, to requests in the engine's form."""
import csv
import json
import time
from statistics import median

import numpy as np
import pytest
from pairs import cpu_s

from simulator.core.random_streams import RandomStreams
from simulator.workload.build import build_workload
from simulator.workload.clients.servegen import ServeGen, ServeGenParameters, Span
from simulator.workload.column_options import DEFAULT_OPTIONS
from simulator.workload.columns import in_arrival_order

pytestmark = pytest.mark.benchmark(group="drawing", timer=time.process_time)
CLIENTS, WINDOWS, DATASETS = 162, 2016, 56          # of the largest published pool, m-large
RATE_PER_S = 100.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Return a folder of that size in ServeGen's format: few clients send most; 600 lengths each."""
    folder = tmp_path_factory.mktemp("pool")
    shares = np.arange(1, CLIENTS + 1) ** -1.0
    lengths = {"input_tokens": str({100 + 7 * i: 1 / 600 for i in range(600)}),
               "output_tokens": str({10 + i: 1 / 600 for i in range(600)})}
    dataset = json.dumps({str(21_600 * i): lengths for i in range(DATASETS)})
    for client, rate in enumerate((RATE_PER_S * shares / shares.sum()).tolist()):
        with open(folder / f"chunk-{client}-trace.csv", "w", encoding="ascii", newline="") as file:
            csv.writer(file).writerows((600 * i, rate, 1.4, "Weibull", 0.74, 1.0) for i in range(WINDOWS))
        (folder / f"chunk-{client}-dataset.json").write_text(dataset)
    return str(folder)


@pytest.mark.parametrize("top", [0, CLIENTS], ids=["all", "by_rate"])
def test_servegen(pool, top, benchmark, report):
    given = ServeGen(ServeGenParameters(path=pool, servegen=Span(duration_s=3600.0, top=top)))
    times_s, sizes = [], set()

    def draw():
        times_s.append(cpu_s(lambda: sizes.add(len(_built(given)))))

    benchmark.pedantic(draw, rounds=5)

    (size,) = sizes
    assert abs(size / (RATE_PER_S * 3600) - 1) < 0.02
    report.add(f"ServeGen, {CLIENTS} clients, an hour{', the busiest sought' if top else ''}",
               f"{median(times_s):.2f} s", "<= 1 s", f"{size} requests")


def _built(given):
    return build_workload(in_arrival_order(given.columns(RandomStreams(0), DEFAULT_OPTIONS)))
