"""`busbw` in SimAI's convention against an executable model of its program, on layouts nobody recorded."""
import importlib.util
import random
from functools import cache

import numpy as np
import pytest

from simulator.registry import load
from simulator.study.collective_command import time_workload
from simulator.study.training_workload import Operation, Phase, TrainingWorkload
from support.goldens import GOLDENS

MODEL = GOLDENS.parent / "reference" / "simai_analytical_model.py"
TABLES = [GOLDENS / "simai" / "ratio" / f"{name}_ratio.csv" for name in ("nic", "nvlink", "ata")]
GROUPS = {"tensor": "TP", "expert": "EP", "data": "DP", "data_expert": "DP_EP"}
KINDS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
         "all_to_all": "alltoall"}
BUSBW = load("collective", "busbw")
MIB, GIB = 1 << 20, 1 << 30

pytestmark = pytest.mark.skipif(not all(path.exists() for path in (MODEL, *TABLES)),
                                reason=f"needs {MODEL} and the tables of {TABLES[0].parent}")


@cache
def model():
    spec = importlib.util.spec_from_file_location("simai_analytical_model", MODEL)
    module = importlib.util.module_from_spec(spec)
    module.open = lambda path: path.read_text().splitlines()        # its own leaves the files open
    spec.loader.exec_module(module)
    return module, tuple(module.load(table) for table in TABLES)


class Layout:
    """A job, its nodes and its links, drawn at random."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.node = draw.choice([4, 8, 8, 8, 16, 64, 72])
        self.cards = draw.choice([1, 2, 3, 4, 8, 16, self.node])
        self.tensor, self.expert = draw.choice([1, 2, 4, 8, 16, 32]), draw.choice([1, 2, 3, 4, 8, 9, 16, 64])
        self.pipeline = draw.choice([1, 1, 2, 4])
        self.gpus = self.tensor * self.pipeline * self.expert * draw.choice([1, 2, 3, 4, 16, 32])
        self.nvlink, self.nic = draw.choice([(360.0, 48.5), (370.8, 23.5), (100.0, 100.0), (741.6, 97.3)])
        self.parameters = BUSBW.Parameters(
            convention="simai", gpus_per_node=self.node, nics_per_node=self.cards, nvlink_gb_per_s=self.nvlink,
            nic_gb_per_s=self.nic, tensor_overlap=draw.choice([0.0, 0.3]), expert_overlap=draw.choice([0.0, 0.8]),
            data_overlap=draw.choice([0.0, 0.25]), pipeline_overlap=draw.choice([1.0, 0.7]))
        data = self.gpus // (self.tensor * self.pipeline)
        self.sizes = {"tensor": self.tensor, "expert": self.expert, "data": data, "data_expert": data // self.expert}

    def expected_ns(self, group, kind, num_bytes):
        """Return the model's nanoseconds; None where the program prints garbage."""
        module, tables = model()
        size = self.sizes[group]
        if size == 1:           # SimAI divides by zero in a tensor group of one; the others are free
            return None if group == "tensor" and not 1 < num_bytes < MIB else 0
        return module.coll_ns(KINDS[kind], GROUPS[group], num_bytes, self.tensor, size, self.expert, self.node,
                              self.cards, self.nvlink, self.nic, R=tables)


def random_bytes(draw):
    return draw.choice([0, 1, 2, MIB - 1, MIB, draw.randrange(2, MIB), draw.randrange(MIB, 64 * MIB),
                        draw.randrange(16 * MIB, 16 * GIB), (16 * MIB) << draw.randrange(11)])


@pytest.mark.parametrize("seed", range(200))
def test_a_collective_of_any_layout_takes_the_nanoseconds_of_the_model(seed):
    layout, draw = Layout(seed), random.Random(-seed)
    busbw = BUSBW.for_training(layout.parameters, layout.tensor, layout.expert, layout.pipeline, layout.gpus)

    for group in GROUPS:
        for kind in KINDS:
            for num_bytes in [random_bytes(draw) for _ in range(10)]:
                expected = layout.expected_ns(group, kind, num_bytes)
                if expected is not None:
                    assert busbw.whole_ns(group, kind, num_bytes) == expected, (group, kind, num_bytes, vars(layout))


