"""SimAI_simulation: collectives that SimAI 1.6 ran in NS-3, against the flow-level network.

NS-3 simulates every packet with DCQCN; a flow-level network knows no queues. Tolerances: 3 % where nothing collides,
10 % in the mean where paths collide. Seed 0 makes NS-3's own choice of paths. Found (us, and error):

    case                    collective            NS-3      ours
    ring8_H20               all-reduce 256 KiB    86.19     87.14   +1.10 %
                                       1 MiB      90.42     91.97   +1.72 %
                                       4 MiB     109.73    110.43   +0.64 %
                                      16 MiB     183.46    184.23   +0.42 %
                                      64 MiB     476.56    479.39   +0.59 %
                            all-gather 16 MiB     91.74     92.11   +0.40 %
                            reduce-scatter 16     91.92     92.11   +0.21 %
                            all-to-all 4 MiB      18.50     18.43   -0.38 %
                                       64 MiB    202.01    202.91   +0.45 %
    nvls8_H100              all-reduce 1 MiB      67.87     67.85   -0.03 %
                                       4 MiB      91.05     91.11   +0.06 %
                                      16 MiB     183.67    184.12   +0.25 %
                                      64 MiB     554.15    556.18   +0.37 %
    ring_tp8_g16_H100       all-reduce 16 MiB    192.77    194.11   +0.70 %
                                      64 MiB     681.02    686.05   +0.74 %
                                     256 MiB    2639.86   2653.84   +0.53 %
    dp2_tp8_g16_H100        all-reduce 64 MiB   1367.49   1359.70   -0.57 %
                            4 and 64 MiB        1462.71   1454.40   -0.57 %
    dp4_tp8_g32_spx32       all-reduce 16 MiB    541.41    538.18   -0.60 %
    ep8_tp2_g16_H100        all-to-all 4 MiB      50.04     49.71   -0.66 %
                                       64 MiB    685.96    682.21   -0.55 %
    ep16_tp2_g32_spx        all-to-all 32 MiB    517.35    513.56   -0.73 %
    dp4_tp8_g32_dcn32       all-reduce 16 MiB   1149.28   1195.77   +4.04 %     paths collide
                                       64 MiB   4672.33   4737.77   +1.40 %     paths collide

With other seeds than NS-3's own choice the last two take 1314 +- 98 us and 5181 +- 373 us (100 seeds): the recorded
runs are 14 % and 11 % below that mean, 1.7 and 1.4 standard deviations.
"""
import re
from typing import NamedTuple

import numpy as np
import pytest

from simulator.collective.flow import steps as decompose
from simulator.collective.flow.network import FlowNetwork
from simulator.collective.flow.topology import read_topology
from support.goldens import GOLDENS

FOLDER = GOLDENS / "simai"
CASES = sorted(path for path in FOLDER.glob("ns3_*") if (path / "EndToEnd.csv").exists())
COLLIDE = ("_dcn",)             # in the name of cases whose paths collide
TOLERANCE, MEAN_TOLERANCE = 0.03, 0.10
# (operation, bytes) that cannot be compared alone, by case, with the reason.
EXCEPTIONS = {
    "ns3_dp2_tp8_g16_H100_bw400": {
        ("ALLREDUCE", 4194304): "waited for the other all-reduce of the case: compared in their sum"},
}

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {FOLDER}")


class Row(NamedTuple):
    case: str
    operation: str
    group: str          # TP, EP, DP
    num_bytes: int
    took_us: float


def rows_of(case):
    """Return the collectives of a case, in file order."""
    lines = (case / "workload.txt").read_text().splitlines()[2:]
    timed = (case / "EndToEnd.csv").read_text().splitlines()[3:]
    rows = []
    for words, cells in zip(map(str.split, lines), (line.split(",") for line in timed), strict=False):
        if words[3] != "NONE":          # forward pass: tensor parallelism unless named
            operation, _, group = words[3].partition("_")
            rows.append(Row(case.name, operation, group or "TP", int(words[4]), float(cells[8])))
        else:                           # weight gradients: data parallelism
            rows.append(Row(case.name, words[9], "DP", int(words[10]), float(cells[11])))
    return rows


