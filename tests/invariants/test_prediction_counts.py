"""What the provenance of a backend counts: iterations that execute, each once, however often it was asked for them."""
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from simulator.collective.busbw.model import Busbw
from simulator.domain.data_parallel import LockStepRules
from simulator.domain.facts import load_accelerator, load_node
from simulator.latency.aicb.model import Aicb
from simulator.latency.aicb.tables import Layout, file_name
from simulator.latency.forest.model import Forest, Reading
from simulator.latency.forest.profiles import ROUNDED_OPERATORS
from simulator.latency.forest.tables import ForestTables
from simulator.latency.operators.model import Operators
from simulator.latency.overheads.attribution import Attribution
from simulator.latency.overheads.context import ContextParallel
from simulator.latency.overheads.context_costs import Exchange
from simulator.latency.overheads.drafter import Drafter
from simulator.latency.python_model import PythonLatencyModel
from simulator.latency.roofline.model import Roofline
from simulator.scheduling.vllm import VllmParameters
from support import engine
from support.operator_profiles import write_tables
from support.small_models import DENSE, MIXTURE, deploy
from support.workloads import plain_workload


class Counting(PythonLatencyModel):
    """Counts the times it is asked; 1 ms, and 1 us a prompt token."""

    asked = 0

    def batch_us(self, shape):
        self.asked += 1
        return 1000.0 + shape.prefill_tokens


def asked_and_done(**way):
    """Serve 200 requests, one in 20 ms, of 50 tokens each; return the questions and the iterations."""
    workload = plain_workload(np.arange(200) * 20_000_000, 100, 50)
    model = Counting()
    recording = engine.record(
        workload, VllmParameters(), model, details=False, num_gpu_blocks=1000, block_size=16, max_model_len=1024, **way)
    return model.asked, len(recording.iterations)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("replicas", [1, 3])
def test_every_iteration_is_asked_for_once(fast_forward, replicas):
    asked, done = asked_and_done(fast_forward=fast_forward, replicas=replicas)
    assert asked == done


def test_so_it_is_where_a_model_keeps_account():
    model, iterations = served(KeepsAccount, True, {})
    assert model.asked == model.counted == len(iterations)


def test_what_is_cut_is_asked_for_once_more_and_does_not_count():
    model, iterations = served(KeepsAccount, True, {}, coupled=True)
    num_cut = (model.asked - len(iterations)) // 2
    assert num_cut > 0
    assert model.asked == len(iterations) + 2 * num_cut
    assert model.counted == len(iterations)


def test_what_is_planned_and_cut_by_an_arrival_is_asked_for_too():
    # Replicas that are kept up to date plan beyond the next arrival, which nobody knows: of 50 tokens up to 30 in vain.
    asked, done = asked_and_done(coupled=True)
    assert done < asked <= 1.6 * done
    assert asked_and_done(coupled=True, fast_forward=False) == (done, done)


# ---- backends that keep account of what they are asked

class KeepsAccount(Counting):
    """Counts what it is told to."""

    counted = 0

    def __init__(self, *_):
        super().__init__()
        self.keeps_account = True

    def batch_us(self, shape):
        self.counted += self.weight
        return super().batch_us(shape)

    def provenance(self):
        return {"exact": self.counted}


def forest(ways, collective=None):
    """Return tables of up to 4 sequences, contexts of 80 and chunks of 64: what is larger lies outside."""
    contexts = np.arange(0, 81, 16.0)
    tables = ForestTables(
        tokens=dict.fromkeys((*ROUNDED_OPERATORS, "attn_kv_cache_save", "all_reduce", "send_recv"),
                             np.arange(65.0) / 10),
        decode=np.outer(np.arange(5.0), contexts) / 100, prefill=np.add.outer(contexts, np.arange(65.0)) / 100,
        kv_granularity=16)
    return Forest(Forest.Parameters(), deploy(**ways), collective, Reading(tables))


def layers(folder):
    """Write tables of layers, of up to 4 sequences of 100 to 120 tokens; return the folder."""
    layout = Layout("M", 1, 1, 1, 1, "decode")
    for phase, sizes, lengths in (("decode", (1, 4), (100, 120)), ("prefill", (1,), (10, 100))):
        for size in sizes:
            for length in lengths:
                rows = [f"{layer}\t{name}\t{1000 * (size + length)}\t0\n"
                        for layer in (0, 1) for name in ("attention", "mlp")]
                (folder / file_name(layout._replace(phase=phase), size, length)).write_text("".join(rows))
    return folder


def of_links(**ways):
    """Return a deployment over NVLink, and a collective model of it, which remembers."""
    site = {"node": load_node("dgx-h100"), "accelerator": load_accelerator("h100-sxm-80gb")}
    deployment = deploy(MIXTURE if "data_parallel" in ways else DENSE, **site, **ways)
    return deployment, Busbw(Busbw.Parameters(), deployment)


