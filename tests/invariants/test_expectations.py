"""Expected output lengths, late answers, images and reasoning: nothing depends on how time passes."""
from random import Random

import numpy as np
import pytest

import simulator
from simulator.domain import records

PREDICTORS = ('predictor = "exact"', 'predictor = "declared"', 'predictor = "mean"',
              'predictor = "lognormal_error", error_sigma = 1.0, bias = 0.5',
              'predictor = "bucket", buckets = [4, 12], wrong_bucket_share = 0.3', 'predictor = "column"')


def experiment_of(rng):
    """Return a small cluster, as TOML."""
    router = rng.choice(['policy = "least_loaded", metric = "expected_tokens"',
                         'policy = "power_of_two", metric = "expected_tokens"', 'policy = "round_robin"'])
    scheduler = 'scheduler = "blis", policy = "shortest-output"' if "round" in router or rng.random() < 0.5 else (
        f'scheduler = "vllm", async_scheduling = {rng.choice(["true", "false"])}')
    lines = [
        f"seed = {rng.randint(0, 99)}",
        f"horizon_s = {rng.choice(['inf', 'inf', '0.15'])}",
        f"engine = {{{scheduler}, num_gpu_blocks = {rng.choice([15, 60])}, max_num_seqs = {rng.randint(1, 5)}, "
        f"max_model_len = 200}}",
        f"topology.replicas = {rng.randint(1, 4)}",
        f"cluster.routing = {{{router}}}",
        f"latency = {{backend = 'linear', base_us = 4000.0, host = {{completion_us = {rng.choice([0.0, 700.0])}, "
        f"output_token_us = {rng.choice([0.0, 900.0])}}}}}",
        "[workload]", 'type = "trace"', 'path = "requests.csv"',
        f"cancel_at_deadline = {rng.choice(['true', 'false'])}",
        f"output_knowledge = {{{rng.choice(PREDICTORS)}}}"]
    lines += ['adapters = {names = ["a", "b"], none_share = 0.3}'] * (rng.random() < 0.5)
    lines += ["images = {count = {distribution = 'uniform', min = 0, max = 2}, rule = 'tokens_per_image', "
              "tokens_per_image = 20}"] * (rng.random() < 0.5)
    lines += [f"load = {{mode = 'concurrency', concurrency = {rng.randint(1, 9)}}}"] * (rng.random() < 0.4)
    lines += ["[[failures]]", 'kind = "stop"', "which = 0", "at_s = 0.05", "duration_s = 0.05",
              f'on_failure = "{rng.choice(["retry", "restart", "lost"])}"'] * (rng.random() < 0.3)
    return "\n".join(lines) + "\n"


def requests_of(rng):
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt,max_tokens,deadline_s,slo_class,predicted_tokens,"
            "reasoning_tokens"]
    for i in range(40):
        own, output = rng.randint(1, 60), rng.randint(0, 30)
        rows.append(f"{0.004 * i:.3f},{own + 16},{output},s:16/:{own},{rng.randint(1, 40)},"
                    f"{rng.choice(['', '0.05', '0.3', '5'])},{rng.choice('xy')},{rng.choice(['', output])},"
                    f"{rng.choice(['', rng.randint(0, output)])}")
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module", params=range(40))
def experiment(request, tmp_path_factory):
    """Return the file of an experiment."""
    folder, rng = tmp_path_factory.mktemp("expectations"), Random(request.param)
    (folder / "requests.csv").write_text(requests_of(rng))
    (folder / "experiment.toml").write_text(experiment_of(rng))
    return folder / "experiment.toml"


@pytest.fixture(scope="module")
def result(experiment):
    return simulator.run(experiment)


def test_steps_and_runs_of_iterations_agree(experiment, result):
    stepwise = simulator.run(experiment, {"engine.fast_forward": False})

    assert result.requests.tobytes() == stepwise.requests.tobytes()
    assert result.iterations.tobytes() == stepwise.iterations.tobytes()
    assert result.summary == stepwise.summary


def test_answers_begin_where_the_token_behind_the_reasoning_comes(experiment, result):
    offsets, times_ns = simulator.run(experiment, {"output.token_times": True}).token_times
    for row, request in enumerate(result.requests):
        behind = request["output_tokens"] - request["reasoning_tokens"]
        known = request["reasoning_tokens"] >= 0 and behind > 0
        assert request["first_answer_ns"] == (times_ns[offsets[row + 1] - behind] if known else -1)
        assert not known or request["first_answer_ns"] >= request["first_token_ns"] >= 0


def test_a_miss_is_counted_once_whatever_the_client_does(experiment, result):
    requests = result.requests
    due = (requests["due_ns"] >= 0) & (requests["status"] != records.PENDING)
    in_time = (requests["status"] == records.COMPLETED) & (requests["completed_ns"] <= requests["due_ns"])
    in_time |= (requests["status"] < records.COMPLETED) & (requests["due_ns"] >= result.summary["clock_s"] * 1e9)

    assert result.summary.get("deadlines", {"given": 0, "missed": 0}) == {
        "given": int(due.sum()), "missed": int((due & ~in_time).sum())}
    if "cancel_at_deadline = false" in experiment.read_text():
        assert not np.any(requests["status"] == records.TIMED_OUT)
