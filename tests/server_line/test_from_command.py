"""`from`: what is taken, defaulted, without effect, not modelled; versions, refusals, variables, differences."""
import io
import json

import pytest
import tomli

from simulator import cli
from simulator.domain.serving import KvEvents, Serve
from simulator.study.deployment.event_keys import events_flag

LLAMA = "vllm serve meta-llama/Llama-3.1-8B-Instruct"


def translated(capsys, source, *options, gpu="h100-sxm-80gb"):
    """Return exit status, experiment and lists."""
    status = cli.main(["from", source, "--gpu", gpu, "--json", *options])
    printed = capsys.readouterr()
    if not printed.out:
        return status, None, printed.err
    lists = json.loads(printed.out)
    return status, tomli.loads(lists["experiment"]), lists


@pytest.mark.parametrize(("gpu", "tokens", "sequences"), [
    ("h100-sxm-80gb", 8192, 1024), ("h200-sxm-141gb", 8192, 1024), ("b200-sxm-180gb", 16384, 1024),
    ("a100-sxm-80gb", 2048, 256), ("l4", 2048, 256), ("rtx-pro-6000-server", 8192, 1024)])
def test_the_batch_is_that_of_the_engine_on_the_card(capsys, gpu, tokens, sequences):
    _, experiment, _ = translated(capsys, f"{LLAMA} --max-model-len 8192", gpu=gpu)
    engine = experiment["engine"]
    assert (engine["max_num_batched_tokens"], engine["max_num_seqs"]) == (tokens, sequences)
    assert engine["gpu_memory_utilization"] == 0.92


def test_an_automatic_length_is_the_longest_that_fits(capsys):
    line = "vllm serve Qwen/Qwen3-8B --max-model-len"
    assert translated(capsys, f"{line} 40960", gpu="l4")[0] == 2
    _, experiment, _ = translated(capsys, f"{line} auto", gpu="l4")
    assert 4096 < experiment["engine"]["max_model_len"] < 40960


@pytest.mark.parametrize(("setting", "more", "gib"), [("0", "", 0.0), ("1", "", None), ("0", " --enforce-eager", None)])
def test_the_environment_says_whether_graphs_are_taken_off(capsys, setting, more, gib):
    line = f"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS={setting} {LLAMA}{more}"
    _, experiment, _ = translated(capsys, line)
    assert experiment["engine"]["cuda_graphs"].get("memory_gib") == gib


def test_modules_that_the_engine_does_not_load_are_refused(capsys):
    line = ("vllm serve MiniMaxAI/MiniMax-M2.7 --tensor-parallel-size 8 --speculative-config "
            """'{"method": "mtp", "num_speculative_tokens": 3}'""")
    status, _, text = translated(capsys, line, gpu="h200-sxm-141gb")

    assert status == 2
    assert "no drafter for the MTP modules of MiniMaxM2ForCausalLM" in text


@pytest.mark.parametrize(("drafts", "key", "left"), [
    ({"method": "eagle3", "model": "m/EAGLE3-LLaMA3.1-8B", "parallel_drafting": True}, True, False),
    ({"method": "dflash", "model": "m/Llama-3.1-8B-DFlash"}, None, True)])
def test_drafts_from_one_pass(capsys, drafts, key, left):
    line = f"{LLAMA} --max-model-len 8192 --speculative-config '{json.dumps(drafts | {'num_speculative_tokens': 3})}'"
    _, experiment, lists = translated(capsys, line)

    assert experiment["engine"].get("speculative", {}).get("parallel_drafting") is key
    assert any(row[2] == "drafts by dflash" for row in lists["not_modelled"]) is left


