"""Kernels that an engine picks and no backend prices are told, with how far predictions may be off."""
import math
from functools import partial

import pytest

import simulator
from simulator.assembly.kernel_notes import shared_experts_note, sinks_note
from simulator.config.load import load_experiment
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.parallelism import Parallelism
from simulator.experts.tuned import shape_of, tuned, untuned_note
from simulator.study.predict import predict

EXPERIMENT = """
model = {name = "%s"}
hardware = {name = "%s"}
topology = {tensor_parallel = 8}
engine = {max_model_len = 2048}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 2
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 9}
output_tokens = {distribution = "constant", tokens = 9}
"""


def on(accelerator, model, dtype=None, **ways):
    return Deployment(model=load_model(model), accelerator=load_accelerator(accelerator), weight_dtype=dtype,
                      parallelism=Parallelism(**ways))


@pytest.fixture
def experiment(tmp_path):
    def experiment(model, accelerator):
        path = tmp_path / "a.toml"
        path.write_text(EXPERIMENT % (model, accelerator))
        return path
    return experiment


def test_shapes_are_read_off_the_wheels():
    facts = tuned()

    assert {version: {kind: sum(map(len, shapes.values())) for kind, shapes in kinds.items()}
            for version, kinds in facts.versions.items()} == {
        "0.10": {"bfloat16": 92, "fp8": 48, "fp8_block": 22}, "0.32": {"bfloat16": 146, "fp8": 81, "fp8_block": 63}}
    assert facts.devices.keys() <= set(names("hardware"))


def test_experts_are_counted_and_as_wide_as_on_a_rank():
    assert shape_of(on("h200-sxm-141gb", "glm-4.6", tensor_parallel=8)) == (160, 192)
    assert shape_of(on("h200-sxm-141gb", "qwen3-30b-a3b", tensor_parallel=8, expert_parallel=8)) == (16, 768)
    assert shape_of(on("h200-sxm-141gb", "qwen3-30b-a3b", tensor_parallel=2, data_parallel=4)) == (128, 96)


@pytest.mark.parametrize(("accelerator", "model", "version", "is_told"), [
    ("h200-sxm-141gb", "glm-4.6", "0.32", True),            # E=160,N=192 is there for H20-3e and MI300X alone
    ("mi300x", "glm-4.6", "0.32", False),
    ("mi300x", "glm-4.6", "0.10", True),                    # added in October 2025
    ("h100-sxm-80gb", "qwen3-235b-a22b", "0.32", False),    # E=128,N=192
    ("b200-sxm-180gb", "glm-4.6", "0.32", False),           # FlashInfer's kernel
    ("h100-sxm-80gb", "llama-3.1-70b", "0.32", False),      # no experts
    ("h100-sxm-80gb", "gpt-oss-120b", "0.32", False),       # Marlin's
    ("l40s", "qwen3-235b-a22b", "0.32", True)])
def test_a_shape_without_a_tuned_kernel_is_told(accelerator, model, version, is_told):
    assert bool(untuned_note(on(accelerator, model, tensor_parallel=8), version)) == is_told


def test_formats_have_kernels_of_their_own():
    def told(accelerator, dtype, **ways):
        return bool(untuned_note(on(accelerator, "qwen3-30b-a3b", dtype, **ways), "0.32"))

    assert told("h100-sxm-80gb", None, tensor_parallel=1)
    assert told("h100-sxm-80gb", "fp8_block", tensor_parallel=1)
    assert not told("h100-sxm-80gb", "fp8_block", tensor_parallel=2, expert_parallel=2)     # FlashInfer's
    assert not told("a100-sxm-80gb", "fp8_block", tensor_parallel=1)                        # Marlin's: weights alone


@pytest.mark.parametrize("accelerator", names("hardware"))
@pytest.mark.parametrize("model", ["gpt-oss-20b", "qwen3-8b"])
def test_sinks_are_told_below_hopper(accelerator, model):
    below = load_accelerator(accelerator).architecture in ("Volta", "Turing", "Ampere", "Ada")

    assert bool(sinks_note(on(accelerator, model))) == (below and model == "gpt-oss-20b")


@pytest.mark.parametrize(("model", "is_told"), [("deepseek-r1", True), ("qwen3-30b-a3b", False), ("qwen3-8b", False)])
def test_shared_experts_are_told_to_be_priced_after_the_others(model, is_told):
    assert bool(shared_experts_note(on("gb200", model))) == is_told


def test_runs_and_predictions_say_it(experiment):
    untuned, sinks = "no tuned kernel for 160 experts of width 192", "has sinks"
    for model, accelerator, told in (("glm-4.6", "h200-sxm-141gb", untuned), ("gpt-oss-20b", "a100-sxm-80gb", sinks)):
        path = experiment(model, accelerator)
        assert any(told in line for line in simulator.run(path).summary["diagnosis"])
        assert any(told in line for line in predict(path, decode=[100]).warnings)


@pytest.mark.parametrize(("scheduler", "is_told"), [("sglang", True), ("tensorrt_llm", True), ("vllm", False)])
def test_vllms_front_end_is_taken_for_others_by_name(experiment, scheduler, is_told):
    keys = {"latency.backend": "operators", "engine.scheduler": scheduler}
    pytest.importorskip("aiconfigurator_core")
    run = partial(simulator.run, experiment("llama-3.1-70b", "h100-sxm-80gb"))
    plain, none = run(keys), run(keys | {"latency.host.defaults": "none"})

    assert any("vLLM's is taken" in line for line in plain.summary["diagnosis"]) == is_told
    assert not any("is taken" in line for line in none.summary["diagnosis"])
    assert plain.summary["ttft_ms"]["mean"] > none.summary["ttft_ms"]["mean"] + 5.0         # 3.3 and 1.8 ms


def test_backends_that_were_given_iterations_say_nothing(experiment):
    found = simulator.run(experiment("gpt-oss-20b", "a100-sxm-80gb"), {"latency": {"backend": "linear"}})

    assert found.summary["diagnosis"] == []


def test_weights_in_fp8_are_read_as_such_and_multiplied_in_16_bits_where_there_is_no_fp8(experiment):
    path = experiment("qwen3-32b", "a100-sxm-80gb")
    plain, fp8 = ({what: predict(path, **batch, overrides={"model.dtype": dtype}) for what, batch in (
        ("decode", {"decode": [100]}), ("prompt", {"prefill": [4096]}))} for dtype in ("bfloat16", "fp8_block"))

    assert 0.4 < fp8["decode"].seconds / plain["decode"].seconds < 0.8
    assert math.isclose(fp8["prompt"].seconds, plain["prompt"].seconds, rel_tol=0.02)
    assert any("computes no fp8" in line for line in fp8["decode"].warnings)


def test_experiments_know_nothing_of_it_without_a_model(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("engine = {max_model_len = 100, num_gpu_blocks = 100}\nlatency = {backend = \"linear\"}\n"
                    + EXPERIMENT[EXPERIMENT.index("[workload]"):])

    assert load_experiment(path) and simulator.run(path).summary["diagnosis"] == []
