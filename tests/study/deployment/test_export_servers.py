"""What was simulated is what servers are told, and the rest is said."""
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from simulator import cli
from simulator.config.load import load_experiment, plain
from simulator.errors import InputErrors
from simulator.study.deployment.formats import text_of
from simulator.study.deployment.lowering import lower

CONFIGS = Path(__file__).parents[3] / "configs"
# Flags that are not the name of our key with dashes, where our key stands.
TOPOLOGY = {f"{way}_parallel_size": f"{way}_parallel" for way in (
    "tensor", "pipeline", "data", "decode_context", "prefill_context")}
RENAMED = {"num_gpu_blocks_override": "num_gpu_blocks", "scheduling_policy": "policy"}
TABLES = ("speculative_config", "compilation_config", "structured_outputs_config", "kv_transfer_config")
OF_LORA = {"max_loras": "max_loras", "max_cpu_loras": "max_cpu_loras", "max_lora_rank": "rank"}


@pytest.fixture
def faults():
    """Return the lines that a call is refused with."""
    def faults_of(call, *arguments):
        with pytest.raises(InputErrors) as caught:
            call(*arguments)
        return list(caught.value.faults)

    return faults_of


def lowered(name, **overrides):
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return lower(load_experiment(CONFIGS / f"{name}.toml", dotted))


def parsed(words):
    """Return the flags of `vllm serve` as argparse, knowing no flag, would read them: name -> value."""
    flags, words = {}, list(words)
    while words:
        flag = words.pop(0)
        assert flag.startswith("--")
        name, value = flag[2:].replace("-", "_"), True
        if name.startswith("no_"):
            name, value = name[3:], False
        elif words and not words[0].startswith("--"):
            value = words.pop(0)
        assert name not in flags
        flags[name] = value
    return flags


def read_back(flags):
    """Return the tables of an experiment that flags say, TOML values as far as they are plain."""
    tables = {"topology": {}, "engine": {}, "model": {}}
    for name, value in flags.items():
        if name in TABLES or name in ("enable_lora", "enable_expert_parallel", "all2all_backend",
                                      "data_parallel_hybrid_lb", "kv_offloading_size", "kv_offloading_backend"):
            continue
        if name in OF_LORA:
            table, key = tables["engine"].setdefault("lora", {}), OF_LORA[name]
        elif name in TOPOLOGY or name in ("cp_kv_cache_interleave_size", "dcp_comm_backend"):
            table, key = tables["topology"], TOPOLOGY.get(name, name)
        elif name in ("dtype", "kv_cache_dtype"):
            table, key = tables["model"], name
        else:
            table, key = tables["engine"], RENAMED.get(name, name)
        table[key] = value
    return tables


def holds(said, table):
    """Say whether what flags say is what a table has."""
    return all(holds(value, table[key]) if isinstance(value, dict) else str(value) == str(table[key])
               for key, value in said.items())


@pytest.mark.parametrize("name", [
    "quickstart", "speculative", "draft_model", "cuda_graphs", "deepseek_dp8", "deepseek_dp64", "context_parallel",
    "prefill_context_parallel", "lora", "structured_outputs", "host_tier", "windows", "pools",
    "prefill_decode", "weighted"])
def test_flags_read_back_are_the_experiment(name):
    experiment = load_experiment(CONFIGS / f"{name}.toml")
    for server, pool in zip(lower(experiment).servers, experiment.all_pools(), strict=True):
        table = plain(pool)
        table["engine"].setdefault("max_model_len", dict(server.arguments)["--max-model-len"])     # the model's own
        assert holds(read_back(parsed(server.words())), table)


