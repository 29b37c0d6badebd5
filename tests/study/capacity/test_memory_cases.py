"""Deployments whose memory servers or engines' own pages tell: what `validate` and `fit` say of them."""
import json
import re
from types import SimpleNamespace

import pytest

from simulator import cli
from simulator.assembly.experts import exchanging
from support.small_models import MIXTURE, deploy

EXPERIMENT = """
[model]
name = "{model}"
[hardware]
name = "{hardware}"
[engine]
{engine}
[latency]
backend = "roofline"
[workload]
type = "synthetic"
num_requests = 1
arrival = {{process = "poisson", rate_per_s = 1.0}}
prompt_tokens = {{distribution = "constant", value = 100}}
output_tokens = {{distribution = "constant", value = 10}}
"""


@pytest.fixture
def asked(tmp_path, capsys):
    """Run a command over an experiment; return the exit status and all that is printed."""
    def ask(command, model, hardware, *options, engine=""):
        file = tmp_path / "case.toml"
        file.write_text(EXPERIMENT.format(model=model, hardware=hardware, engine=engine))
        status = cli.main([command, str(file), *options])
        out, err = capsys.readouterr()
        return status, out + err

    return ask


def blocks_of(text):
    return int(re.search(r"num_gpu_blocks = (\d+)", text)[1])


# ---- weights as kernels hold them

def test_gpt_oss_120b_does_not_start_on_one_h100(asked):
    # vLLM issues 23278 and 33155: 70.8 or 69.1 GB of weights; too little is left for a request of 131,072 tokens
    engine = "max_num_seqs = 1024\ngpu_memory_utilization = 0.9"        # the default of their versions
    status, told = asked("validate", "gpt-oss-120b", "h100-sxm-80gb", engine=engine)

    assert status == 2
    assert "beside 69.3 GB of weights" in told and "needs 5.4 GB of KV cache" in told


def test_vllm_0_10_leaves_nothing_at_all(asked):
    # -2.14 GiB, without flags and with Marlin's kernels
    engine = 'max_num_seqs = 1024\nvllm_version = "0.10"\ndisable_hybrid_kv_cache_manager = true'
    status, told = asked("validate", "gpt-oss-120b", "h100-sxm-80gb", engine=engine)

    assert status == 2 and "weights need 70.8 GB" in told and "no room for one KV block" in told


def test_the_padding_is_told(asked):
    _, told = asked("validate", "gpt-oss-20b", "l40s", engine="max_num_seqs = 8")

    assert "0.92 GB of the weights are padding: Marlin's kernels round the sides of experts" in told


# ---- what max_num_batched_tokens takes

def test_more_batched_tokens_leave_less(asked):
    # vLLM issue 48322: 9.3 % of the tokens; it does not say how much graphs took
    engine = ("max_model_len = 16384\nmax_num_batched_tokens = {}\nmax_num_seqs = 256\ngpu_memory_utilization = 0.92\n"
              "cuda_graphs = {{memory_gib = 0.5}}")
    few, many = (blocks_of(asked("validate", "qwen3-8b", "rtx-4090", engine=engine.format(tokens))[1])
                 for tokens in (2048, 8192))

    assert 1 - many / few == pytest.approx(0.093, abs=0.01)


def test_links_decide_over_memory_outside_pytorch(asked):
    options = ["--gpus", "2", "--json"]
    engine = "max_model_len = 8192\nmax_num_batched_tokens = 8192\nmax_num_seqs = 256"
    found = [asked("fit", "qwen3-8b", hardware, *options, engine=engine)[1]
             for hardware in ("h100-sxm-80gb", "l40s")]
    linked, apart = (json.loads(each)["layouts"] for each in found)

    # tensor parallelism first, then stages; over NVLink 2.1 GiB, over PCIe 0.21, beside stages 0.07
    assert linked[0]["workspace_gb"] - apart[0]["workspace_gb"] == pytest.approx((2.1 - 0.21) * 1.073741824, abs=0.01)
    assert linked[1]["workspace_gb"] == pytest.approx(apart[1]["workspace_gb"])


