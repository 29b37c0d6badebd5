"""`simulator fit`: layouts by the memory plan."""
import json

import pytest

from simulator import cli
from simulator.domain.memory_plan import plan
from simulator.study.capacity.fit import layouts

EXPERIMENT = """
[model]
name = "{model}"

[hardware]
name = "h100-sxm-80gb"

[engine]
max_model_len = 16384

[workload]
type = "synthetic"
num_requests = 10
arrival = {{process = "poisson", rate_per_s = 1.0}}
prompt_tokens = {{distribution = "constant", value = 100}}
output_tokens = {{distribution = "constant", value = 10}}
"""


@pytest.fixture
def fitted(tmp_path, capsys):
    """Ask of a model; return the exit status and what is printed."""
    def ask(model, *options):
        file = tmp_path / "model.toml"
        file.write_text(EXPERIMENT.format(model=model))
        status = cli.main(["fit", str(file), *options])
        return status, capsys.readouterr()

    return ask


def found_in(told):
    return {(each["tensor_parallel"], each["pipeline_parallel"], each["data_parallel"], each["expert_parallel"]): each
            for each in json.loads(told.out)["layouts"]}


def test_a_dense_model_is_cut_by_tensors_and_stages():
    assert [tuple(each.values()) for each in layouts(4, has_experts=False)] == [
        (4, 1, 1, 1), (2, 2, 1, 1), (1, 4, 1, 1)]


def test_experts_may_be_spread_over_ranks_of_data_parallelism():
    assert [tuple(each.values()) for each in layouts(2, has_experts=True)] == [
        (2, 1, 1, 1), (2, 1, 1, 2), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 2, 2)]


def test_70b_in_16_bit_fits_on_two_gpus_by_a_short_sequence(fitted):
    status, told = fitted("llama-3.1-70b", "--json", "--set", "engine.max_model_len=4096",
                          "--set", "engine.gpu_memory_utilization=0.95")
    found = found_in(told)

    assert status == 0
    assert found[1, 1, 1, 1]["refusal"].startswith("llama-3.1-70b: weights need 141.1 GB, 1 x 85.5 GB at 0.95 leave")
    two = found[2, 1, 1, 1]
    # 80 layers x 8 heads x 128 x 2 (keys, values) x 2 bytes = 327,680 bytes a token of KV
    assert two["fits"] and two["weights_gb"] == pytest.approx(141.1 / 2, rel=0.01)
    assert two["sequences"] == pytest.approx(two["kv_tokens"] / 4096, rel=0.01)
    left_gb = 0.95 * 79.19 * 1.073741824 - two["weights_gb"] - two["workspace_gb"]
    assert two["kv_tokens"] == pytest.approx(2 * left_gb * 1e9 / 327_680, rel=0.05)


def test_the_numbers_are_those_of_validate(fitted, tmp_path, capsys):
    _, told = fitted("llama-3.1-8b", "--gpus", "1", "--explain")
    cli.main(["validate", str(tmp_path / "model.toml")])
    validated = capsys.readouterr().out

    lines = [line.strip() for line in told.out.splitlines() if "= KV cache" in line or "blocks of" in line]
    assert len(lines) == 2 and all(f"#   {line}" in validated for line in lines)
    assert plan                                 # what both go by


@pytest.mark.parametrize(("engine", "report"), [
    ("", "GPU KV cache size: {:,} tokens, Maximum concurrency for 16,384 tokens per request: {:.2f}x"),
    ('vllm_version = "0.10"', "GPU KV cache size: {:,} tokens"),
    ('scheduler = "sglang"', "max_total_num_tokens={}, max_running_requests=4096, context_len=16384"),
    ('scheduler = "tensorrt_llm"', "Allocated {gib} GiB for max tokens in paged KV cache ({}).")])