def test_every_way_of_being_scheduled_has_its_flag():
    experiment = {
        "max_num_scheduled_tokens": 4096, "max_num_active_seqs": 64, "long_prefill_token_threshold": 512,
        "long_prefill_token_threshold_adaptive": True, "policy": "priority", "scheduler_reserve_full_isl": False,
        "watermark": 0.02, "async_scheduling": False, "enable_prefix_caching": False, "num_gpu_blocks": 12_000}
    told = lowered("quickstart", **{f"engine__{key}": value for key, value in experiment.items()})
    flags = parsed(told.servers[0].words())
    assert {key: flags[{"policy": "scheduling_policy", "num_gpu_blocks": "num_gpu_blocks_override"}.get(key, key)]
            for key in experiment} == {
        key: value if isinstance(value, bool) else f"{value}" for key, value in experiment.items()}


def test_old_vllm_is_told_what_it_knows_and_the_rest_is_said():
    old = lowered("quickstart", engine__vllm_version="0.10", engine__watermark=0.05)
    assert old.servers[0].version == "0.10.1"
    assert "watermark" not in parsed(old.servers[0].words())
    assert "engine.watermark = 0.05" in old.left_out


def test_drafts_graphs_masks_and_offloading_are_told_as_vllm_takes_them():
    draft = json.loads(parsed(lowered("draft_model").servers[0].words())["speculative_config"])
    assert draft == {"method": "draft_model", "num_speculative_tokens": 3, "model": "Qwen/Qwen3-0.6B",
                     "draft_tensor_parallel_size": 2}
    graphs = parsed(lowered("cuda_graphs", engine__cuda_graphs__capture_sizes=[1, 2, 4]).servers[0].words())
    assert json.loads(graphs["compilation_config"]) == {
        "cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [1, 2, 4]}
    host = parsed(lowered("host_tier").servers[0].words())
    assert (host["kv_offloading_size"], host["kv_offloading_backend"]) == ("64", "native")
    assert "kv_transfer_config" not in host
    host = parsed(lowered("host_tier", kv_tiers__sync_load_budget_bytes=2**28, kv_tiers__eviction_policy="arc",
                          ).servers[0].words())
    assert json.loads(host["kv_transfer_config"]) == {"kv_connector_extra_config": {
        "eviction_policy": "arc", "sync_load_budget_bytes": 2**28}}
    wide = parsed(lowered("deepseek_dp64").servers[0].words())
    assert wide["enable_expert_parallel"] is True and wide["all2all_backend"] == "deepep_low_latency"


@pytest.mark.parametrize(("name", "lines"), [
    ("weighted", ["cluster.routing.policy", "cluster.routing.scorers", "latency.backend"]),
    ("speculative", ["engine.speculative.acceptance.distribution", "engine.speculative.num_tokens"]),
    ("lora", ["engine.lora.h2d_gb_per_s"]),
    ("prefill_decode", ["pools.decode.latency.efficiency"])])
def test_what_no_server_can_be_told_is_said(name, lines):
    left_out = lowered(name).left_out
    for line in lines:
        assert any(each.startswith((f"{line} = ", f"{line}: ")) for each in left_out), left_out


def test_strict_refuses_what_would_be_a_comment(capsys):
    assert cli.main(["export", str(CONFIGS / "weighted.toml"), "--as", "vllm", "--strict"]) == 2
    assert 'no server can be told cluster.routing.policy = "weighted"' in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_command_is_one_that_a_shell_reads():
    script = 'vllm() { printf "%s\\0" "$@"; }\n' + text_of(lowered("draft_model"), "vllm")
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")
    assert words == [*lowered("draft_model").servers[0].command()[1:], ""]


def test_compose_gives_each_server_gpus_of_its_own():
    document = yaml.safe_load(text_of(lowered("pools"), "compose"))
    devices = [service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
               for service in document["services"].values()]
    assert devices == [["0", "1", "2", "3"], ["4"], ["5"], ["6"]]       # 4 GPUs, 1, and two of 1
    assert len({tuple(service["ports"]) for service in document["services"].values()}) == 4


def test_compose_is_of_one_machine(faults):
    assert faults(text_of, lowered("deepseek_dp64"), "compose") == [
        "--as compose describes one machine: 64 GPUs are needed, the node has 8"]


def test_chart_has_decode_and_prefill_with_connector():
    values = yaml.safe_load(text_of(lowered("prefill_decode"), "llm-d"))
    assert values["modelArtifacts"]["uri"] == "hf://meta-llama/Llama-3.1-8B"
    # 8.03e9 parameters of 2 bytes, and a tenth: 16.45 GiB, rounded up
    assert values["modelArtifacts"]["size"] == "17Gi"
    assert values["routing"]["proxy"] == {"enabled": True, "targetPort": 8200, "connector": "nixlv2"}
    assert (values["decode"]["replicas"], values["prefill"]["replicas"]) == (2, 2)
    for role in ("decode", "prefill"):
        (container,) = values[role]["containers"]
        told = parsed(container["args"])
        assert json.loads(told["kv_transfer_config"])["kv_connector"] == "NixlConnector"
        assert "tensor_parallel_size" not in told and values[role]["parallelism"] == {"tensor": 1, "data": 1}


def test_graph_has_a_worker_for_each_role_and_routes_by_cache_where_that_was_simulated():
    services = yaml.safe_load(text_of(lowered("prefill_decode"), "dynamo"))["spec"]["services"]
    assert [services[f"Vllm{role.title()}Worker"]["subComponentType"] for role in ("decode", "prefill")] == [
        "decode", "prefill"]
    args = services["VllmPrefillWorker"]["extraPodSpec"]["mainContainer"]["args"]
    assert args[:2] == ["--model", "meta-llama/Llama-3.1-8B"] and args[-1] == "--is-prefill-worker"
    routed = lowered("weighted", cluster__routing={"policy": "dynamo"})
    front = yaml.safe_load(text_of(routed, "dynamo"))["spec"]["services"]["Frontend"]
    assert front["envs"] == [{"name": "DYN_ROUTER_MODE", "value": "kv"}]


def test_graph_spans_nodes():
    worker = yaml.safe_load(text_of(lowered("deepseek_dp64"), "dynamo"))["spec"]["services"]["VllmDecodeWorker"]
    assert (worker["multinode"], worker["resources"]["limits"]["gpu"]) == ({"nodeCount": 8}, "8")


@pytest.mark.parametrize(("name", "fault"), [
    ("sglang", 'engine.scheduler: expected "vllm", whose servers are written, found "sglang"'),
    ("linear", "model: missing: a server serves a model"),
    ("split_wise", 'engine.scheduler: expected "vllm", whose servers are written, found "split_wise"')])
def test_what_is_no_server_of_vllm_is_refused(name, fault, capsys):
    assert cli.main(["export", str(CONFIGS / f"{name}.toml"), "--as", "vllm"]) == 2
    assert fault in capsys.readouterr().err


def test_chart_of_several_pools_is_refused(faults):
    assert faults(text_of, lowered("pools"), "llm-d") == [
        "--as llm-d describes one pool, or one for prompts and one for decodes; found large (both), small-h100 (both), "
        "small-l40s (both)"]


def test_file_is_written_once(tmp_path, capsys):
    out = tmp_path / "serve.sh"
    assert cli.main(["export", str(CONFIGS / "quickstart.toml"), "--as", "vllm", "--out", str(out)]) == 0
    assert out.read_text() == text_of(lowered("quickstart"), "vllm")
    assert cli.main(["export", str(CONFIGS / "quickstart.toml"), "--as", "vllm", "--out", str(out)]) == 2
    assert "exists; --overwrite replaces a file" in capsys.readouterr().err


def test_results_are_not_taken_for_an_experiment(tmp_path, capsys):
    assert cli.main(["export", str(CONFIGS / "quickstart.toml"), "--as", "vidur"]) == 2
    assert "a file; --as vidur exports the results of a run" in capsys.readouterr().err
