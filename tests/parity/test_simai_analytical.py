"""SimAI_analytical, both its builds, to its last printed digit: every row, under `convention = "simai"`.

A case is a folder with a command.txt of one of its programs, that program's EndToEnd.csv and the workload that the
command names. Left out, as the program itself prints garbage there, is where it divides by zero or wraps a negative
time around:
  - the tensor group has one rank (automatic bandwidth);
  - the command does not say how many cards a node has (automatic);
  - the ranks of a node that share cards are more than the cards, so that each gets none (automatic);
  - the bandwidth of the collective is null in busbw.yaml.
Totals that such a row enters are not compared either.
"""
import csv
from collections import Counter
from typing import NamedTuple

import pytest

from simulator.registry import load
from simulator.study.busbw_yaml import read_busbw_yaml
from simulator.study.collective_command import time_workload
from simulator.study.training_workload import read_workload
from support import simai

OPTIONS = {
    "-g_p_s": ("gpus_per_node", int), "-n_p_s": ("nics_per_node", int), "-nv": ("nvlink_gb_per_s", float),
    "-nic": ("nic_gb_per_s", float), "-g_type": ("gpu_type", str), "-nic_t": ("nic_type", str),
    "-tp_o": ("tensor_overlap", float), "-ep_o": ("expert_overlap", float), "-dp_o": ("data_overlap", float),
    "-pp_o": ("pipeline_overlap", float),
}
KNOWN = {*OPTIONS, "-r", "-busbw"}      # where results go; the file is busbw.yaml of the case
PHASES = ("forward", "weight_gradient", "input_gradient")       # in the order of the program's columns
LARGEST_US = 1e15       # beyond: a negative time that wrapped around
PRINTED = 5.01e-3       # half of the last of two digits, and what float32 adds to that
CASES = simai.cases("analytical")

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {simai.FOLDER}")
every_case = pytest.mark.parametrize("case", CASES, ids=simai.case_name)


class Run(NamedTuple):
    workload: object
    parameters: object
    is_automatic: bool  # bandwidths, worked out by the program
    num_cards: int      # of a node, as the program had it
    num_gpus: int
    rows: list          # of EndToEnd.csv
    took: object        # TrainingTime


def run(case):
    options = simai.options(case)
    if reason := simai.left_out(case, KNOWN):
        pytest.skip(reason)
    table = {"pipeline_overlap": 1.0, "convention": "simai"}
    table |= {key: type_(options[option]) for option, (key, type_) in OPTIONS.items() if option in options}
    is_automatic = not (case / "busbw.yaml").exists()
    if not is_automatic:
        table |= read_busbw_yaml(case / "busbw.yaml")
    busbw = load("collective", "busbw")
    groups = type(busbw.Parameters().tensor)
    table |= {name: groups(**table[name]) for name in ("tensor", "expert", "data") if name in table}
    parameters = busbw.Parameters(**table)
    workload = read_workload(simai.workload_path(case))
    rows = list(csv.reader((case / "EndToEnd.csv").read_text().splitlines()))
    num_gpus = int(options["-g"])
    return Run(workload, parameters, is_automatic, parameters.nics_per_node or 0, num_gpus, rows,
               time_workload(workload, parameters, num_gpus))


def is_garbage(phase, run):
    """Say whether the rule of this page leaves the communication of a phase out."""
    if not phase.kind:
        return False
    if not run.is_automatic:
        return is_null(phase, run)
    tensor, expert, node = run.workload.tensor, run.workload.expert, run.parameters.gpus_per_node
    data = run.num_gpus // (tensor * run.workload.pipeline)
    size, stride = {"tensor": (tensor, 1), "expert": (expert, tensor), "data": (data, tensor),
                    "data_expert": (data // expert, tensor * expert)}[phase.group]
    if 1 < phase.num_bytes < 1 << 20:       # takes a fixed time
        return False
    if size == 1:
        return phase.group == "tensor"
    leaves_node = phase.group.startswith("data") or size * stride > node
    return run.num_cards < 1 or (leaves_node and run.num_cards // min(stride, node) < 1)


def is_null(phase, run):
    given = {"tensor": run.parameters.tensor, "data": run.parameters.data, "data_expert": run.parameters.expert,
             "expert": run.parameters.expert}[phase.group]
    is_one_node = run.num_gpus == run.parameters.gpus_per_node
    if phase.group.startswith("data") and not is_one_node:
        return getattr(given, "all_reduce" if phase.kind == "all_reduce" else "all_gather") is None
    return phase.group == "tensor" and getattr(given, phase.kind) is None


def phases_of(run):
    """Yield (compute, exposed, total, two bandwidths) as printed, the phase and our time, of each phase of each row."""
    for row, operation, layer in zip(run.rows[3:], run.workload.operations, run.took.layers, strict=True):
        assert row[0] == layer.name
        for i, name in enumerate(PHASES):
            yield (row[2 + i], row[5 + i], *row[8 + 3 * i:11 + 3 * i]), getattr(operation, name), getattr(layer, name)


def census():
    """Return how many collectives were recorded, and why how many of them are left out."""
    runs = [run(case) for case in CASES if not simai.left_out(case, KNOWN)]
    phases = [(phase, each) for each in runs for _, phase, _ in phases_of(each) if phase.kind]
    return len(phases), Counter("the program prints garbage" for phase in phases if is_garbage(*phase))


@every_case
def test_every_row_agrees_to_the_last_digit(case):
    found = run(case)
    for number, (printed, phase, took) in enumerate(phases_of(found)):
        ours = [f"{us:.0f}" for us in (took.compute_us, took.exposed_us, took.total_us)]
        asked = 1 if is_garbage(phase, found) else 3
        assert ours[:asked] == list(printed[:asked]), (number // 3, PHASES[number % 3], phase)


@every_case
def test_totals_and_their_shares_agree_to_the_last_digit(case):
    found = run(case)
    if any(is_garbage(phase, found) for _, phase, _ in phases_of(found)):
        pytest.skip("a row of which the program prints garbage enters the totals")
    took = found.took

    parts = [*(took.exposed_us[group] for group in ("data", "data_expert", "tensor", "expert")), took.pipeline_us,
             took.bubble_us, took.compute_us, took.communication_us]
    ours = [f"{us:.0f} ({us / took.total_us:.2%})" for us in parts] + [f"{took.total_us:.0f}"]
    assert ours == [cell.strip() for cell in found.rows[1][1:]]


@every_case
def test_bandwidths_agree_to_the_printed_digits(case):
    found = run(case)
    for printed, phase, took in phases_of(found):
        if phase.kind and took.total_us > 0.0 and not is_garbage(phase, found):
            theirs = [float(each) for each in printed[3:]]
            assert [took.algbw, took.busbw] == pytest.approx(theirs, abs=PRINTED, rel=1e-6)


@every_case
def test_what_is_left_out_is_garbage_indeed(case):
    found = run(case)
    for printed, phase, _ in phases_of(found):
        if is_garbage(phase, found):
            total, algbw, busbw = (float(cell) for cell in printed[2:])
            assert total > LARGEST_US or total <= 0.0 or algbw != algbw or busbw <= 0.0, (phase, printed)
