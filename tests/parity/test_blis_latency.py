"""BLIS's latency models, in whole runs: every step and every request to the microsecond.

The engine runs the recorded requests under our vLLM scheduler, which forms the batches that BLIS forms as long as KV
blocks suffice; `support.blis.Case.obstacle` says where it cannot, and why. Compared are the start of every step, and of
every request first scheduling, TTFT and E2E latency. `crossmodel` was never recorded.
"""
from math import floor

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.hardware_spec import AcceleratorSpec, DenseFlops
from simulator.domain.layer_spec import Mlp, MultiHeadAttention
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from simulator.latency.blis.blackbox import Blackbox
from simulator.latency.blis.step_roofline import StepRoofline
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.python_model import PythonLatencyModel
from support import blis

# Facts of ../shared/goldens/blis/_unit. Under the coefficients of its cases an iteration takes 5000 us + 10 a sequence
# + 20 a prompt token + 0.05 a token of context.
UNIT = Deployment(
    model=ModelSpec(
        name="unit", num_layers=5, hidden_size=50, vocab_size=100, max_position_embeddings=1000, dtype="float16",
        attention=MultiHeadAttention(num_heads=1, num_kv_heads=1, head_dim=50), mlp=Mlp(intermediate_size=50)),
    accelerator=AcceleratorSpec(
        name="unit", memory_bytes=1, memory_bandwidth_bytes_per_s=1e9, dense_flops_per_s=DenseFlops(float16=1e12)))

ALL = blis.cases()
CASES = [case for case in ALL if case.obstacle() is None]
ALWAYS_COMPARED = {
    "01_basic_single", "02_burst_fcfs_limits", "03_chunked_prefill", "16_roofline_llama8b_h100", "16c_roofline_mixtral",
    "17_trained_physics_llama8b", "17c_trained_physics_scout_fp8", "31_bb_02_burst"}

pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs under {blis.FOLDER}")


class WithoutFirstHits(PythonLatencyModel):
    """A roofline as BLIS asks it: what a prompt's first chunk finds in the cache is not yet its context.

    parameters : (the roofline, the tokens that a first chunk may find).
    """

    def batch_us(self, shape):
        roofline, hits = self.parameters
        chunks = [(tokens, 0 if context in hits else context) for tokens, context, _ in shape.chunks]
        others = shape.num_decodes - 1
        return 1e6 * roofline.predict(chunks, [shape.context_tokens - others] + [1] * others if others >= 0 else [])


def deployment_of(case):
    if case.options["model"] == "unit":
        return UNIT
    model, weight_dtype = blis.MODELS[case.options["model"]]
    return Deployment(
        model=load_model(model), accelerator=load_accelerator(blis.ACCELERATORS[case.options["hardware"]]),
        weight_dtype=weight_dtype, parallelism=Parallelism(
            tensor_parallel=case.number("tp", default=1), data_parallel=case.number("dp", default=1)))


def trained_physics(case):
    """Return the model, what queues a prompt, what every output costs and what completion costs, in us."""
    gathers = case.options.get("moe-comm-backend", blis.GATHERING[0]) in blis.GATHERING
    given = TrainedPhysics.Parameters(
        beta=case.coefficients("beta-coeffs"), alpha=case.coefficients("alpha-coeffs"),
        expert_exchange="all_gather" if gathers else "all_to_all")
    model = TrainedPhysics(given, deployment_of(case))
    return model, model.host_terms(), model.completion_us


def blackbox(case):
    model = Blackbox(Blackbox.Parameters(
        beta=case.coefficients("beta-coeffs"), alpha=case.coefficients("alpha-coeffs")))
    return model, model.host_terms(), 0.0


def step_roofline(case):
    hits = {each.shared_tokens // blis.BLOCK_SIZE * blis.BLOCK_SIZE for each in case.requests}
    model = WithoutFirstHits((StepRoofline(StepRoofline.Parameters(), deployment_of(case)), hits))
    return model, {"queue_base_us": 0.0, "queue_per_prompt_token_us": 0.0, "output_token_us": 0.0}, 0.0


BACKENDS = {"trained-physics": trained_physics, "blackbox": blackbox, "roofline": step_roofline}


def run(case):
    """Return our recording of the case, the ids of its rows, and what BLIS adds to outputs and completion, in us."""
    model, host, completion_us = BACKENDS[case.options["latency-model"]](case)
    recording, ids = blis.run(case, model, lambda tokens: floor(
        host["queue_base_us"] + host["queue_per_prompt_token_us"] * tokens))
    return recording, ids, floor(host["output_token_us"]), floor(completion_us)


def differences(case, recording, ids, output_us, completion_us):
    """Yield where our run and the recorded one do not agree: where, recorded, ours."""
    steps_us = (recording.iterations["start_ns"] / 1000).tolist()
    pairs = enumerate(zip(case.step_us, steps_us))
    yield from ((f"step {number}", theirs, ours) for number, (theirs, ours) in pairs if theirs != ours)
    if len(steps_us) != len(case.step_us):
        yield "steps", len(case.step_us), len(steps_us)
    found = blis.found_results(case, recording, ids, output_us, completion_us)
    expected = blis.expected_results(case)
    yield from ((key, expected.get(key), ours) for key, ours in found.items() if expected.get(key) != ours)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_and_request_takes_what_blis_recorded(case):
    ours = run(case)
    if case.name not in ALWAYS_COMPARED and blis.overlaps_itself(ours[0]):
        pytest.skip("BLIS runs two steps of one instance at once here")

    found = list(differences(case, *ours))
    assert not found, "\n".join([f"{len(found)} differences: where, recorded, ours", *map(str, found[:10])])


def test_cases_are_left_out_for_a_reason_only():
    assert ALWAYS_COMPARED & {case.name for case in ALL} <= {case.name for case in CASES}


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ALWAYS_COMPARED][:2], ids=str)
def test_a_change_of_one_step_or_request_is_found(case):
    recording, *others = run(case)
    recording.iterations["start_ns"][3] += 1000
    recording.requests["completed_ns"][2] -= 1000

    assert [where for where, *_ in differences(case, recording, *others)] == ["step 3", "request_2"]
