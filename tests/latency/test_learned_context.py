"""Backends of BLIS that do not look at a prompt's cached context say so once a prompt has one."""
import pytest

import simulator
from simulator import cli
from simulator.latency.blis.blackbox import Blackbox
from simulator.latency.blis.crossmodel import Crossmodel
from simulator.latency.blis.step_roofline import StepRoofline
from simulator.latency.blis.trained_physics import TrainedPhysics
from support.small_models import DENSE, deploy

EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_model_len = 4096, max_num_batched_tokens = %s}
latency = {backend = "%s"}
[workload]
type = "synthetic"
num_requests = 3
prompt_tokens = {distribution = "constant", tokens = 600}
output_tokens = {distribution = "constant", tokens = 2}
arrival = {process = "constant", rate_per_s = 0.5}
"""
SHARED = "system_prompts = {num_prompts = 1, num_tokens = 16}"


def build(kind, **ways):
    beta = {Blackbox: (1.0,) * 3, Crossmodel: (1.0,) * 4, TrainedPhysics: (1.0,) * 7}[kind]
    return kind(kind.Parameters(beta=beta), deploy(DENSE, **ways))


@pytest.mark.parametrize("kind", [Blackbox, Crossmodel, TrainedPhysics])
def test_it_says_so_from_the_first_prompt_with_a_context_on(kind):
    model = build(kind)

    model.predict(prefill=[(100, 0)], decode=[500])
    assert not any("KV cache" in note for note in model.warnings())
    model.predict(prefill=[(100, 0), (30, 900)])
    model.predict(decode=[500])
    assert sum("prompts had tokens in the KV cache" in note for note in model.warnings()) == 1


def test_a_rank_in_lock_step_says_so_too():
    model = build(TrainedPhysics, data_parallel=2)

    model.predict_step_ns([([(100, 50)], [])], 2)
    assert "at any position in it" in model.warnings()[-1]


def test_the_one_that_reads_the_context_has_nothing_to_say():
    model = StepRoofline(StepRoofline.Parameters(mfu_prefill=0.5, mfu_decode=0.3), deploy(DENSE))

    assert model.predict(prefill=[(100, 5000)]) > model.predict(prefill=[(100, 0)])


@pytest.mark.parametrize("backend", ["blackbox", "crossmodel", "trained_physics"])
@pytest.mark.parametrize(("budget", "more", "is_told"), [
    (4096, SHARED, True),       # a prefix that is cached
    (4096, "", False),
    (500, "", True)])           # the second chunk of a prompt
def test_diagnosis_says_so(tmp_path, backend, budget, more, is_told):
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT % (budget, backend) + more)

    diagnosis = simulator.run(file).summary["diagnosis"]

    assert any(f"{backend}: prompts had tokens in the KV cache" in note for note in diagnosis) is is_told


def test_predict_says_so(tmp_path, capsys):
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT % (4096, "blackbox"))

    assert simulator.predict(file, prefill=[(100, 0)]).warnings == ()
    assert "blackbox: prompts had tokens" in simulator.predict(file, prefill=[(100, 50)]).warnings[0]
    assert cli.main(["predict", str(file), "--prefill", "100+50"]) == 0
    assert "warning: blackbox: prompts had tokens in the KV cache" in capsys.readouterr().err