def test_the_random_layouts_reach_what_they_are_for():
    layouts = [Layout(seed) for seed in range(200)]

    shared = [each for each in layouts if each.cards < each.node]
    assert any(each.expected_ns("data", "all_reduce", MIB) is None for each in shared)      # no card left for a rank
    assert any(each.expected_ns("data", "all_reduce", MIB - 1) for each in shared)          # but a fixed time
    assert {each.sizes["data"] > 1 for each in layouts} == {False, True}


# ---- a whole iteration of thousands of layers

def random_workload(layout, seed, num_layers):
    draw = random.Random(seed)

    def phase(groups, default):
        if draw.random() < 0.3:
            return Phase(draw.randrange(10**6), "", default, 0.0)
        kind, group, num_bytes = draw.choice(list(KINDS)), draw.choice(groups), draw.randrange(4096, 256 * MIB)
        if layout.expected_ns(group, kind, num_bytes) is None:      # of that SimAI prints garbage
            num_bytes = draw.randrange(4096, MIB)
        return Phase(draw.randrange(10**6), kind, group, num_bytes)

    operations = [Operation(draw.choice(["embedding_layer", "layer"]), phase(["tensor", "expert"], "tensor"),
                            phase(["tensor", "expert"], "tensor"), phase(["data", "data_expert"], "data"))
                  for _ in range(num_layers)]
    return TrainingWorkload(operations, layout.tensor, layout.expert, layout.pipeline, draw.choice([1, 2]),
                            draw.choice([1, 8]), layout.gpus, draw.choice([0.0, 50331648.0]))


def expected_row(layout, workload):
    """Return what SimAI prints of an iteration, us. Rules: ../shared/specs/simai.md, C.1."""
    single, given = np.float32, layout.parameters
    printed = dict.fromkeys(["data", "data_expert", "tensor", "expert", "pipeline", "bubble", "compute"], 0.0)
    for operation in workload.operations:
        whole = [layout.expected_ns(phase.group, phase.kind, phase.num_bytes) if phase.kind else 0
                 for phase in operation[1:]]
        layer = "expert" if operation.forward.group == "expert" else "tensor"
        accounts = (layer, layer, operation.weight_gradient.group)
        overlaps = [given.expert_overlap if layer == "expert" else given.tensor_overlap] * 2 + [given.data_overlap]
        for account, ns, overlap in zip(accounts, whole, overlaps, strict=True):
            printed[account] += int(single(ns) * (single(1) - single(overlap))) / 1e3
        compute = sum(phase.compute_ns for phase in operation[1:])
        printed["compute"] += compute / 1e3
        if operation.name != "embedding_layer":
            printed["bubble"] += (compute + whole[0] + whole[1]) / 1e3
    slots = workload.micro_batches * workload.virtual_stages
    printed["bubble"] *= (workload.pipeline - 1) / slots
    overlap = single(given.pipeline_overlap)
    us = int(2 * slots * (workload.pipeline_bytes / GIB / float(overlap) * 1e9) / 1e3)
    printed["pipeline"] = int(single(us) * (single(1) - overlap))
    return printed


@pytest.mark.parametrize("seed", range(30))
def test_totals_of_thousands_of_layers_agree_to_the_last_printed_digit(seed):
    layout = Layout(seed)
    workload = random_workload(layout, seed, 3000)
    expected = expected_row(layout, workload)

    took = time_workload(workload, layout.parameters, layout.gpus)

    ours = took.exposed_us | {"pipeline": took.pipeline_us, "bubble": took.bubble_us, "compute": took.compute_us}
    assert {name: f"{us:.0f}" for name, us in ours.items()} == {name: f"{us:.0f}" for name, us in expected.items()}
