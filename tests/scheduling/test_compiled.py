"""Schedulers that users compile: the documented example, and what the loop relies on."""
import importlib
import sys
from pathlib import Path

import pytest

import simulator
from scheduling.lab import serve
from simulator import registry
from simulator.domain import records
from simulator.scheduling.base import Scheduler
from simulator.scheduling.python_scheduler import PythonSchedulerParameters
from support.compiled import built
from support.workloads import plain_workload

EXPERIMENT = """
[engine]
scheduler = "whole_batches:WholeBatches"
max_num_seqs = 4
max_model_len = 1000
[model]
name = "llama-3.1-8b"
[hardware]
name = "h100-sxm-80gb"
[workload]
type = "synthetic"
num_requests = 50
arrival = {process = "poisson", rate_per_s = 20.0}
prompt_tokens = {distribution = "uniform", min = 10, max = 200}
output_tokens = {distribution = "uniform", min = 1, max = 60}
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled_scheduler")
    built([Path(__file__).parent / "compiled/whole_batches.pyx"], folder)
    yield importlib.import_module("whole_batches")
    sys.path.remove(str(folder))


@pytest.mark.slow
def test_the_documented_scheduler_serves_whole_batches(example):
    kind = registry.load("scheduler", "whole_batches:WholeBatches")
    workload = plain_workload([0] * 4, 4, [1, 3, 1, 1])

    recording = serve(kind, workload, parameters=kind.Parameters(max_num_seqs=2))

    # iterations of 5 ms: the first two take three, the others wait for both
    assert recording.requests["completed_ns"].tolist() == [5_000_000, 15_000_000, 20_000_000, 20_000_000]


@pytest.mark.slow
def test_the_documented_scheduler_keeps_room_for_declared_outputs(example):
    # 10 blocks of 4 tokens: 4 + 16 tokens are 5 blocks, 3 at a time would be 15; 4 + 40 never fit
    workload = plain_workload([0] * 4, 4, [16, 16, 16, 40])

    recording = serve(example.WholeBatches, workload)

    assert recording.requests["status"].tolist() == [records.COMPLETED] * 3 + [records.DROPPED]
    assert recording.requests["completed_ns"].tolist()[:3] == [80_000_000, 80_000_000, 160_000_000]
    assert not recording.requests["preemptions"].any()


@pytest.mark.slow
def test_the_documented_scheduler_runs_in_an_experiment(example, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(EXPERIMENT)

    result = simulator.run(file)

    assert result.summary["requests"]["completed"] == 50
    # its memory is its own answer: 16 times the tokens leave fewer blocks
    larger = simulator.run(file, {"engine.max_num_seqs": 64})
    assert larger.summary["kv_cache"]["num_blocks"] < result.summary["kv_cache"]["num_blocks"]


def test_a_scheduler_that_sets_nothing_is_refused_before_the_loop_needs_it():
    # the base itself: what is compiled would read through a queue that is not there
    with pytest.raises(TypeError, match=r"Scheduler\.__init__ must set waiting, a WaitingQueue"):
        serve(Scheduler, plain_workload(0, 4, 1), parameters=PythonSchedulerParameters())
