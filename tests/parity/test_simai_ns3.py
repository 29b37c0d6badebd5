"""SimAI_simulation: collectives that SimAI 1.6 ran in NS-3, against the flow-level network.

NS-3 simulates every packet with DCQCN; a flow-level network knows no queues, and its rings go in lock-step. That costs:
  - Rings that share a link drift apart in NS-3, packet by packet, and one sends while another waits its send latency.
    In lock-step all wait at once: too long by what drifting hides. Nothing can be hidden below the time without any
    send latency, nor below the time without any bytes: that bounds it, on any case.
  - Acknowledgements, and packets of others in front of the last one of a message: too short by a percent or two.
Seen so far where no paths collide: -1.5 to +1.8 % on the cases below and the same networks at other sizes, +3.4 %
where 16 GPUs on two servers share 8 rings (668.6 us in NS-3, ../shared/specs/simai.md, D.1), +3.2 % on a 1 MiB ring
with a send latency of 3 us. So 5 % is what the error is held to.

Where paths collide, the time is a matter of luck: NS-3's is held to be an ordinary draw among other seeds', and seed
0, which makes NS-3's own choice of paths, to come nearer to it than such draws come to each other. That paths collide
shows in other seeds changing the time. Found (us, and error):

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
                            4 after 64 MiB      1462.71   1454.40   -0.57 %
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
from collections import Counter
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from simulator.collective.flow import steps as decompose
from simulator.collective.flow.network import FlowNetwork
from simulator.collective.flow.topology import read_topology
from support import simai

CASES = simai.cases("simulation")
PHASES = {"forward": (3, 8), "input": (6, 14), "weight": (9, 11)}      # column in the workload, in EndToEnd.csv
NVLS_GPUS, NVLS_LEAST = ("H100", "H800"), 8
LEAST_BYTES = 4096          # smaller messages are sent as these
TOLERANCE = 0.05
WAITS = 0.03                # acknowledgements and waits in queues, of the time: twice what was seen
SEEDS = range(1, 41)
ORDINARY = 3.0              # standard deviations: one draw of 370 lies beyond
ANOTHER_PATH = 1e-6         # of the time; what rounding makes is far below

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {simai.FOLDER}")


class Row(NamedTuple):
    case: object
    number: int         # line
    phase: str
    operation: str
    group: str          # TP, EP, DP, DP_EP
    num_bytes: int
    took_us: float
    issued_us: float    # since the backward pass began; 0 of the forward pass, whose collectives run one by one
    earlier: tuple      # rows of weight gradients that were issued before it, and run before it


def rows_of(case):
    """Return the collectives of a case: gradients go through the layers backwards, those of weights queue up."""
    if simai.left_out(case, set()):
        return []
    lines = [line.split() for line in simai.workload_path(case).read_text().splitlines()[2:] if line.strip()]
    timed = [line.split(",") for line in (case / "EndToEnd.csv").read_text().splitlines()[3:]]
    rows, queued, now_us = [], (), 0.0
    for number, (words, cells) in reversed(list(enumerate(zip(lines, timed, strict=False)))):
        now_us += int(words[PHASES["weight"][0] - 1]) / 1e3
        for phase, (column, cell) in PHASES.items():
            operation, _, group = words[column].partition("_")
            if operation == "NONE":
                continue
            queues = phase == "weight"
            rows.append(Row(case, number, phase, operation, group or ("DP" if queues else "TP"),
                            max(int(words[column + 1]), LEAST_BYTES), float(cells[cell]),
                            now_us if queues else 0.0, queued if queues else ()))
            queued += (rows[-1],) if queues else ()
        now_us += int(words[PHASES["input"][0] - 1]) / 1e3
    return rows[::-1]


def name_of(row):
    return f"{simai.case_name(row.case)}-{row.number}-{row.phase}-{row.operation}-{row.num_bytes}"


def left_out(row):
    """Return why a row cannot be compared, or None."""
    setting = simai.environment(row.case)
    if "AS_SEND_LAT" not in setting:
        return "the send latency is not said"
    if row.phase == "input" and any(other.phase == "weight" for other in rows_of(row.case)):
        return "it ran while weight gradients were sent"
    if row.phase == "weight" and any(other.phase == "input" for other in rows_of(row.case)):
        return "it ran while other gradients were sent"
    return None


def groups_of(row):
    head = simai.workload_path(row.case).read_text().splitlines()[0]
    tensor, expert, gpus = (int(re.search(rf"(?<!\S){key}:? (\d+)", head)[1])
                            for key in ("model_parallel_NPU_group", "ep", "all_gpus"))
    ranks = np.arange(gpus)
    return list({"TP": ranks.reshape(-1, tensor), "DP": ranks.reshape(-1, tensor).T,
                 "EP": np.swapaxes(ranks.reshape(-1, expert, tensor), 1, 2).reshape(-1, expert),
                 "DP_EP": ranks.reshape(-1, expert * tensor).T}[row.group])


def plan_of(row, topology):
    groups, setting = groups_of(row), simai.environment(row.case)
    if row.operation == "ALLTOALL":
        return decompose.all_to_all(groups)
    gpu_type = (row.case / "topo.txt").read_text().split("\n", 1)[0].split()[-1]
    if (row.operation == "ALLREDUCE" and row.group == "TP" and setting.get("AS_NVLS_ENABLE") == "1"
            and gpu_type in NVLS_GPUS and len(groups[0]) >= NVLS_LEAST):
        return decompose.nvls(groups, [topology.num_gpus + group[0] // topology.gpus_per_server for group in groups])
    steps = decompose.all_reduce_steps if row.operation == "ALLREDUCE" else decompose.half_steps
    return decompose.ring(groups, topology.gpus_per_server, steps, relays=setting.get("AS_PXN_ENABLE") == "1")


@cache
def alone_us(row, seed=0, send_latency=True, num_bytes=None):
    """Return the time of a row's collective by itself; without send latency, or of other bytes, on request."""
    case = row.case
    topology = read_topology(case / "topo.txt")
    latency_us = float(simai.environment(case)["AS_SEND_LAT"]) if send_latency else 0.0
    conf = (case / "SimAI.conf").read_text() if (case / "SimAI.conf").exists() else "PACKET_PAYLOAD_SIZE 9000"
    payload = float(re.search(r"PACKET_PAYLOAD_SIZE (\d+)", conf)[1])
    network = FlowNetwork(topology, send_latency_ns=latency_us * 1e3, seed=seed, packet_bytes=payload)
    network.checks = True
    return network.simulate(plan_of(row, topology), num_bytes or row.num_bytes) / 1e3