def roofline(ways):
    """Return the roofline on two ranks, with a collective model."""
    deployment, collective = of_links(**{"tensor_parallel": 2} | ways)
    return Roofline(Roofline.Parameters(), deployment, collective)


def shared_contexts(ways):
    """Return decodes whose contexts two ranks share, and what these exchange by a collective model."""
    deployment, collective = of_links(tensor_parallel=2)
    exchange = Exchange(kind="all_gather", layers=2, token_bytes=256.0, of_prompts=True)
    model = Roofline(Roofline.Parameters(), deployment, collective)
    return ContextParallel(model, 2, 1, [exchange], (1,), 1, collective)


def drafting(ways):
    """Return a target whose drafter takes a share of its time."""
    model = forest(ways)
    if ways:
        model.set_stages([1, 1])
    return Drafter(model, 2, 0.1, 0.0, 0.0)


MODELS = {
    "python": lambda folder, ways: KeepsAccount(),
    "forest": lambda folder, ways: forest(ways),
    "forest, collectives": lambda folder, ways: forest({"tensor_parallel": 2} | ways, of_links(
        **{"tensor_parallel": 2} | ways)[1]),
    "aicb": lambda folder, ways: Aicb(Aicb.Parameters(tables=str(layers(folder))), deploy(**ways)),
    "operators": lambda folder, ways: Operators(Operators.Parameters(
        path=str(write_tables(folder)), cache_directory=str(folder)), deploy(**ways)),
    "roofline, collectives": lambda folder, ways: roofline(ways),
    "shared contexts": lambda folder, ways: shared_contexts(ways),
    "drafts": lambda folder, ways: drafting(ways),
}


class Way(NamedTuple):
    """How a cluster runs.

    ways : degrees of parallelism. setup : of the pool and the plan. but : models that do not go with it.
    """

    ways: dict[str, int]
    setup: dict[str, Any]
    but: tuple[str, ...] = ()


WAYS = {
    "alone": Way({}, {}),
    "kept up to date": Way({}, {"coupled": True, "replicas": 2}),
    "async": Way({}, {"coupled": True, "asynchronous": True}),
    "stages": Way({"pipeline_parallel": 2}, {"coupled": True}, ("aicb", "shared contexts")),
    "async stages": Way({"pipeline_parallel": 2}, {"coupled": True, "asynchronous": True}, ("aicb", "shared contexts")),
    "ranks": Way({}, {"replicas": 2, "ranks": 2, "lock_step": LockStepRules(), "coupled": True}),
    "horizon": Way({}, {"coupled": True, "horizon_ns": 777_777_777}),
}


def served(make: Callable[[], Any], fast_forward: bool, ways: dict[str, int], asynchronous=False, **setup):
    """Serve 40 requests, one in 30 ms, of up to 50 tokens each; return the model, and its iterations."""
    workload = plain_workload(np.arange(40) * 30_000_000, 60, 10 + np.arange(40) % 41)
    model = make()
    if ways:
        model.set_stages([1, 1])
    recording = engine.record(
        workload, VllmParameters(async_scheduling=asynchronous), model, details=False, num_gpu_blocks=1000,
        block_size=16, max_model_len=1024, fast_forward=fast_forward, **setup)
    return model, recording.iterations


def counts_of(model):
    """Return what a model has counted, and of it what is of iterations."""
    told = model.provenance()
    collective = told.get("collective", {})
    return told, sum(told.get(name, 0) for name in ("exact", "interpolated", "extrapolated", "nearest", "roofline",
                                                    "formula")) or sum(collective.values())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_iterations_count_however_often_they_are_asked_for(name, way, tmp_path):
    ways, setup, but = WAYS[way]
    if name in but:
        pytest.skip("they do not go together")
    fast, slow = (served(lambda: MODELS[name](tmp_path, ways), fast, ways, **setup) for fast in (True, False))

    (told, counted), iterations = counts_of(slow[0]), slow[1]
    assert len(fast[1]) == len(iterations)
    num_executed = int((iterations["stage"] == 0).sum())
    assert counted > 0
    assert told == fast[0].provenance()
    assert fast[0].warnings() == slow[0].warnings()
    if "collective" not in told:                # at a horizon one may execute still
        assert num_executed <= counted <= num_executed + ("horizon_ns" in setup)
    elif "horizon_ns" not in setup:
        assert counted % num_executed == 0


@pytest.mark.parametrize("way", ["alone", "kept up to date", "async", "stages", "ranks"])
def test_the_time_of_operators_is_that_of_iterations_that_execute(way):
    ways, setup, _ = WAYS[way]

    def watched():
        models = forest(ways), forest(ways)
        for model in models if ways else ():
            model.set_stages([1, 1])
        return Attribution(models[0], [("all", models[1])])

    fast, slow = (served(watched, fast, ways, **setup) for fast in (True, False))

    assert fast[0].times_ns() == slow[0].times_ns()
    if way == "alone":
        assert fast[0].times_ns()["all"] == pytest.approx(slow[1]["duration_ns"].sum(), abs=len(slow[1]))
