"""Contradictions in a question are refused, all at once, before any file is written."""
import pytest

from simulator.domain.short_names import accelerator_named
from simulator.errors import InputErrors


@pytest.mark.parametrize(("options", "said"), [
    ({"model": "llama-3.1-9b"}, "its shape is not known here; did you mean"),
    ({"model": "no/such-model"}, "its shape is not known here"),
    ({"gpu": "a100"}, '"a100" names 4 accelerators: expected one of a100-pcie-40gb, a100-pcie-80gb, a100-sxm-40gb'),
    ({"gpu": "h1000"}, "h1000"),
    ({"gpus": 0}, "--gpus: expected a whole number from 1 to 4,096, found 0"),
    ({"gpus": 100_000}, "--gpus: expected a whole number from 1 to 4,096, found 100000"),
    ({"input": 0}, "--input: expected a whole number from 1"),
    ({"output": -3}, "--output: expected a whole number from 1"),
    ({"rate": 0}, "--rate: expected requests a second above 0"),
    ({"rate": "nan"}, "--rate: expected requests a second above 0"),
    ({"rate": "-1"}, "--rate: expected requests a second above 0"),
    ({"ttft_p99": 0}, "--ttft-p99: expected milliseconds above 0, found 0"),
    ({"tpot_p99": "-5"}, "--tpot-p99: expected milliseconds above 0, found -5"),
    ({"tpot_p99": "inf"}, "--tpot-p99: expected milliseconds above 0, found inf"),
    ({"slo": "e2el_ms.p99=0"}, "e2el_ms.p99: expected a bound above 0"),
    ({"slo": "ttft.p99=5"}, "ttft.p99"),
    ({"slo": "ttft_ms.p99=5"}, "ttft_ms.p99: bounded 2 times: expected one bound of it"),
    ({"slo": "goodput_share=0.9"}, "--slo goodput_share: expected bounds of latencies"),
    ({"output": 1}, "tpot_ms.p99: expected no such bound with --output 1"),
    ({"ttft_p99": None, "tpot_p99": None}, "give a bound to hold"),
    ({"input": 131_000, "output": 200}, "a request has 131,200 tokens, llama-3.1-8b takes 131,072 at most"),
    ({"max_model_len": 500}, "--max-model-len: expected 820, which a request has, to 131,072, the model's, found 500"),
    ({"tensor_parallel": 3, "gpus": 8}, "--tensor-parallel: 3 does not divide --gpus 8: 2 would be idle"),
    ({"tensor_parallel": 16, "gpus": 8}, "--tensor-parallel: expected at most --gpus 8, found 16"),
    ({"engine_version": "0.31"}, '--engine-version: vLLM "0.31" is not modelled; expected one of 0.10, 0.32, 0.33'),
    ({"engine": "sglang", "engine_version": "9.9"}, "9.9"),
    ({"prices": "-2"}, "--prices: expected the price of a GPU-hour above 0"),
    ({"prices": "nowhere.toml"}, "--prices: expected the price of a GPU-hour, or a file with [prices]; nowhere.toml"),
    ({"model": "llama-3.1-405b", "gpu": "l4", "tensor_parallel": None, "gpus": 8},
     "llama-3.1-405b fits on no layout of 8 l4"),
    ({"model": "llama-3.1-70b", "gpus": 1}, "llama-3.1-70b fits on no layout of 1 h100-sxm-80gb; 16 GPUs hold it"),
])
def test_what_cannot_be_is_refused(asked, tmp_path, options, said):
    status, message = asked(**options)

    assert status == 2 and said in message
    assert not (tmp_path / "plan").exists()


def test_all_faults_come_at_once(asked):
    _, message = asked(model="llama-3.1-9b", gpu="a100", rate=0, ttft_p99=-1, gpus=0, prices="x", engine_version="7")

    assert [fault in message for fault in ("llama-3.1-9b", '"a100" names', "--rate", "--ttft-p99", "--gpus", "--prices",
                                           "--engine-version")] == [True] * 7


def test_a_command_line_that_says_something_else(asked):
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
    status, message = asked("--from", line, model="qwen3-32b", engine="sglang", max_model_len=4096)

    assert status == 2
    assert "MODEL: qwen3-32b, the command line serves meta-llama/Llama-3.1-8B-Instruct" in message
    assert "--engine: sglang, the command line starts vLLM" in message
    assert "--max-model-len: 4,096, the command line leads to 8,192" in message


@pytest.mark.parametrize(("text", "name"), [
    ("h100", "h100-sxm-80gb"), ("H100_SXM_80GB", "h100-sxm-80gb"), ("gh200", "h100-sxm-96gb-gh200"), ("l4", "l4"),
    ("4090", "rtx-4090"), ("a10", "a10"), ("h200", "h200-sxm-141gb"), ("h100-nvl", "h100-nvl-94gb"),
    ("./own.toml", "./own.toml")])
def test_short_names_of_cards(text, name):
    assert accelerator_named(text).name == name


def test_a_short_name_of_several_cards_names_the_others():
    assert accelerator_named("h100").others == ("h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm-96gb-gh200")
    with pytest.raises(InputErrors, match="a100-sxm-80gb"):
        accelerator_named("A100-SXM")


def test_faults_of_a_file_with_prices_name_it_and_write_nothing(asked, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text("[prices.h100-sxm-80gb]\nper_gpu_hour = -1.0\nsource = 's'\ndate = '2026-01-01'\n")
    status, message = asked(prices=path)

    assert status == 2 and not (tmp_path / "plan").exists()
    assert f"{path}: prices.h100-sxm-80gb.per_gpu_hour: expected a number > 0" in message
    assert f"{path}: prices.h100-sxm-80gb.currency: missing" in message