def test_without_graphs_there_is_no_estimate_of_them(asked):
    plain = blocks_of(asked("validate", "llama-3.1-8b", "h100-sxm-80gb")[1])
    _, told = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine='cuda_graphs = {mode = "none"}')

    assert "CUDA graphs" not in told
    # 51 sizes up to 512, each in pieces and whole, of 32 layers, in blocks of 2 MiB
    assert blocks_of(told) - plain == pytest.approx(2 * 51 * 32 * 0.29 / 2, abs=1)


SIZED = "max_model_len = 8192\nkv_cache_memory_bytes = {}"


def test_a_size_of_the_kv_cache_is_that_of_each_accelerator(asked):
    found = [asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=SIZED.format(2**33) + more) for more in (
        "", "\n[topology]\ntensor_parallel = 2", "\n[topology]\npipeline_parallel = 2")]

    assert [blocks_of(told) for _, told in found] == [2**33 / 2**21, 2 * 2**33 / 2**21, 2 * 2**33 / 2**21]
    assert "CUDA graphs" not in found[0][1] and "of it kv_cache_memory_bytes = KV cache" in found[0][1]


@pytest.mark.parametrize(("engine", "words"), [
    (SIZED.format(2**36 + 2**33), ("leave no room for 16.1 GB of weights", "use kv_cache_memory_bytes <= 6")),
    (SIZED.format(2**30 - 2**20), ("one request of max_model_len = 8192 tokens needs", "use max_model_len <= 8160")),
    (SIZED.format(2**20), ("no room for one KV block",)),
    (SIZED.format(2**30) + "\ngpu_memory_utilization = 0.9", ("gpu_memory_utilization: expected none beside",)),
    (SIZED.format(2**30) + "\nnum_gpu_blocks = 900", ("num_gpu_blocks: expected none beside",)),
    (SIZED.format(2**30) + "\ncuda_graphs = {memory_gib = 1}", ("nothing is taken off",)),
    (SIZED.format(2**30) + '\nvllm_version = "0.10"', ("vLLM 0.10.1 has no such argument",))])
def test_a_size_that_cannot_be_is_refused(asked, engine, words):
    status, told = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=engine)

    assert status == 2
    assert all(word in told for word in words), told


def test_the_exchange_of_tokens_takes_its_buffers(asked):
    engine = "max_model_len = 16384\n[topology]\ndata_parallel = 8\nexpert_parallel = 8"
    options = ["--set", "engine.experts.all2all_backend=deepep_low_latency"]
    _, told = asked("validate", "deepseek-v3", "h200-sxm-141gb", *options, engine=engine)

    assert re.search(r"- exchange of tokens between experts +4\.89 GB", told)


def test_so_it_does_where_latency_names_it():
    parameters = SimpleNamespace(all2all_backend="deepep_low_latency")
    experiment = SimpleNamespace(latency=SimpleNamespace(parameters=parameters))
    ranks, alone = deploy(MIXTURE, data_parallel=2, expert_parallel=2), deploy(MIXTURE)

    assert exchanging(experiment, ranks).experts.all2all_backend == "deepep_low_latency"
    assert exchanging(experiment, alone) == alone


# ---- engines' own rules

def test_tensorrt_llm_keeps_a_share_of_what_is_free(asked):
    engine = 'scheduler = "tensorrt_llm"\nmax_model_len = 8192'
    status, told = asked("fit", "llama-3.1-70b-fp8", "h100-sxm-80gb", "--gpus", "1,2", "--json", engine=engine)
    found = json.loads(told)["layouts"]

    assert status == 0 and found[0]["fits"]
    for each, gpus in ((found[0], 1), (found[1], 2)):
        free_gb = 79.19 * 1.073741824 - each["weights_gb"] - each["workspace_gb"]
        assert each["kv_tokens"] == pytest.approx(0.9 * free_gb * 1e9 * gpus / 163_840, rel=0.001)
        assert each["rule"] == "KV: (memory - all else) x free_gpu_memory_fraction 0.9 (TensorRT-LLM's rule)"
    assert found[0]["kv_tokens"] % 32 == 0      # tokens_per_block