def simulate_us(row, **changes):
    """Return the time from a row's issue to its end: what was issued before and has not ended runs first."""
    free_us = 0.0
    for each in (*row.earlier, row):
        free_us = max(free_us, each.issued_us) + alone_us(each, **changes)
    return free_us - row.issued_us


def collides(row):
    """Say whether the choice of paths changes the time."""
    own = simulate_us(row)
    return any(abs(simulate_us(row, seed=seed) / own - 1.0) > ANOTHER_PATH for seed in SEEDS[:3])


ROWS = [row for case in CASES for row in rows_of(case)]
every_row = pytest.mark.parametrize("row", ROWS, ids=name_of)


def census():
    """Return how many collectives were recorded, and why how many of them are left out."""
    return len(ROWS), Counter(reason for row in ROWS if (reason := left_out(row)))


def compared(row, *, colliding):
    if reason := left_out(row):
        pytest.skip(reason)
    if collides(row) != colliding:
        pytest.skip("its paths collide" if not colliding else "no paths collide")
    return row


@every_row
def test_what_does_not_collide_agrees_within_five_percent(row):
    compared(row, colliding=False)

    assert abs(simulate_us(row) / row.took_us - 1.0) <= TOLERANCE


@every_row
def test_what_does_not_collide_lies_between_lock_step_and_all_that_drifting_could_hide(row):
    compared(row, colliding=False)

    least = max(simulate_us(row, send_latency=False), simulate_us(row, num_bytes=1))
    assert least * (1.0 - WAITS) <= row.took_us <= simulate_us(row) * (1.0 + WAITS)


@every_row
def test_what_collides_is_an_ordinary_draw_and_its_own_paths_come_near_it(row):
    compared(row, colliding=True)

    draws = [simulate_us(row, seed=seed) for seed in SEEDS]
    assert abs(row.took_us - np.mean(draws)) <= ORDINARY * np.std(draws)
    assert abs(row.took_us - simulate_us(row)) <= TOLERANCE * row.took_us + np.std(draws)


@pytest.mark.parametrize("case", CASES, ids=simai.case_name)
def test_every_recorded_time_of_a_case_is_a_row(case):
    if reason := simai.left_out(case, set()):
        pytest.skip(reason)
    lines = (case / "EndToEnd.csv").read_text().splitlines()[3:]
    layers = [line.split(",") for line in lines if not line.startswith(("SUM", "total"))]

    assert sorted(row.took_us for row in rows_of(case)) == sorted(
        float(cells[cell]) for cells in layers for _, cell in PHASES.values() if float(cells[cell]) > 0.0)
