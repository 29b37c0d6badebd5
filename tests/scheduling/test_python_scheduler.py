"""Schedulers written in Python: the documented ones, their parity with the compiled one, and what is checked."""
import inspect
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import simulator
from scheduling.lab import Fcfs, serve
from simulator import registry
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.scheduling.python_scheduler import PythonScheduler
from support import engine
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload

PAGE = Path(simulator.__file__).with_name("scheduling") / "README.md"
EXPERIMENT = """
engine = {scheduler = "my_lab:ShortestFirst", max_num_seqs = 8, max_num_batched_tokens = 256, chunk_tokens = 64,
          max_model_len = 1000, num_gpu_blocks = 40}
latency = {backend = "linear"}
%s
[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 50.0}
prompt_tokens = {distribution = "uniform", min = 10, max = 200}
output_tokens = {distribution = "uniform", min = 1, max = 60}
"""


def examples():
    """Return the Python examples of the page."""
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


# ---- the documented ones

@pytest.fixture
def my_lab(tmp_path, monkeypatch):
    """Write the example of the page beside an experiment; return a function that writes the experiment."""
    example, = examples()
    (tmp_path / "my_lab.py").write_text(example)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my_lab", raising=False)

    def write(more=""):
        (tmp_path / "a.toml").write_text(EXPERIMENT % more)
        return tmp_path / "a.toml"

    yield write
    sys.modules.pop("my_lab", None)


def test_the_example_of_the_page_is_short():
    assert examples()[0].count("\n") <= 40


@pytest.mark.parametrize("more", [
    "", "[topology]\nreplicas = 3",
    "[topology]\nreplicas = 2\n[[failures]]\nkind = 'stop'\nat_s = 0.3\nduration_s = 0.2",
    "[topology]\nreplicas = 2\n[cluster.rescheduling]\npolicy = 'rebalance'\ninterval_s = 0.05\n"
    "kv_bytes_per_token = 1e3\nbandwidth_gb_per_s = 1.0"])
def test_the_example_of_the_page_serves_all(more, my_lab):
    result = simulator.run(my_lab(more))

    assert result.summary["requests"]["completed"] == 60
    assert not result.summary["diagnosis"]


def test_the_example_serves_the_shortest_prompt_first(my_lab):
    my_lab()
    kind = registry.load("scheduler", "my_lab:ShortestFirst", [str(my_lab().parent)])
    recording = serve(kind, plain_workload([0] * 3, [12, 4, 8], 1), parameters=kind.Parameters(max_num_seqs=1))

    # one at a time, 5 ms each: 4, 8 and 12 tokens
    assert recording.requests["completed_ns"].tolist() == [15_000_000, 5_000_000, 10_000_000]


def test_the_example_in_the_docstring_runs():
    lines = inspect.getdoc(PythonScheduler).splitlines()
    namespace = {"PythonScheduler": PythonScheduler}
    exec("\n".join(line[4:] for line in lines if line.startswith("    ")), namespace)

    recording = serve(namespace["OneByOne"], plain_workload([0] * 2, [4, 4], 2))

    # two iterations of 5 ms each, one request after the other
    assert recording.requests["completed_ns"].tolist() == [10_000_000, 20_000_000]


# ---- parity with the compiled one

PLAIN = {"policy": "fcfs", "enable_chunked_prefill": True, "long_prefill_token_threshold": 0, "watermark": 0.0,
         "async_scheduling": False, "num_speculative_tokens": 0, "spec_lookahead": 0, "max_num_scheduled_tokens": None,
         "max_num_active_seqs": None, "vllm_version": "0.32"}


def both(description, **options):
    """Return the recordings of `vllm` and of its imitation; the null block is vLLM's."""
    description["options"] |= PLAIN
    scenario = load(description)
    parameters = Fcfs.Parameters(
        max_num_seqs=scenario.parameters.max_num_seqs, whole=scenario.parameters.scheduler_reserve_full_isl,
        max_num_batched_tokens=scenario.parameters.max_num_batched_tokens)
    usable = scenario.cache | {"num_gpu_blocks": scenario.cache["num_gpu_blocks"] - 1}
    twin = replace(scenario, parameters=parameters, cache=usable)
    return engine.run(scenario, **options), engine.run(twin, scheduler=Fcfs, **options)