def groups_of(case, group):
    head = (case / "workload.txt").read_text().splitlines()[0]
    tensor, expert, gpus = (int(re.search(rf"{key}: (\d+)", head)[1]) for key in ("NPU_group", "ep", "all_gpus"))
    ranks = np.arange(gpus)
    return list({"TP": ranks.reshape(-1, tensor), "DP": ranks.reshape(-1, tensor).T,
                 "EP": np.swapaxes(ranks.reshape(-1, expert, tensor), 1, 2).reshape(-1, expert)}[group])


def plan_of(case, row, topology, command):
    groups = groups_of(case, row.group)
    if row.operation == "ALLTOALL":
        return decompose.all_to_all(groups)
    if row.operation == "ALLREDUCE" and "AS_NVLS_ENABLE=1" in command:
        return decompose.nvls(groups, [topology.num_gpus + group[0] // topology.gpus_per_server for group in groups])
    steps = decompose.all_reduce_steps if row.operation == "ALLREDUCE" else decompose.half_steps
    return decompose.ring(groups, topology.gpus_per_server, steps, relays="AS_PXN_ENABLE=1" in command)


def simulate_us(row, seed=0):
    """Return the time that the flow-level network gives for a row."""
    case = FOLDER / row.case
    command = (case / "command.txt").read_text()
    topology = read_topology(case / "topo.txt")
    latency_us = float(re.search(r"AS_SEND_LAT=(\d+)", command)[1])
    network = FlowNetwork(topology, send_latency_ns=latency_us * 1e3, seed=seed)
    network.checks = True
    return network.simulate(plan_of(case, row, topology, command), row.num_bytes) / 1e3


def error(row):
    return simulate_us(row) / row.took_us - 1.0


ROWS = [row for case in CASES for row in rows_of(case)]
CLEAR = [row for row in ROWS if not any(mark in row.case for mark in COLLIDE)
         and (row.operation, row.num_bytes) not in EXCEPTIONS.get(row.case, {})]
COLLIDING = [row for row in ROWS if any(mark in row.case for mark in COLLIDE)]


@pytest.mark.parametrize("row", [pytest.param(row, id="-".join(map(str, row[:4]))) for row in CLEAR])
def test_what_does_not_collide_agrees_within_three_percent(row):
    assert abs(error(row)) <= TOLERANCE


def test_what_does_not_collide_agrees_within_one_percent_in_the_mean():
    assert np.mean([abs(error(row)) for row in CLEAR]) <= 0.01


def test_two_collectives_one_after_the_other_take_their_sum():
    rows = rows_of(FOLDER / "ns3_dp2_tp8_g16_H100_bw400")

    # the first in file order is issued last, and its time runs from then to the end of both
    assert sum(map(simulate_us, rows)) == pytest.approx(rows[0].took_us, rel=TOLERANCE)


def test_what_collides_agrees_within_ten_percent_in_the_mean():
    assert len(COLLIDING) == 2
    assert np.mean([abs(error(row)) for row in COLLIDING]) <= MEAN_TOLERANCE


def test_other_choices_of_paths_lie_around_the_recorded_one():
    # What a network with collisions takes is a matter of luck: the recorded time is an ordinary draw.
    for row in COLLIDING:
        times = [simulate_us(row, seed=seed) for seed in range(1, 41)]
        assert abs(row.took_us - np.mean(times)) <= 2 * np.std(times)


def test_every_recorded_case_is_compared():
    compared = {row[:4] for row in [*CLEAR, *COLLIDING]}
    excused = {(case, operation, size) for case, found in EXCEPTIONS.items() for operation, size in found}

    assert all(row[:4] in compared or (row.case, row.operation, row.num_bytes) in excused for row in ROWS)
    assert {row.case for row in ROWS} == {case.name for case in CASES}
