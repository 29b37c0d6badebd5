"""An engine's option that a file leaves out is as its server sets it on that card; command lines resolve to it, too."""
import pytest
import tomli

import simulator
from simulator.assembly import assemble
from simulator.assembly.site import Site
from simulator.config.load import load_experiment, resolved_toml
from simulator.domain.facts import load_accelerator
from simulator.domain.server_defaults.cards import GIB, Card, as_card, card_of
from simulator.domain.server_defaults.vllm import limits_of
from simulator.domain.vllm_versions import VERSIONS, behaviour_of
from simulator.errors import InputErrors
from simulator.server_line.sources.launches import Launch
from simulator.study.deployment.from_server import Machine, answer_of

PLAIN = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 1
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 9}
output_tokens = {distribution = "constant", tokens = 9}
"""
NO_CARD = {"latency": {"backend": "linear"}, "engine.num_gpu_blocks": 100, "engine.max_model_len": 1000}
DEEPSEEK = {"model.name": "deepseek-v3", "hardware.name": "h200-sxm-141gb", "topology.data_parallel": 8,
            "topology.expert_parallel": 8}
THROUGHPUT = {"engine.experts": {"all2all_backend": "deepep_high_throughput"}}
LOW_LATENCY = {"engine.experts": {"all2all_backend": "deepep_low_latency"}}


@pytest.fixture
def engine_of(write):
    """Return [engine] of an experiment with some keys."""
    def engine_of(keys=(), text=PLAIN):
        return load_experiment(write(text), dict(keys)).engine
    return engine_of


def batch(engine):
    return engine.parameters.max_num_batched_tokens, engine.parameters.max_num_seqs


@pytest.mark.parametrize(("hardware", "tokens", "seqs"), [
    ("h100-sxm-80gb", 8192, 1024), ("h200-sxm-141gb", 8192, 1024), ("h100-nvl-94gb", 8192, 1024),
    ("h20-96gb", 8192, 1024), ("rtx-pro-6000-server", 8192, 1024), ("b200-sxm-180gb", 16384, 1024),
    ("gb200", 16384, 1024), ("b300-sxm-288gb", 16384, 1024), ("mi300x", 16384, 1024),
    ("a100-sxm-80gb", 2048, 256), ("a100-sxm-40gb", 2048, 256), ("l40s", 2048, 256), ("l4", 2048, 256),
    ("a10", 2048, 256), ("rtx-4090", 2048, 256), ("tpu-v6e", 1024, 256), ("tpu-v5p", 256, 256)])
@pytest.mark.parametrize("version", ["0.32", "0.33"])
def test_batches_of_vllm_are_those_of_an_api_server_on_that_card(engine_of, hardware, tokens, seqs, version):
    engine = engine_of({"hardware.name": hardware, "engine.vllm_version": version})

    assert batch(engine) == (tokens, seqs)
    assert (engine.gpu_memory_utilization, engine.block_size) == (0.92, 16)


def test_vllm_0_10_has_limits_of_its_own(engine_of):
    old = {"engine.vllm_version": "0.10"}
    assert batch(engine_of(old | {"hardware.name": "b200-sxm-180gb"})) == (8192, 1024)
    assert batch(engine_of(old | {"hardware.name": "a100-sxm-80gb"})) == (2048, 256)
    assert batch(engine_of(old | {"engine.max_model_len": 4})) == (8192, 1024)      # a short text cuts nothing
    engine = engine_of(old)
    assert (engine.gpu_memory_utilization, engine.parameters.scheduler_reserve_full_isl,
            engine.parameters.async_scheduling) == (0.9, False, False)


def test_gb10_has_the_limits_of_small_cards_since_0_33():
    spark = Card("gb10", "GB10", 120 * GIB, (12, 1))
    assert [limits_of(spark, behaviour_of(version)).tokens for version in ("0.32", "0.33")] == [8192, 2048]


@pytest.mark.parametrize(("keys", "expected"), [
    ({"engine.max_num_batched_tokens": 512}, (512, 512)),               # no more sequences than tokens
    ({"engine.max_model_len": 4}, (4096, 1024)),                        # no more tokens than 1,024 such texts
    ({"engine.max_num_seqs": 2, "engine.max_model_len": 1000}, (2000, 2)),
    ({"engine.enable_chunked_prefill": False}, (131072, 1024)),         # a whole text
    ({"engine.enable_chunked_prefill": False, "engine.max_model_len": 5000}, (8192, 1024)),
    ({"engine.max_num_seqs": 7}, (8192, 7)),
    (DEEPSEEK | LOW_LATENCY, (256, 256)),
    (DEEPSEEK, (8192, 1024))])
def test_other_options_change_the_batch_as_in_vllm(engine_of, keys, expected):
    assert batch(engine_of(keys)) == expected


def test_more_sequences_than_the_card_has_tokens_are_refused_as_in_vllm(engine_of):
    with pytest.raises(InputErrors, match=r"max_num_batched_tokens: expected at least max_num_seqs = 4096, found 2048"):
        engine_of({"hardware.name": "a100-sxm-80gb", "engine.max_num_seqs": 4096})


def test_each_pool_has_the_defaults_of_its_own_card(write):
    pools = [{"name": "new", "hardware": {"name": "b200-sxm-180gb"}}, {"name": "old", "hardware": {"name": "l40s"}},
             {"name": "given", "engine": {"max_num_seqs": 3}}]
    experiment = load_experiment(write(PLAIN), {"pools": pools})

    assert [batch(pool.engine) for pool in experiment.pools] == [(16384, 1024), (2048, 256), (8192, 3)]
    assert batch(experiment.engine) == (8192, 1024)


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_for_throughput_go_without_graphs(write, version):
    keys = DEEPSEEK | THROUGHPUT | {"engine.cuda_graphs": {}, "engine.vllm_version": version}
    experiment = load_experiment(write(PLAIN), keys)

    assert experiment.engine.parameters.cuda_graphs.mode == "none"
    assert experiment.origins.of(("engine", "cuda_graphs", "mode")) == (
        f"vLLM {version}: deepep_high_throughput with data parallelism")
    assert Site(experiment).needs.reserve.num_graphs == 0
    told = " ".join(simulator.predict(experiment, decode=[100]).warnings)
    assert "launches of 32.5 us by the host of a published server" in told      # with torch.compile, too


@pytest.mark.parametrize("keys", [DEEPSEEK | LOW_LATENCY, DEEPSEEK])
def test_other_exchanges_keep_their_graphs(engine_of, keys):
    assert engine_of(keys | {"engine.cuda_graphs": {}}).parameters.cuda_graphs.mode is None


@pytest.mark.parametrize("graphs", [{"mode": "full"}, {"capture_sizes": [1, 2]}, {"memory_gib": 1.0}])
def test_graphs_beside_kernels_for_throughput_are_refused(write, graphs):
    experiment = load_experiment(write(PLAIN), DEEPSEEK | THROUGHPUT | {"engine.cuda_graphs": graphs})
    with pytest.raises(InputErrors, match="vLLM turns graphs off"):
        assemble.prepare(experiment)


def test_without_a_card_the_defaults_are_stated(write):
    text = PLAIN.replace('hardware = {name = "h100-sxm-80gb"}', "").replace('model = {name = "llama-3.1-8b"}', "")
    experiment = load_experiment(write(text), NO_CARD)

    assert batch(experiment.engine) == (8192, 256)
    assert "no [hardware]" in experiment.origins.of(("engine", "max_num_seqs"))


def test_schedulers_of_no_engine_keep_the_defaults_of_their_papers(engine_of):
    for scheduler, size in (("orca", 16), ("sarathi", 16), ("vllm_v0", 16), ("blis", 16)):
        for hardware in ("b200-sxm-180gb", "l40s"):
            engine = engine_of({"engine.scheduler": scheduler, "hardware.name": hardware})
            assert (engine.block_size, engine.gpu_memory_utilization) == (size, 0.9)


@pytest.mark.parametrize(("hardware", "ranks", "chunk", "share"), [
    ("h100-sxm-80gb", 1, 8192, 0.83), ("l4", 1, 4096, None), ("b200-sxm-180gb", 1, 16384, None),
    ("l40s", 1, 4096, None), ("a100-sxm-80gb", 4, 8192, None)])
def test_sglang_cuts_prompts_and_divides_memory_by_card(engine_of, hardware, ranks, chunk, share):
    engine = engine_of({"engine.scheduler": "sglang", "hardware.name": hardware, "topology.tensor_parallel": ranks})

    assert engine.parameters.chunked_prefill_size == chunk
    assert engine.gpu_memory_utilization is None
    assert share is None or engine.parameters.mem_fraction_static == share
    assert engine.block_size == (64 if hardware.startswith("b") else 1)


def test_attention_ranks_of_sglang_share_the_chunk_and_expect_more(engine_of):
    # recorded: DeepSeek-V3 on 8 H100 with attention on 8 ranks: 0.573, 8192 / 8 tokens, conservativeness 0.3
    parameters = engine_of(DEEPSEEK | {"engine.scheduler": "sglang", "hardware.name": "h100-sxm-80gb"}).parameters

    assert (parameters.mem_fraction_static, parameters.chunked_prefill_size) == (0.573, 1024)
    assert parameters.schedule_conservativeness == 0.3


@pytest.mark.parametrize(("blocks", "expected"), [(100_000_000, 4096), (300_000, 2048), (3000, 1500), (1, 2048)])
def test_running_requests_of_sglang_follow_from_its_pool(engine_of, blocks, expected):
    keys = {"engine.scheduler": "sglang"} | ({"engine.num_gpu_blocks": blocks} if blocks > 1 else {})
    assert engine_of(keys).parameters.max_running_requests == expected


@pytest.mark.parametrize(("keys", "expected"), [
    ({"engine.max_model_len": 100_000}, 2129),      # 512 x 415,909 tokens of the pool / 100,000
    ({"engine.max_model_len": 4096}, 4096), ({
        "hardware.name": "rtx-4090", "engine.max_model_len": 1024, "engine.mem_fraction_static": 0.65}, None)])
def test_running_requests_of_sglang_follow_from_the_pool_that_it_plans(engine_of, write, keys, expected):
    keys = {"engine.scheduler": "sglang"} | keys
    found = engine_of(keys).parameters.max_running_requests
    tokens = Site(load_experiment(write(PLAIN), keys)).num_gpu_blocks

    assert found == (tokens // 2 if expected is None else expected)
    assert expected is not None or 200 < found < 2048


QWEN = {"engine.scheduler": "sglang", "model.name": "qwen3-next-80b-a3b", "hardware.name": "h100-sxm-80gb",
        "topology.tensor_parallel": 4}


@pytest.mark.parametrize(("keys", "slots_each"), [
    ({}, 5), ({"engine.disable_overlap_schedule": True}, 3), ({"engine.enable_prefix_caching": False}, 1)])
def test_recurrent_states_of_sglang_have_slots_in_a_share_of_its_memory(engine_of, write, keys, slots_each):
    site = Site(load_experiment(write(PLAIN), QWEN | keys))
    # a rank of four: 2 x 16 + 32 heads of 128 in three taps of 2 bytes, 8 states of 128 x 128 in float32; 36 layers
    slot = 36 * ((2 * 16 + 32) * 128 // 4 * 3 * 2 + 32 // 4 * 128 * 128 * 4)
    free = site.memory.budget_bytes - site.memory.weights_bytes
    slots = int((free * 0.9 / 1.9 - slot) // slot)

    assert site.memory.state_bytes == (slots + 1) * slot
    assert engine_of(QWEN | keys).parameters.max_running_requests == slots // slots_each
    assert engine_of(QWEN | keys | {"engine.num_gpu_blocks": 900_000}).parameters.max_running_requests == (
        slots // slots_each)


def test_more_running_requests_than_states_have_slots_for_are_refused(write):
    with pytest.raises(InputErrors, match="to which SGLang lowers 500: use max_running_requests <= 145"):
        Site(load_experiment(write(PLAIN), QWEN | {"engine.max_running_requests": 500})).check()


@pytest.mark.parametrize(("keys", "dtype", "why"), [
    ({}, "fp8_e4m3", "vLLM 0.33 on B200 SXM (HGX) 180GB: GLM-5 on compute capability 10.x"),
    ({"engine.vllm_version": "0.32"}, "fp8_e4m3", "GLM-5 on compute capability 10.x"),
    ({"hardware.name": "h200-sxm-141gb"}, "auto", "default"),
    ({"hardware.name": "rtx-pro-6000-server"}, "auto", "default"),
    ({"model.kv_cache_dtype": "bfloat16"}, "bfloat16", "overrides"),
    ({"model.name": "glm-5-nvfp4"}, "auto", "default"),                 # it declares fp8 itself
    ({"model.name": "deepseek-v3.2"}, "auto", "default"), ({"model.name": "deepseek-v3"}, "auto", "default"),
    ({"engine.scheduler": "sglang"}, "fp8_e4m3", "sparse attention"),
    ({"engine.scheduler": "sglang", "model.name": "deepseek-v3.2"}, "fp8_e4m3", "sparse attention"),
    ({"engine.scheduler": "sglang", "hardware.name": "h200-sxm-141gb"}, "bfloat16", "sparse attention"),
    ({"engine.scheduler": "sglang", "model.name": "deepseek-v3"}, "auto", "default"),
    ({"engine.scheduler": "tensorrt_llm"}, "auto", "default")])
def test_an_automatic_kv_format_is_that_of_the_engine_on_the_card(write, keys, dtype, why):
    base = {"model.name": "glm-5-fp8", "hardware.name": "b200-sxm-180gb", "topology.tensor_parallel": 8}
    experiment = load_experiment(write(PLAIN), base | keys)

    assert experiment.model.kv_cache_dtype == dtype
    assert why in experiment.origins.of(("model", "kv_cache_dtype"))


def test_an_automatic_kv_format_sizes_the_cache_of_glm_5(write):
    # 78 layers, per token 576 elements and 132 bytes of the indexer: one byte an element on Blackwell, two on Hopper
    bytes_of = {card: Site(load_experiment(write(PLAIN), {
        "model.name": "glm-5-fp8", "hardware.name": card, "topology.tensor_parallel": 8})).memory.kv_bytes_per_token
        for card in ("b200-sxm-180gb", "h200-sxm-141gb")}

    assert bytes_of == {"b200-sxm-180gb": 78 * (576 + 132), "h200-sxm-141gb": 78 * (2 * 576 + 132)}


def test_defaults_of_tensorrt_llm_are_its_own_unless_given(write):
    experiment = load_experiment(write(PLAIN), {"engine.scheduler": "tensorrt_llm", "engine.max_num_tokens": 4096})
    values = {key: (getattr(experiment.engine.parameters, key), experiment.origins.of(("engine", key)))
              for key in ("max_batch_size", "max_num_tokens", "free_gpu_memory_fraction")}

    said = "TensorRT-LLM: its default on every card"
    assert values == {"max_batch_size": (2048, said), "max_num_tokens": (4096, "overrides"),
                      "free_gpu_memory_fraction": (0.9, said)}


@pytest.mark.parametrize(("keys", "tokens"), [
    ({}, 16), ({"model.kv_cache_dtype": "fp8"}, 64), ({"model.name": "deepseek-v3.2"}, 64),
    ({"hardware.name": "b200-sxm-180gb", "model.kv_cache_dtype": "fp8"}, 16),       # the backend is not known there
    ({"engine.vllm_version": "0.10"}, 64), ({"engine.block_size": 16, "model.name": "deepseek-v3.2"}, 16)])
def test_blocks_of_latent_attention_are_those_of_its_backend(engine_of, keys, tokens):
    assert engine_of({"model.name": "deepseek-v3", "topology.tensor_parallel": 8} | keys).block_size == tokens


CARDS = ("h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb", "l40s", "rtx-pro-6000-server", "h200-sxm-141gb")
MODELS = (("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", 1), ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b", 4),
          ("deepseek-ai/DeepSeek-V3", "deepseek-v3", 8), ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2", 8),
          ("openai/gpt-oss-120b", "gpt-oss-120b", 2))
OF_VLLM = {"max_num_batched_tokens": "scheduler", "max_num_seqs": "scheduler", "gpu_memory_utilization": "cache",
           "async_scheduling": "scheduler", "scheduler_reserve_full_isl": "scheduler",
           "enable_chunked_prefill": "scheduler", "enable_prefix_caching": "cache"}
OF_SGLANG = ("chunked_prefill_size", "mem_fraction_static", "schedule_conservativeness", "max_prefill_tokens")


@pytest.mark.parametrize("hardware", CARDS)
@pytest.mark.parametrize(("hub_id", "model", "ranks"), MODELS)
def test_a_file_and_a_command_line_that_say_no_more_resolve_to_equal_values(engine_of, hardware, hub_id, model, ranks):
    place = {"model.name": model, "hardware.name": hardware, "topology.tensor_parallel": ranks,
             "engine.num_gpu_blocks": 10_000}
    machine = Machine(card_of(hardware), ranks)
    for version in ("0.32", "0.33"):
        _, _, answer = answer_of(Launch("vllm", (hub_id, "-tp", str(ranks)), {}, version), machine, version)
        engine = engine_of(place | {"engine.vllm_version": version})
        found = {key: getattr(engine, key, None) if hasattr(engine, key) else getattr(engine.parameters, key)
                 for key in OF_VLLM}
        assert found == {key: answer.values[table][key] for key, table in OF_VLLM.items()}
        assert engine.block_size == answer.values.get("after_load", answer.values["cache"])["block_size"]
    argv = ("--model-path", hub_id, "--tp-size", str(ranks))
    _, _, answer = answer_of(Launch("sglang", argv, {}, None), machine)
    engine = engine_of(place | {"engine.scheduler": "sglang"})
    assert {key: getattr(engine.parameters, key) for key in OF_SGLANG} == {key: answer.values[key] for key in OF_SGLANG}
    assert engine.block_size == answer.values["page_size"]


def test_other_hardware_by_set_and_in_a_sweep_brings_its_own_defaults(write):
    told = {name: tomli.loads(resolved_toml(load_experiment(write(PLAIN), [f"hardware.name={name}"])))["engine"]
            for name in ("l40s", "b200-sxm-180gb")}
    assert [each["max_num_batched_tokens"] for each in told.values()] == [2048, 16384]


def test_blocks_follow_from_the_share_of_the_version(write):
    blocks = {version: Site(load_experiment(write(PLAIN), {"engine.vllm_version": version,
                                                           "engine.max_num_seqs": 256})).num_gpu_blocks
              for version in VERSIONS}
    assert blocks["0.32"] == blocks["0.33"]
    given = Site(load_experiment(write(PLAIN), {"engine.gpu_memory_utilization": 0.92, "engine.max_num_seqs": 256}))
    assert given.num_gpu_blocks == blocks["0.32"]


def test_a_model_that_cannot_be_read_is_reported_once_not_by_its_defaults(write):
    with pytest.raises(InputErrors) as raised:
        simulator.run(write(PLAIN), {"model.name": "llama-3.1-9b"}, quiet=True)
    assert len(raised.value.faults) == 1


def test_every_shipped_accelerator_is_a_card():
    assert as_card(load_accelerator("tpu-v6e")).capability == (0, 0)
    assert as_card(load_accelerator("b200-sxm-180gb")).major == 10


def test_a_file_and_a_command_line_of_tensorrt_llm_resolve_to_equal_values(engine_of):
    machine = Machine(card_of("h100-sxm-80gb"), 1)
    values = answer_of(Launch("trtllm", ("meta-llama/Llama-3.1-8B-Instruct",), {}, None), machine)[2].values
    engine = engine_of({"engine.scheduler": "tensorrt_llm"})
    own = engine.parameters

    assert (own.max_batch_size, own.max_num_tokens, own.free_gpu_memory_fraction, own.enable_chunked_context) == tuple(
        values[key] for key in ("max_batch_size", "max_num_tokens", "kv_cache_free_gpu_memory_fraction",
                                "enable_chunked_prefill"))
    assert (engine.block_size, engine.enable_prefix_caching, own.capacity_scheduler_policy) == tuple(
        values[key] for key in ("tokens_per_block", "enable_block_reuse", "capacity_scheduler_policy"))
    assert engine.gpu_memory_utilization is None