@pytest.mark.parametrize("seed", range(30))
def test_an_imitation_of_vllm_decides_what_vllm_decides(seed):
    expected, found = both(random_description(seed))

    assert found.steps == expected.steps            # blocks, hits, evictions, free queue, iteration by iteration
    assert np.array_equal(found.requests, expected.requests)
    assert found.diagnosis == expected.diagnosis or "stuck" in expected.diagnosis[0]


@pytest.mark.parametrize("seed", range(6))
def test_an_imitation_of_vllm_takes_as_long(seed):
    description, replicas = random_traffic(seed)

    expected, found = both(description, details=False, replicas=replicas)

    assert np.array_equal(found.requests, expected.requests)
    for name in set(records.ITERATION.names) - {"spare"}:       # which is nobody's
        assert np.array_equal(found.iterations[name], expected.iterations[name]), name
    assert found.token_times == expected.token_times


def test_the_random_scenarios_preempt_share_and_time_out():
    recordings = [both(random_description(seed))[1] for seed in range(30)]
    traffic = [both(random_traffic(seed)[0], details=False)[1] for seed in range(6)]

    assert sum(recording.requests["preemptions"].sum() for recording in recordings) > 20
    assert sum(recording.requests["cached_tokens"].sum() for recording in recordings) > 20
    assert any((recording.requests["status"] == records.TIMED_OUT).any() for recording in traffic)


# ---- classes that cannot be used

def load_class(tmp_path, monkeypatch, text):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "my_schedulers", raising=False)
    (tmp_path / "my_schedulers.py").write_text(text)
    try:
        return registry.load("scheduler", "my_schedulers:Mine", [str(tmp_path)])
    finally:
        sys.modules.pop("my_schedulers", None)


def test_a_python_class_on_the_compiled_base_is_told_the_ways_that_work(tmp_path, monkeypatch):
    with pytest.raises(InputErrors, match=r"subclass .*PythonScheduler and override form_batch"):
        load_class(tmp_path, monkeypatch,
                   "from simulator.scheduling.base import Scheduler\nclass Mine(Scheduler):\n    pass")


def test_parameters_that_lack_what_the_engine_needs_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputErrors, match="its Parameters lacks max_num_seqs: let it inherit PythonScheduler"):
        load_class(tmp_path, monkeypatch, (
            "import msgspec\nfrom simulator.scheduling.python_scheduler import PythonScheduler\n"
            "class Keys(msgspec.Struct, frozen=True):\n    max_num_batched_tokens: int = 3\n"
            "class Mine(PythonScheduler):\n    Parameters = Keys\n    def form_batch(self, batch, now_ns): pass"))


def test_a_class_that_forms_no_batch_is_refused_at_load(tmp_path, monkeypatch):
    with pytest.raises(InputErrors, match="it overrides no form_batch"):
        load_class(tmp_path, monkeypatch, (
            "from simulator.scheduling.python_scheduler import PythonScheduler\n"
            "class Mine(PythonScheduler):\n    def form_bach(self, batch, now_ns): pass"))


def test_pipeline_stages_are_refused(my_lab):
    with pytest.raises(InputErrors, match=r'expected 1 with engine\.scheduler = "my_lab:ShortestFirst", found 2'):
        simulator.run(my_lab("[topology]\npipeline_parallel = 2"))


def test_keys_of_ones_own_are_read_and_checked(my_lab):
    assert msgspec.structs.asdict(simulator.api.load_experiment(my_lab()).engine.parameters)["chunk_tokens"] == 64
    with pytest.raises(InputErrors, match=r"engine.chunk_token: unknown key; did you mean chunk_tokens\?"):
        simulator.run(my_lab(), {"engine.chunk_token": 3})
