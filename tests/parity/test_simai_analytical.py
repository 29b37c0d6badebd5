"""SimAI_analytical, both its builds, to its last printed digit: every row, under `convention = "simai"`.

Left out, as the program itself prints garbage there. It divides by zero or wraps a negative time around where
  - the tensor group has one rank (automatic bandwidth);
  - the ranks of a node that share cards are more than the cards, so that each gets none (automatic);
  - the bandwidth of the collective is null in busbw.yaml.
"""
import csv
import re
import shlex
from itertools import pairwise
from typing import NamedTuple

import pytest

from simulator.registry import load
from simulator.study.busbw_yaml import read_busbw_yaml
from simulator.study.collective_command import time_workload
from simulator.study.training_workload import read_workload
from support.goldens import GOLDENS

FOLDER = GOLDENS / "simai"
LAYOUTS = ("coll_", "yaml_", "overlap_", "example_", "micro_")
CASES = sorted(path for path in FOLDER.glob("*") if path.name.startswith(LAYOUTS) and (path / "EndToEnd.csv").exists())
OPTIONS = {
    "-g_p_s": ("gpus_per_node", int), "-n_p_s": ("nics_per_node", int), "-nv": ("nvlink_gb_per_s", float),
    "-nic": ("nic_gb_per_s", float), "-g_type": ("gpu_type", str), "-nic_t": ("nic_type", str),
    "-tp_o": ("tensor_overlap", float), "-ep_o": ("expert_overlap", float), "-dp_o": ("data_overlap", float),
    "-pp_o": ("pipeline_overlap", float),
}
PHASES = ("forward", "weight_gradient", "input_gradient")       # in the order of the program's columns
ROUNDED_US = 0.51       # the program prints whole microseconds
TOTAL_US = 1.0          # and adds thousands of layers up in another order
LARGEST_US = 1e15       # beyond: a negative time that wrapped around

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {FOLDER}")


class Run(NamedTuple):
    workload: object
    parameters: object
    num_gpus: int
    rows: list          # of EndToEnd.csv
    took: object        # TrainingTime


def run(case):
    words = shlex.split((case / "command.txt").read_text().splitlines()[0].split("] ")[-1])
    values = dict(pairwise(words))
    table = {"pipeline_overlap": 1.0, "convention": "simai"}
    table |= {key: type_(values[option]) for option, (key, type_) in OPTIONS.items() if option in values}
    if (case / "busbw.yaml").exists():
        table |= read_busbw_yaml(case / "busbw.yaml")
    busbw = load("collective", "busbw")
    groups = type(busbw.Parameters().tensor)
    table |= {name: groups(**table[name]) for name in ("tensor", "expert", "data") if name in table}
    parameters = busbw.Parameters(**table)
    workload = read_workload(next(path for path in case.glob("*.txt") if path.name != "command.txt"))
    rows = list(csv.reader((case / "EndToEnd.csv").read_text().splitlines()))
    num_gpus = int(values["-g"])
    return Run(workload, parameters, num_gpus, rows, time_workload(workload, parameters, num_gpus))


def is_garbage(phase, run):
    """Say whether the rule of this page leaves the communication of a phase out."""
    if not phase.kind:
        return False
    tensor, expert = run.workload.tensor, run.workload.expert
    node, cards = run.parameters.gpus_per_node, run.parameters.nics_per_node
    if cards is None:       # the build with busbw.yaml
        return is_null(phase, run)
    data = run.num_gpus // (tensor * run.workload.pipeline)
    size, stride = {"tensor": (tensor, 1), "expert": (expert, tensor), "data": (data, tensor),
                    "data_expert": (data // expert, tensor * expert)}[phase.group]
    if size == 1:
        return phase.group == "tensor"
    leaves_node = phase.group.startswith("data") or size * stride > node
    return phase.num_bytes >= 1 << 20 and leaves_node and cards // min(stride, node) < 1


def is_null(phase, run):
    given = {"tensor": run.parameters.tensor, "data": run.parameters.data, "data_expert": run.parameters.expert,
             "expert": run.parameters.expert}[phase.group]
    is_one_node = run.num_gpus == run.parameters.gpus_per_node
    if phase.group.startswith("data") and not is_one_node:
        return getattr(given, "all_reduce" if phase.kind == "all_reduce" else "all_gather") is None
    return phase.group == "tensor" and getattr(given, phase.kind) is None


def shares_us(cell):
    """Return the microseconds of a cell such as "2497 (11.28%)"."""
    return float(re.match(r"\s*(-?[\d.]+|-?nan|-?inf)", cell)[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_row_agrees_to_the_last_digit(case):
    found = run(case)
    num_compared = num_left_out = 0
    for row, operation, layer in zip(found.rows[3:], found.workload.operations, found.took.layers, strict=True):
        assert row[0] == layer.name
        for i, name in enumerate(PHASES):
            took, phase = getattr(layer, name), getattr(operation, name)
            compute, exposed, total = float(row[2 + i]), float(row[5 + i]), float(row[8 + 3 * i])
            assert took.compute_us == pytest.approx(compute, abs=ROUNDED_US)
            if is_garbage(phase, found):
                num_left_out += 1
                continue
            assert took.exposed_us == pytest.approx(exposed, abs=ROUNDED_US), (operation.name, name)
            assert took.total_us == pytest.approx(total, abs=ROUNDED_US), (operation.name, name)
            num_compared += bool(phase.kind)
    assert num_compared > num_left_out


@pytest.mark.parametrize("case", [case for case in CASES if not case.name.startswith(("coll_", "yaml_"))],
                         ids=lambda case: case.name)
def test_totals_agree_to_the_microsecond(case):
    found = run(case)
    took = found.took

    summary = [shares_us(cell) for cell in found.rows[1][1:]]

    ours = [took.exposed_us["data"], took.exposed_us["data_expert"], took.exposed_us["tensor"],
            took.exposed_us["expert"], took.pipeline_us, took.bubble_us, took.compute_us, took.communication_us,
            took.total_us]
    assert ours == pytest.approx(summary, abs=TOTAL_US)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bandwidths_agree_to_the_printed_digits(case):
    found = run(case)
    for row, operation, layer in zip(found.rows[3:], found.workload.operations, found.took.layers, strict=True):
        for i, name in enumerate(PHASES):
            took, phase = getattr(layer, name), getattr(operation, name)
            printed = row[9 + 3 * i], row[10 + 3 * i]
            # the one operation of 4 bytes is printed in another unit
            if phase.kind and took.algbw > 0.001 and not is_garbage(phase, found):
                assert [took.algbw, took.busbw] == pytest.approx([float(each) for each in printed], abs=0.006, rel=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_left_out_is_garbage_indeed(case):
    found = run(case)
    for row, operation in zip(found.rows[3:], found.workload.operations, strict=True):
        for i, name in enumerate(PHASES):
            if is_garbage(getattr(operation, name), found):
                total, algbw, busbw = (float(cell) for cell in row[8 + 3 * i:11 + 3 * i])
                assert total > LARGEST_US or total <= 0.0 or algbw != algbw or busbw <= 0.0, (operation.name, row)