def test_a_size_of_the_kv_cache_replaces_the_share_of_memory(capsys, tmp_path):
    line = f"{LLAMA} --max-model-len 8k --gpu-memory-utilization 0.5 --kv-cache-memory-bytes 10G"
    status, experiment, lists = translated(capsys, line)
    file = tmp_path / "sized.toml"
    file.write_text(lists["experiment"], encoding="utf-8")
    exported = (cli.main(["export", str(file), "--as", "vllm"]), capsys.readouterr().out)[1]
    cli.main(["validate", str(file)])

    assert status == 0
    assert experiment["engine"]["kv_cache_memory_bytes"] == 10 * 2**30
    assert "gpu_memory_utilization" not in experiment["engine"]
    assert lists["without_effect"] == [["--gpu-memory-utilization", "0.5"]]
    assert "--kv-cache-memory-bytes 10737418240" in exported and "--gpu-memory-utilization" not in exported
    assert "engine.num_gpu_blocks = 5120\n" in capsys.readouterr().out         # of 2 MiB: 10 GiB


def test_blocks_replace_a_size_of_the_kv_cache(capsys):
    status, experiment, lists = translated(
        capsys, f"{LLAMA} --max-model-len 8k --kv-cache-memory-bytes 10G --num-gpu-blocks-override 4000")

    assert status == 0
    assert experiment["engine"]["num_gpu_blocks"] == 4000 and "kv_cache_memory_bytes" not in experiment["engine"]
    assert [row[0] for row in lists["without_effect"]] == ["--kv-cache-memory-bytes"]


def test_flags_go_to_their_lists(capsys):
    line = f"{LLAMA} -tp 2 --max-num-seqs 64 --port 8000 --stream-interval 4 --swa-bounded-replay"
    status, experiment, lists = translated(capsys, line)
    assert status == 3
    assert experiment["topology"]["tensor_parallel"] == 2 and experiment["engine"]["max_num_seqs"] == 64
    assert ["--max-num-seqs", "64", "engine.max_num_seqs"] in lists["taken"]
    assert [row[0] for row in lists["without_effect"]] == ["--port", "--swa-bounded-replay"]  # a default
    assert [row[0] for row in lists["not_modelled"]] == ["--stream-interval"]
    assert ["engine.max_num_batched_tokens", "8192"] in [row[:2] for row in lists["defaulted"]]
    assert translated(capsys, line, "--allow-unmodelled")[0] == 0


@pytest.mark.parametrize(("line", "words"), [
    (f"{LLAMA} -tp 3", ("heads by TP", "32 attention heads")),
    (f"{LLAMA} --max-num-batched-tokens 64 --max-num-seqs 256", ("fewer tokens than sequences",)),
    (f"{LLAMA} --max-num-seq 64 --max-num-bathed-tokens 8", ("unrecognized arguments", "--max-num-batched-tokens")),
    (f"{LLAMA} --swap-space 4", ("unrecognized arguments: --swap-space 4", "--swap-space is gone")),
    ("vllm serve meta-llama/Llama-3.3-70B-Instruct", ("does not start", "weights need")),
    (f"{LLAMA} --enable-expert-parallel", ("no experts",)),
    (f"{LLAMA} --max-model-len 200000", ("longer than the model", "131072")),
    (f"{LLAMA} --kv-cache-memory-bytes 8Gi", ("8Gi",)),
    ("vllm serve acme/a-model-without-a-name", ("--config FOLDER",)),
    ("vllm serve $MODEL", ("${MODEL} is not set",)),
    ("vllm serve $(cat model.txt)", ("$(cat model.txt) is not executed",)),
    ("echo hello", ("no start of a server",)),
    ("docker run vllm/vllm-openai:v0.12.0 --model Qwen/Qwen3-8B", ("0.12.0: not modelled", "nearest")),
])
def test_what_the_engine_refuses_or_nothing_is_known_of_is_refused(capsys, line, words):
    assert cli.main(["from", line, "--gpu", "h100-sxm-80gb"]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in words), message


def test_a_flag_of_another_version_names_it(capsys):
    line = f"{LLAMA} --disable-log-requests"
    assert cli.main(["from", line, "--gpu", "l4", "--version", "0.32"]) == 2
    assert "vLLM 0.33 knows --disable-log-requests" in capsys.readouterr().err
    assert cli.main(["from", line + " --max-model-len 8192", "--gpu", "l4", "--version", "0.33"]) == 0


