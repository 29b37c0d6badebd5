"""What a scheduler class answers: its memory, its limits, its advice; and that nobody else answers for it."""
import numpy as np
import pytest

import simulator
from simulator import registry
from simulator.assembly import assemble, pool, site
from simulator.assembly.site import Site
from simulator.config.load import load_experiment, resolved_toml
from simulator.domain import records
from simulator.domain.encoder_profile import ItemLimits
from simulator.domain.kv_size import vllm_lines
from simulator.domain.memory_reserve import reserve_of
from simulator.errors import InputErrors
from simulator.kv.counting import CountingKV
from simulator.results.memory import NO_SINK
from simulator.scheduling.blis import Blis
from simulator.scheduling.contract import MemoryNeeds, ReplicaContext, SchedulerFacts
from simulator.scheduling.python_scheduler import PythonScheduler
from simulator.scheduling.vllm import Vllm
from support.small_models import deploy

SCHEDULERS = [registry.load("scheduler", name) for name in registry.KINDS["scheduler"].entries]
PLIGHTS = ("livelock", "too large", "passed over", "left alone")
DEPLOYED = """
latency.backend = "linear"
model.name = "llama-3.1-8b"
hardware.name = "h100-sxm-80gb"
[workload]
type = "synthetic"
num_requests = 8
arrival = {process = "constant", rate_per_s = 1e6}
prompt_tokens = {distribution = "constant", tokens = 100}
output_tokens = {distribution = "constant", tokens = 4}
"""


@pytest.fixture
def write(tmp_path):
    """Return a function that writes an experiment with these keys of [engine]."""
    def write(**engine):
        lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
                 for key, value in engine.items()]
        (tmp_path / "a.toml").write_text("\n".join([DEPLOYED, "[engine]", *lines]))
        return tmp_path / "a.toml"

    return write


@pytest.mark.parametrize(("engine", "overrides", "is_async"), [
    ({}, {}, True),
    ({"vllm_version": "0.32"}, {}, True),
    ({"vllm_version": "0.10"}, {}, False),
    ({}, {"topology.pipeline_parallel": 2}, True),
    ({"vllm_version": "0.10"}, {"topology.pipeline_parallel": 2}, False),
    ({}, {"topology.pipeline_parallel": 2, "engine.speculative": {"num_tokens": 2}}, True),
    ({"async_scheduling": False}, {}, False),
    ({}, {"engine.speculative": {"num_tokens": 2}}, True),                                # n-grams
    ({"vllm_version": "0.32"}, {"engine.speculative": {"num_tokens": 2}}, False),
    ({"vllm_version": "0.32"}, {"topology.pipeline_parallel": 2, "engine.speculative": {"num_tokens": 2}}, False),
    ({}, {"engine.speculative": {"num_tokens": 2, "num_lookahead_tokens": 2}}, True),
    ({"vllm_version": "0.10", "async_scheduling": True}, {}, True)])
def test_async_scheduling_is_as_the_version_of_vllm_has_it(write, engine, overrides, is_async):
    experiment = load_experiment(write(scheduler="vllm", **engine), overrides)

    assert experiment.engine.parameters.async_scheduling is is_async
    assert f"async_scheduling = {str(is_async).lower()}\n" in resolved_toml(experiment)


def test_pools_schedule_asynchronously_or_not_by_their_own_versions(write):
    pools = {"pools": [{"name": "new"}, {"name": "old", "engine": {"vllm_version": "0.10"}}]}
    experiment = load_experiment(write(scheduler="vllm"), pools)

    assert [pool.engine.parameters.async_scheduling for pool in experiment.all_pools()] == [True, False]


def test_vllm_holds_back_its_null_block_and_others_do_not_by_default():
    held_back = {kind: kind.facts(kind.Parameters()).blocks_held_back for kind in (Vllm, Blis, PythonScheduler)}

    assert held_back == {Vllm: 1, Blis: 1, PythonScheduler: 0}