def test_the_engine_s_own_lines_are_printed(fitted, engine, report):
    settings = [f"engine.{engine.replace(' ', '')}"] if engine else []
    options = [part for each in settings for part in ("--set", each)]
    _, told = fitted("llama-3.1-8b", "--gpus", "1", "--json", *options)
    found, = json.loads(told.out)["layouts"]
    _, shown = fitted("llama-3.1-8b", "--gpus", "1", *options)
    words = report.partition("{gib}")
    expected = (words[2] or report).format(found["kv_tokens"], found["sequences"])

    assert any(expected in line for line in found["engine_log"])
    assert expected in " ".join(shown.out.split())


def test_validate_and_run_print_them_too(fitted, tmp_path, capsys):
    _, told = fitted("llama-3.1-8b", "--gpus", "1", "--json")
    line, = json.loads(told.out)["layouts"][0]["engine_log"]
    file = str(tmp_path / "model.toml")
    cli.main(["validate", file])
    assert f"#   {line}" in capsys.readouterr().out
    cli.main(["run", file, "--out", str(tmp_path / "results")])
    assert line in " ".join(capsys.readouterr().out.split())
    cli.main(["validate", file, "--set", "engine.num_gpu_blocks=2048"])
    assert "#   GPU KV cache size: 32,768 tokens, Maximum concurrency for 16,384 tokens per request: 2.00x" in (
        capsys.readouterr().out)


def test_all_that_is_told_fits_a_screen(fitted):
    for model, *options in (("deepseek-v3", "--gpus", "1,3,8"), ("llama-3.1-8b", "--gpus", "1,3", "--explain")):
        _, told = fitted(model, *options)
        assert max(map(len, told.out.splitlines())) <= 80


def test_where_nothing_fits_the_status_is_3(fitted):
    status, told = fitted("llama-3.1-70b", "--gpus", "1")

    assert status == 3
    assert "(1) llama-3.1-70b: weights need 141.1 GB" in told.out


def test_a_layout_that_the_model_forbids_says_why(fitted):
    status, told = fitted("llama-3.1-8b", "--gpus", "3")

    assert status == 0                          # by stages it fits
    assert "num_heads = 32 is not divisible by tensor_parallel = 3" in told.out


def test_more_ranks_keep_more_tokens(fitted):
    _, told = fitted("deepseek-v3", "--gpus", "16", "--json")
    found = found_in(told)

    # latent attention has one KV head: tensor parallelism repeats it, data parallelism does not
    assert found[2, 1, 8, 16]["kv_tokens"] > 4 * found[16, 1, 1, 16]["kv_tokens"]
    assert found[16, 1, 1, 16]["expert_parallel"] == 16


def test_the_pool_is_named_where_there_are_several(tmp_path, capsys):
    file = tmp_path / "pools.toml"
    file.write_text(EXPERIMENT.format(model="llama-3.1-8b") + """
[[pools]]
name = "large"
model = {name = "llama-3.1-70b"}

[[pools]]
name = "small"
""")
    assert cli.main(["fit", str(file)]) == 2
    assert "--pool: expected one of large, small" in capsys.readouterr().err
    assert cli.main(["fit", str(file), "--pool", "large", "--gpus", "1"]) == 3
    assert cli.main(["fit", str(file), "--pool", "small", "--gpus", "1"]) == 0


@pytest.mark.parametrize(("options", "fault"), [
    (("--set", "engine.num_gpu_blocks=100"), "engine.num_gpu_blocks: expected none"),
    (("--pool", "large"), "has no pools"),
    (("--set", "engine.max_model_len=200000"), None),
])
def test_what_cannot_be_asked_is_refused(fitted, options, fault):
    status, told = fitted("llama-3.1-8b", *options)

    assert status == (2 if fault else 3)
    assert fault is None or fault in told.err


def test_an_experiment_without_a_model_is_refused(tmp_path, capsys):
    file = tmp_path / "linear.toml"
    file.write_text(EXPERIMENT.format(model="llama-3.1-8b").replace('[model]\nname = "llama-3.1-8b"\n', ""))

    assert cli.main(["fit", str(file), "--set", "latency.backend=linear", "--set", "engine.num_gpu_blocks=9"]) == 2
    assert "expected [model] and [hardware]" in capsys.readouterr().err