def test_the_tag_of_an_image_gives_the_version_and_nearest_the_nearest(capsys):
    line = "docker run --gpus all vllm/vllm-openai:v{} --model Qwen/Qwen3-8B"
    assert "vllm 0.32: vLLM 0.32.0" in translated(capsys, line.format("0.32.0"))[2]["experiment"]
    text = translated(capsys, line.format("0.12.0"), "--version", "nearest")[2]["experiment"]
    assert "vllm 0.32: nearest to 0.12.0" in text


def test_no_part_of_a_script_is_executed(capsys, tmp_path):
    made = tmp_path / "made"
    script = tmp_path / "serve.sh"
    script.write_text(f"#!/bin/bash\nset -e\nexport MODEL=Qwen/Qwen3-8B  # a model\ntouch {made}\n"
                      f"x=$(touch {made})\n\nexec vllm serve \"$MODEL\" \\\n  --max-model-len 8k \\\n"
                      "  --compilation-config '{\"cudagraph_mode\": \"PIECEWISE\"}' 2>&1 | tee log\n", encoding="utf-8")
    status, experiment, _ = translated(capsys, str(script))
    assert status == 0 and not made.exists()
    assert experiment["engine"]["max_model_len"] == 8000
    assert experiment["engine"]["cuda_graphs"]["mode"] == "piecewise"


def test_standard_input_is_read_and_variables_can_be_given(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("vllm serve ${MODEL} -tp ${TP:-2}"))
    _, experiment, _ = translated(capsys, "-", "--env", "MODEL=Qwen/Qwen3-8B")
    assert experiment["model"]["name"] == "qwen3-8b" and experiment["topology"]["tensor_parallel"] == 2


def test_a_config_file_is_read_beside_the_script_and_the_command_line_wins(capsys, tmp_path):
    (tmp_path / "serve.yaml").write_text("model: Qwen/Qwen3-8B\nmax-num-seqs: 32\ntensor_parallel_size: 2\n")
    (tmp_path / "serve.sh").write_text("vllm serve --config serve.yaml --max-num-seqs 16\n")
    _, experiment, _ = translated(capsys, str(tmp_path / "serve.sh"))
    assert experiment["model"]["name"] == "qwen3-8b"
    assert (experiment["engine"]["max_num_seqs"], experiment["topology"]["tensor_parallel"]) == (16, 2)


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 2048, "vocab_size": 32000,
          "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}


@pytest.mark.parametrize("as_option", [True, False], ids=["--config", "the model's name"])
def test_a_folder_with_config_json_describes_the_model(capsys, tmp_path, as_option):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    name, options = ("acme/small", ("--config", str(tmp_path))) if as_option else (str(tmp_path), ())
    status, experiment, _ = translated(capsys, f"vllm serve {name}", *options, gpu="l4")
    assert status == 0
    assert experiment["model"] == {"config": str(tmp_path / "config.json")}
    assert experiment["engine"]["max_model_len"] == 4096


def test_roles_become_pools_and_replicas_add_up(capsys, tmp_path):
    server = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --kv-transfer-config"
    lines = [f"{server} '{json.dumps({'kv_connector': 'NixlConnector', 'kv_role': role})}'"
             for role in ("kv_producer", "kv_consumer", "kv_consumer")]
    _, experiment, _ = translated(capsys, " &\n".join(lines))
    assert [(pool["role"], pool["replicas"]) for pool in experiment["pools"]] == [("prefill", 1), ("decode", 2)]
    assert experiment["kv_transfer"]["protocol"] == "nixl"


def test_options_of_the_connector_become_keys_of_the_tier(capsys):
    extra = {"sync_load_budget_bytes": 2**28, "offload_prompt_only": False}
    line = (f"{LLAMA} --max-model-len 8192 --kv-offloading-size 64 --kv-transfer-config "
            f"'{json.dumps({'kv_connector_extra_config': extra})}'")
    status, experiment, _ = translated(capsys, line)
    assert status == 0
    assert experiment["kv_tiers"] == {"protocol": "vllm_offload", "cpu_gib": 64.0} | extra
    status, _, lists = translated(capsys, line.replace('"offload_prompt_only"', '"max_tracker_size"'))
    assert status == 3 and lists["not_modelled"][0][2] == "max_tracker_size of the connector"