@pytest.mark.parametrize(("scheduler", "usable"), [("vllm", 99), ("blis", 99)])
def test_requests_get_the_blocks_that_are_not_held_back(scheduler, usable, write):
    result = simulator.run(write(scheduler=scheduler, num_gpu_blocks=100, max_model_len=1000))

    assert result.summary["kv_cache"]["num_blocks"] == usable


def test_memory_is_planned_for_batches_not_for_the_running_list():
    parameters = Vllm.Parameters(max_num_seqs=64, max_num_active_seqs=8, max_num_batched_tokens=512)

    assert Vllm.memory(parameters, deploy(), 1000) == MemoryNeeds(
        512, 64, copies_latent_up=True, reserve=reserve_of(num_graphs=19 + 11), spared_blocks=1,
        why_not_few="vLLM 0.33.0 refuses to start", lines=vllm_lines, items=ItemLimits())
    assert Blis.memory(Blis.Parameters(max_num_seqs=64), None, 1000) == MemoryNeeds(2048, 64)


def test_a_scheduler_that_does_not_know_its_batches_needs_blocks_that_are_given(write, monkeypatch):
    class Mine(PythonScheduler):
        @staticmethod
        def facts(parameters):
            return SchedulerFacts()

    load = registry.load
    monkeypatch.setattr(registry, "load", lambda kind, *given: Mine if kind == "scheduler" else load(kind, *given))

    with pytest.raises(InputErrors, match=r"engine\.num_gpu_blocks: Mine does not say how many sequences and tokens"):
        Site(load_experiment(write())).check()
    assert Site(load_experiment(write(num_gpu_blocks=9))).check().num_gpu_blocks == 9


def test_start_up_rules_of_vllm_are_those_of_vllm_alone(write):
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 2}
    with pytest.raises(InputErrors, match=r"engine\.max_num_batched_tokens: expected at least max_num_seqs = 4"):
        simulator.run(write(scheduler="vllm", **limits))

    # blis knows no such rule: 8 prompts of 100 tokens, 2 in an iteration, take 400 of them
    result = simulator.run(write(scheduler="blis", **limits))
    assert result.summary["requests"]["completed"] == 8
    assert result.summary["iterations"] >= 400


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("plight", PLIGHTS)
def test_every_scheduler_has_advice_for_every_plight(kind, plight):
    assert kind.advice(kind.__new__(kind, None, context()), plight)


def context():
    return ReplicaContext(kv=CountingKV(4, 4), requests=np.zeros(1, records.REQUEST),
                          demands=np.zeros(1, records.DEMAND), max_model_len=16, prompts_use_outputs=False,
                          enable_prefix_caching=False)


def test_advice_of_vllm_is_given_by_vllm_alone(write):
    # 7 usable blocks hold 112 tokens, the prompt is 100: 13 outputs outgrow them
    grown = {"workload.output_tokens.tokens": 50, "workload.num_requests": 1}
    few = write(scheduler="vllm", vllm_version="0.10", num_gpu_blocks=8)
    _, told = simulator.run(few, grown).summary["diagnosis"]

    assert told.endswith("it needs 8 KV blocks for 113 tokens, the replica has 7; vLLM refuses to start with such a "
                         "max_model_len: lower it or give more blocks")
    for plight in PLIGHTS:
        advice = Blis.advice(Blis.__new__(Blis, None, context()), plight)
        assert "vLLM" not in advice and "scheduler_reserve_full_isl" not in advice


def test_models_and_memory_plans_are_made_once(write, monkeypatch):
    made, plan, model = [], site.plan_within, pool.latency_model
    monkeypatch.setattr(site, "plan_within", lambda *given: made.append("plan") or plan(*given))
    monkeypatch.setattr(pool, "latency_model", lambda *given: made.append("latency") or model(*given))

    experiment = load_experiment(write())
    assemble.build(assemble.prepare(experiment), NO_SINK).run()

    assert sorted(made) == ["latency", "plan"]
