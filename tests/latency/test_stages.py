"""Times of pipeline stages: who has what, and that they add up to an iteration."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collective.busbw.model import Busbw
from simulator.latency.aicb.model import Aicb
from simulator.latency.aicb.tables import Layout, file_name
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.operators.model import Operators
from simulator.latency.python_model import PythonLatencyModel
from simulator.latency.roofline.model import Roofline
from support.operator_profiles import write_tables
from support.small_models import DENSE, NODE, deploy

SHARES = {
    "mfu_prefill": 0.5, "mfu_decode": 0.5, "mfu_attention": 0.5, "bandwidth_efficiency": 0.5, "link_efficiency": 0.5,
    "kernel_latency_us": 1.0, "attention_latency_us": 10.0, "collective_latency_us": 100.0}
BATCH = {"prefill": [(100, 20)], "decode": [50, 50]}


def linear(**prices):
    return Linear(LinearParameters(**{"base_us": 0.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                                      "per_context_token_us": 0.0} | prices))


# ---- any model

def test_a_model_that_knows_nothing_of_stages_is_divided_by_layers():
    model = linear(base_us=12.0)
    model.set_stages((1, 3, 2))

    assert model.num_stages == 3
    assert model.predict_stages_ns(decode=[10]) == [2000, 6000, 4000]


def test_without_stages_there_is_one():
    model = linear(base_us=12.0)

    assert model.num_stages == 1
    assert model.predict_stages_ns(decode=[10]) == [12_000]


def test_stages_can_be_set_anew():
    model = linear(base_us=12.0)
    model.set_stages((1, 1))
    model.set_stages((2, 1, 1))

    assert model.predict_stages_ns(decode=[10]) == [6000, 3000, 3000]


@given(ns=st.integers(3, 10**9), layers=st.lists(st.integers(1, 200), min_size=2, max_size=16))
def test_stages_take_an_iteration_together(ns, layers):
    model = linear(base_us=ns / 1e3)
    model.set_stages(layers)
    stages_ns = model.predict_stages_ns(decode=[1])

    assert len(stages_ns) == len(layers)
    assert min(stages_ns) >= 1
    if ns >= 10 * sum(layers):              # where no stage is below a nanosecond
        assert sum(stages_ns) == model.predict_iteration_ns(decode=[1])
        for taken_ns, count in zip(stages_ns, layers):
            assert taken_ns == pytest.approx(ns * count / sum(layers), abs=1)


def test_a_model_in_python_is_divided_too():
    class Constant(PythonLatencyModel):
        def batch_us(self, shape):
            return 7.0

    model = Constant()
    model.set_stages((3, 4))
    assert model.predict_stages_ns(decode=[1]) == [3000, 4000]


def test_a_fault_of_the_model_is_raised():
    class Broken(PythonLatencyModel):
        def batch_us(self, shape):
            raise ArithmeticError("no time")

    model = Broken()
    model.set_stages((1, 1))
    with pytest.raises(ArithmeticError, match="no time"):
        model.predict_stages_ns(decode=[1])


# ---- roofline

@pytest.mark.parametrize("with_collective", [False, True], ids=["links", "busbw"])
def test_head_and_sampler_are_of_the_last_stage_and_hand_overs_of_the_others(with_collective):
    deployment = deploy(node=NODE, pipeline_parallel=2)
    collective = Busbw(Busbw.Parameters(pipeline_gb_per_s=1.0), deployment) if with_collective else None
    model = Roofline(Roofline.Parameters(**SHARES), deployment, collective)
    model.set_stages((1, 1))
    parts = model.breakdown(**BATCH)
    last_us = 1e6 * (parts["head"] + parts["sampler"])
    handover_us = 1e6 * parts["collectives"]
    if not with_collective:                 # what starts it, 100 us, is in the constant
        handover_us += SHARES["collective_latency_us"]
    layers_us = 1e6 * model.predict(**BATCH) - last_us - handover_us
    first_ns, second_ns = model.predict_stages_ns(**BATCH)

    assert handover_us > 1.0
    assert first_ns == pytest.approx(1e3 * (layers_us / 2 + handover_us), abs=1)
    assert second_ns == pytest.approx(1e3 * (layers_us / 2 + last_us), abs=1)
    assert first_ns + second_ns == model.predict_iteration_ns(**BATCH)


# ---- operators

def test_the_same_holds_for_measured_operators(tmp_path):
    parameters = Operators.Parameters(path=str(write_tables(tmp_path)), cache_directory=str(tmp_path / "cache"))
    model = Operators(parameters, deploy(pipeline_parallel=2))
    model.set_stages((1, 1))
    parts = model.breakdown(**BATCH)
    last_ns, handover_ns = 1e9 * (parts["lm_head"] + parts["sampler"]), 1e9 * parts["send_recv"]
    first_ns, second_ns = model.predict_stages_ns(**BATCH)

    assert handover_ns > 1.0
    assert first_ns - second_ns == pytest.approx(handover_ns - last_ns, abs=2)
    assert first_ns + second_ns == model.predict_iteration_ns(**BATCH)


# ---- aicb

def tables(folder, stages):
    """Two layers, of 100 and 300 us of attention."""
    for phase in ("prefill", "decode"):
        layout = Layout(model="M", phase=phase, world_size=stages, tensor_parallel=1, pipeline_parallel=stages,
                        expert_parallel=1)
        (folder / file_name(layout, 1, 100)).write_text("0\tattention\t100000\t0\n1\tattention\t300000\t0\n")
    return str(folder)


def aicb(folder, **parameters):
    model = Aicb(Aicb.Parameters(tables=tables(folder, 2), collective_latency_us=10.0, **parameters),
                 deploy(DENSE, pipeline_parallel=2))
    model.set_stages((1, 1))
    return model


@pytest.mark.parametrize("pipeline", ["pass", "slowest_stage"])
def test_each_stage_of_aicb_has_its_own_layers(tmp_path, pipeline):
    # 10 us and a token of 128 bytes over 100 bytes/ns between the stages
    assert aicb(tmp_path, pipeline=pipeline).predict_stages_ns(decode=[101]) == [110_001, 300_000]


def test_aicb_knows_its_stages_from_its_tables(tmp_path):
    with pytest.raises(ValueError, match="aicb: 2 stages expected, found 3"):
        aicb(tmp_path).set_stages((1, 1, 1))


def test_stages_of_aicb_count_as_one_prediction(tmp_path):
    model = aicb(tmp_path)
    model.predict_stages_ns(decode=[101])
    assert model.provenance()["exact"] == 1