@pytest.mark.parametrize(("events", "version", "serve", "left"), [
    ({"endpoint": "tcp://*:5557", "topic": "kv@a", "hwm": 5}, "0.33",
     {"kv_events": {"endpoint": "tcp://*:5557", "topic": "kv@a", "hwm": 5}}, 0),
    ({"publisher": "zmq", "replay_endpoint": "tcp://*:5558", "max_queue_size": 9}, "0.32",
     {"kv_event_encoding": "array", "kv_events": {"endpoint": "tcp://127.0.0.1:5557", "topic": "",
                                                  "replay_endpoint": "tcp://*:5558"}}, 1),
    ({"enable_kv_cache_events": False}, "0.33", None, 0), ({"publisher": "null"}, "0.33", None, 0),
    ({"endpoint": "ipc://events"}, "0.33", None, 1)])
def test_kv_events_are_keys_of_serve(capsys, events, version, serve, left):
    given = json.dumps({"enable_kv_cache_events": True} | events)
    _, experiment, lists = translated(capsys, f"{LLAMA} --max-model-len 8192 --kv-events-config '{given}'",
                                      "--version", version)
    assert experiment.get("serve") == serve
    assert [row[0] for row in lists["not_modelled"]] == ["--kv-events-config"] * left


def test_kv_events_of_several_servers_are_of_one_table(capsys):
    events = [json.dumps({"enable_kv_cache_events": True, "endpoint": f"tcp://*:{5557 + i}"}) for i in range(2)]
    _, experiment, _ = translated(capsys, " &\n".join(
        f"{LLAMA} --max-model-len 8192 --kv-events-config '{each}'" for each in events))
    assert experiment["topology"]["replicas"] == 2
    assert experiment["serve"]["kv_events"]["endpoint"] == "tcp://*:5557"


def test_kv_events_of_a_worker_of_dynamo_are_the_engine_s(capsys):
    events = json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://*:5557"})
    line = LLAMA.replace("vllm serve ", "python -m dynamo.vllm --model ")
    _, experiment, lists = translated(
        capsys, f"{line} --kv-events-config '{events}' --is-decode-worker --max-model-len 8192")
    assert experiment["serve"]["kv_events"]["endpoint"] == "tcp://*:5557"
    assert (experiment["engine"]["max_model_len"], lists["not_modelled"]) == (8192, [])


def test_keys_of_kv_events_become_the_flag_again():
    [(flag, value)] = events_flag(Serve(kv_events=KvEvents(endpoint="tcp://*:5557", topic="kv@a", hwm=5)))
    assert flag == "--kv-events-config"
    assert json.loads(value) == {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5557",
                                 "topic": "kv@a", "hwm": 5}
    assert events_flag(Serve()) == ()


def test_gpus_that_the_ranks_do_not_need_are_named(capsys, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.33.0\n"
                    "    args: [--model, Qwen/Qwen3-8B, -tp, '2']\n"
                    "    resources: {limits: {nvidia.com/gpu: 4}}\n", encoding="utf-8")
    status, _, lists = translated(capsys, str(path))
    assert status == 3 and lists["not_modelled"][0][:2] == ["GPUs of the container", "4"]


def test_differences_of_lines_and_of_versions(capsys):
    drafts = """ --speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'"""
    assert cli.main(["from", LLAMA, "--gpu", "l4", "--diff", f"{LLAMA} --max-num-seqs 8"]) == 0
    assert "scheduler.max_num_seqs: 256 -> 8" in capsys.readouterr().out
    assert cli.main(["from", LLAMA + drafts, "--gpu", "l4", "--version", "0.33", "--diff-version", "0.32"]) == 0
    assert "scheduler.async_scheduling: true -> false" in capsys.readouterr().out