def test_sglang_keeps_a_share_of_all_less_weights(asked):
    engine = 'scheduler = "sglang"\nmax_model_len = 8192\nmem_fraction_static = 0.8'
    _, told = asked("fit", "llama-3.1-70b-fp8", "h100-sxm-80gb", "--gpus", "2", "--json", engine=engine)
    two = json.loads(told)["layouts"][0]

    left_gb = 0.8 * 79.19 * 1.073741824 - two["weights_gb"]
    assert two["kv_tokens"] == pytest.approx(left_gb * 1e9 / 81_920, rel=0.001)
    assert two["rule"] == "KV: memory x mem_fraction_static 0.8 - weights and states (SGLang's rule)"


@pytest.mark.parametrize(("scheduler", "key"), [
    ("tensorrt_llm", "free_gpu_memory_fraction"), ("sglang", "mem_fraction_static")])
def test_a_share_of_another_engine_is_refused(asked, scheduler, key):
    engine = f'scheduler = "{scheduler}"\ngpu_memory_utilization = 0.9'
    status, told = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=engine)

    assert status == 2
    assert f"engine.gpu_memory_utilization: expected none, it is vLLM's; \"{scheduler}\" has {key}" in told


@pytest.mark.parametrize(("scheduler", "tokens"), [("vllm", 16), ("tensorrt_llm", 32), ("sglang", 1)])
def test_blocks_are_as_large_as_the_engine_has_them(asked, scheduler, tokens):
    status, told = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=f'scheduler = "{scheduler}"')

    assert status == 0
    assert f"blocks of {tokens} tokens" in told and f"\nblock_size = {tokens}  # " in told


# ---- layouts

@pytest.mark.parametrize(("ways", "number"), [
    (("tensor_parallel=2", "data_parallel=3"), 6), (("data_parallel=12",), 12), (("prefill_context_parallel=3",), 3)])
@pytest.mark.parametrize("command", ["validate", "run", "predict"])
def test_experts_that_cannot_be_cut_are_refused_everywhere(asked, command, ways, number):
    options = [text for way in ways for text in ("--set", f"topology.{way}")]
    options += ["--decode", "1x100"] * (command == "predict")
    status, told = asked(command, "deepseek-v3", "h200-sxm-141gb", *options, engine="max_model_len = 32768")

    assert status == 2 and f"= {number} parts, which does not divide its intermediate_size = 2048" in told


def test_fit_offers_none_of_them(asked):
    options = ["--gpus", "6,12,32", "--json"]
    _, told = asked("fit", "deepseek-v3", "h200-sxm-141gb", *options, engine="max_model_len = 32768")

    for each in json.loads(told)["layouts"]:
        ranks = each["tensor_parallel"] * each["data_parallel"]
        cuts = ranks // each["expert_parallel"]
        if each["fits"]:
            # blocks of experts may be divided down to 32 x 32
            assert 2048 % (cuts * 32) == 0 and 18432 % (each["tensor_parallel"] * 128) == 0


# ---- neighbours

def test_adapters_have_slots(asked):
    graphs, lora = "cuda_graphs = {{memory_gib = {}}}\n", "lora = {max_loras = 8, rank = 64}"
    plain = blocks_of(asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=graphs.format(1))[1])
    _, told = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=graphs.format(1) + lora)
    _, derived = asked("validate", "llama-3.1-8b", "h100-sxm-80gb", engine=lora)

    # 8 x 64 x 2 bytes x 32 layers x (7 x 4096 + 4096 + 2 x 1024 + 4096 + 3 x 14336) = 2.68 GB; a block has 2 MiB
    assert "- weights of adapters" in told
    assert (plain - blocks_of(told)) * 2**21 == pytest.approx(8 * 64 * 2 * 32 * 81_920, abs=2**22)
    # each graph is captured with adapters as well
    assert blocks_of(told) - blocks_of(derived) == pytest.approx((4 * 51 * 32 * 0.29 - 1024) / 2, abs=1)


@pytest.mark.parametrize("hardware", ["t4", "l4", "b300-sxm-288gb", "gb300", "mi355x", "tpu-v5e", "gaudi3"])
def test_a_small_model_fits_the_smallest_and_the_largest_card(asked, hardware):
    status, told = asked("fit", "qwen3-0.6b", hardware, "--gpus", "1", "--json",
                         engine="max_model_len = 4096\nmax_num_seqs = 64")

    assert status == 0
    assert json.loads(told)["layouts"][0]["kv_tokens"] > 50_000
