"""BLIS's latency models, in whole runs: every step and every request to the microsecond.

The engine runs the recorded requests under our vLLM scheduler, which forms the batches that BLIS forms as long as KV
blocks suffice; `support.blis.Case.latency_obstacle` says where it cannot, and why. Compared are the start of every
step, and of every request first scheduling, TTFT and E2E latency. `crossmodel` was never recorded.
"""
from math import floor

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.blis.blackbox import Blackbox
from simulator.latency.blis.step_roofline import StepRoofline
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.python_model import PythonLatencyModel
from support import blis
from support.blis_flags import unknown_flags
from support.blis_models import accelerator_named, model_named, write_accelerator, write_model

ALL = blis.cases()
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


def deployment_of(case, folder):
    given, hardware = case.file("model-config-folder"), case.file("hardware-config")
    model, weight_dtype = (write_model(given / "config.json", folder), None) if given else model_named(
        case.settings["model"])
    name = case.settings["hardware"]
    accelerator = write_accelerator(hardware, name, folder)[0] if hardware else accelerator_named(name)
    return Deployment(
        model=load_model(model), accelerator=load_accelerator(accelerator), weight_dtype=weight_dtype,
        parallelism=Parallelism(tensor_parallel=case.number("tp"), data_parallel=case.number("dp")))


def trained_physics(case, folder):
    """Return the model, what queues a prompt, what every output costs and what completion costs, in us."""
    gathers = case.settings["moe-comm-backend"] in blis.GATHERING
    given = TrainedPhysics.Parameters(
        beta=case.beta, alpha=case.alpha, conventions="blis",
        expert_exchange="all_gather" if gathers else "all_to_all")
    model = TrainedPhysics(given, deployment_of(case, folder))
    return model, model.host_terms(), model.completion_us


def blackbox(case, _):
    model = Blackbox(Blackbox.Parameters(beta=case.beta, alpha=case.alpha))
    return model, model.host_terms(), 0.0


def step_roofline(case, folder):
    size = case.number("block-size-in-tokens")
    hits = {each.shared_tokens // size * size for each in case.requests}
    model = WithoutFirstHits((StepRoofline(StepRoofline.Parameters(), deployment_of(case, folder)), hits))
    base, per_token, output = case.alpha
    return model, {"queue_base_us": base, "queue_per_prompt_token_us": per_token, "output_token_us": output}, 0.0


BACKENDS = {"trained-physics": trained_physics, "blackbox": blackbox, "roofline": step_roofline}


def run(case, folder):
    """Return our recording of the case, the ids of its rows, and what BLIS adds to outputs and completion, in us."""
    model, host, completion_us = BACKENDS[case.latency_model](case, folder)
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
    yield from ((key, theirs, found.get(key)) for key, theirs in expected.items() if found.get(key) != theirs)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_step_and_request_takes_what_blis_recorded(case, tmp_path):
    obstacle = case.obstacle() or case.latency_obstacle()
    if obstacle:
        pytest.skip(obstacle)

    found = list(differences(case, *run(case, tmp_path)))
    assert not found, "\n".join([f"{len(found)} differences: where, recorded, ours", *map(str, found[:10])])


def test_a_change_of_one_step_or_request_is_found(tmp_path):
    known = [case for case in ALL if not unknown_flags(case.options)]
    case = next((case for case in known if not case.obstacle() and not case.latency_obstacle()), None)
    if case is None:
        pytest.skip("no case to compare")
    recording, ids, *others = run(case, tmp_path)
    recording.iterations["start_ns"][-1] += 1000
    recording.requests["completed_ns"][-1] -= 1000

    assert [where for where, *_ in differences(case, recording, ids, *others)] == [
        f"step {len(recording.iterations) - 1}", case.requests[ids[-1]].id]