def test_a_written_file_is_kept_unless_it_may_be_replaced(capsys, tmp_path):
    out = tmp_path / "e.toml"
    arguments = ["from", f"{LLAMA} --max-model-len 8192", "--gpu", "l4", "--out", str(out)]
    assert cli.main(arguments) == 0 and out.is_file()
    assert cli.main(arguments) == 2
    assert cli.main([*arguments, "--overwrite"]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().err.splitlines() if "e.toml" not in line)


def test_a_card_goes_by_the_first_parts_of_its_name(capsys):
    _, experiment, _ = translated(capsys, f"{LLAMA} --max-model-len 8192", gpu="b200")
    assert experiment["hardware"]["name"] == "b200-sxm-180gb"
    assert cli.main(["from", f"{LLAMA} --max-model-len 8192", "--gpu", "h100"]) == 0
    assert capsys.readouterr().err.startswith("--gpu h100 is taken as h100-sxm-80gb; there are also h100-nvl-94gb")


def test_the_interval_of_sglang_between_readings_is_a_key_but_of_attention_ranks(capsys):
    line = "python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --scheduler-recv-interval 30"
    status, experiment, lists = translated(capsys, line)
    assert status == 0 and experiment["engine"]["scheduler_recv_interval"] == 30
    assert ["--scheduler-recv-interval", "30", "engine.scheduler_recv_interval"] in lists["taken"]

    status, experiment, lists = translated(capsys, f"{line} --dp-size 2 --tp-size 2 --enable-dp-attention")
    assert status == 3 and "scheduler_recv_interval" not in experiment["engine"]
    assert [row[0] for row in lists["not_modelled"]] == ["--scheduler-recv-interval"]


@pytest.mark.parametrize(("flags", "keys"), [
    ("--disable-overlap-schedule --radix-eviction-policy lfu", {
        "disable_overlap_schedule": True, "radix_eviction_policy": "lfu"}),
    ("--enable-priority-scheduling --schedule-low-priority-values-first --retraction-policy priority "
     "--priority-scheduling-preemption-threshold 3", {
         "enable_priority_scheduling": True, "schedule_low_priority_values_first": True,
         "retraction_policy": "priority", "priority_scheduling_preemption_threshold": 3}),
    ("--enable-priority-scheduling --disable-priority-preemption", {"disable_priority_preemption": True}),
    ("--prefill-decode-interval 3 --prefill-decode-interval-min-bs 4", {
        "prefill_decode_interval": 3, "prefill_decode_interval_min_bs": 4}),
    ("--disable-cuda-graph", {"cuda_graph_backend_decode": "disabled"}),
    ("--enable-lora --max-loras-per-batch 4 --max-lora-rank 64", {"lora": {"max_loras_per_batch": 4, "rank": 64}}),
    ("--cuda-graph-max-bs-decode 64", {"cuda_graph_max_bs_decode": 64}),
    ("--cuda-graph-bs-decode 4 8", {"cuda_graph_bs_decode": [4, 8]}),
    ("--disable-prefill-cuda-graph", {"cuda_graph_backend_prefill": "disabled"})])
def test_flags_of_sglang_with_keys_are_taken(capsys, flags, keys):
    line = f"python -m sglang.launch_server --model-path Qwen/Qwen3-8B {flags}"
    status, experiment, lists = translated(capsys, line)

    assert status == 0 and lists["not_modelled"] == []
    assert {key: experiment["engine"][key] for key in keys} == keys
    given = [word for word in flags.split() if word.startswith("--")]
    assert [row[0] for row in lists["taken"]] == ["--model-path", *given]


@pytest.mark.parametrize(("line", "drafts"), [
    ("Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3", {
        "method": "eagle3", "num_steps": 3, "eagle_topk": 1,
        "acceptance": {"measured": "qwen3-8b/eagle3-angelslim/mt-bench"}}),
    ("meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE --speculative-draft-model-path a/b "
     "--speculative-num-steps 4 --speculative-eagle-topk 2 --speculative-num-draft-tokens 7", {
         "method": "eagle", "num_steps": 4, "eagle_topk": 2, "num_draft_tokens": 7,
         "acceptance": {"mean_length": 1.0}}),
    ("zai-org/GLM-4.5-Air --tp 8 --speculative-algorithm NEXTN", {
        "method": "mtp", "num_steps": 3, "eagle_topk": 1}),
    ("Qwen/Qwen3-8B --speculative-algorithm NGRAM --speculative-num-draft-tokens 20", {
        "method": "ngram", "num_steps": 2, "eagle_topk": 10, "num_draft_tokens": 20, "drafter_per_sequence_us": 0.0,
        "acceptance": {"mean_length": 1.0}})])
def test_drafts_of_sglang_are_taken(capsys, line, drafts):
    status, experiment, lists = translated(capsys, f"python -m sglang.launch_server --model-path {line}")
    assert status == 0 and lists["not_modelled"] == []
    assert experiment["engine"]["speculative"] == drafts
    assert experiment["engine"]["max_running_requests"] == 48


@pytest.mark.parametrize("flags", ["--radix-eviction-policy tlru", "--disable-decode-cuda-graph"])
def test_policies_and_graphs_of_sglang_without_keys_are_told(capsys, flags):
    status, _, lists = translated(capsys, f"python -m sglang.launch_server --model-path Qwen/Qwen3-8B {flags}")

    assert status == 3 and [row[0] for row in lists["not_modelled"]] == [flags.partition(" ")[0]]


@pytest.mark.parametrize(("line", "table", "key"), [
    ("openai/gpt-oss-20b --prefix-cache-retention-interval 256", "engine", "prefix_cache_retention_interval"),
    ("Qwen/Qwen3-8B --prefix-cache-retention-interval 256", "", ""),
    ("Qwen/Qwen3-30B-A3B -dp 2 -ep --dp-sync-interval 4", "data_parallel", "dp_sync_interval"),
    ("Qwen/Qwen3-8B --dp-sync-interval 4", "", "")])
def test_intervals_are_keys_where_they_act(capsys, line, table, key):
    status, experiment, lists = translated(capsys, f"vllm serve {line} --max-model-len 8192")
    given = {key: value for key, value in (
        experiment["engine"] | experiment["engine"].get("data_parallel", {})).items() if key.endswith("_interval")}

    assert status == 0 and lists["not_modelled"] == []
    assert list(given) == ([key] if key else [])
    assert len(lists["without_effect"]) == (not key)


@pytest.mark.parametrize(("text", "interval"), [("None", "dense"), ("0", 0)])
def test_the_interval_of_kept_states_may_be_none(capsys, text, interval):
    _, experiment, _ = translated(
        capsys, f"vllm serve openai/gpt-oss-20b --prefix-cache-retention-interval {text} --max-model-len 8192")

    assert experiment["engine"]["prefix_cache_retention_interval"] == interval


def test_trtllm_serve_takes_whole_flags_alone(capsys):
    assert cli.main(["from", "trtllm-serve Qwen/Qwen3-8B --max_batch 5", "--gpu", "h100-sxm-80gb"]) == 2
    assert "unrecognized arguments: --max_batch 5; did you mean --max_batch_size?" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value", "least"), [
    ("max_num_queued_reqs", -1, 0), ("max_num_queued_tokens", -5, 0), ("max_num_active_seqs", 0, 1),
    ("max_num_scheduled_tokens", 0, 1), ("long_prefill_token_threshold", -1, 0)])
def test_numbers_below_the_least_are_refused(capsys, flag, value, least):
    line = f"{LLAMA} --max-model-len 8192 --{flag.replace('_', '-')} {value}"
    assert cli.main(["from", line, "--gpu", "l4"]) == 2
    assert f"{flag} {value}: expected {least} or more" in capsys.readouterr().err


def test_flags_with_json_are_shown_as_json_and_whole(capsys):
    given = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    line = f"{LLAMA} --max-model-len 8192 --speculative-config '{json.dumps(given)}'"
    _, _, lists = translated(capsys, line)
    cli.main(["from", line, "--gpu", "l4"])
    shown = " ".join(capsys.readouterr().err.split())

    assert ["--speculative-config", json.dumps(given), "engine.speculative"] in lists["taken"]
    assert f"--speculative-config {json.dumps(given)} engine.speculative" in shown
