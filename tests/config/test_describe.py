"""`list` and `describe` tell what can be chosen."""
import json
import re

import pytest

from simulator import registry
from simulator.config import describe
from simulator.config.describe_model import derived_lines, weights_by_part
from simulator.config.experiment import Experiment
from simulator.config.fields import table_of
from simulator.config.huggingface.reader import read_config
from simulator.domain import facts
from simulator.errors import InputErrors

# Names of numbers without a unit: counts of what they name, and ratios.
COUNTS = (r"num_\w+|\w+s|\w+s_per_\w+|\w+_(parallel|count|degree|gpu|size|split|index)|size|acceptance|"
          r"max_in_flight|copies_of_first|image|video|(\w+_)?(seed|depth|priority|concurrency|load|top_k|waiting)|which|start")
RATIOS = (r"mfu_\w+|mem_fraction_static|"
          r"\w+_(efficiency|fraction|overlap|scale|utilization|share|factor|score|threshold|ceiling)|"
          r"(\w+_)?watermark|efficiency|share|(\w+_)?weight|temperature|distribution|exponent|cv|beta|\w+_shape|"
          r"\w+_boundary|tolerance|target|comfortable|scale|factor|(\w+_)?ratio|peak_to_trough|theta|alpha|"
          r"\w+_frac|credit_decay|"
          r"threshold|\w+_value|base")        # these two in the unit of the metric, or of the rule, that they go with


def paragraph(text, key):
    """Return the lines of a key as one, and its cells."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split("  ")[0] == key)
    rest = next((i for i, line in enumerate(lines) if i > first and not line.startswith("    ")), len(lines))
    return " ".join(" ".join(lines[first:rest]).split()), lines[first].split("  ")


def test_names_of_a_kind_stand_one_a_line():
    assert describe.list_text("workloads").splitlines() == [
        "clients", "sessions", "synthetic", "trace", "vidur", "vllm_multi_turn"]
    assert {"linear", "roofline"} <= set(describe.list_text("latency").splitlines())
    assert "llama-3.1-8b" in describe.list_text("models").splitlines()


@pytest.mark.parametrize(("word", "kind"), [
    ("models", "model"), ("model", "model"), ("hardware", "hardware"), ("nodes", "node"), ("schedulers", "scheduler"),
    ("latency backends", "latency"), ("latency-backend", "latency"), ("latency", "latency"), ("routers", "router"),
    ("trace_formats", "trace_format"), ("Arrival Processes", "arrival"),
    ("length distributions", "length_distribution"),
    ("time distributions", "time_distribution"), ("changing rates", "rate"), ("presets", "preset"),
    ("workloads", "workload"), ("tables", "table"), ("admission policies", "admission"),
    ("protocols of KV tiers", "kv_tier"), ("descriptions of clients", "client_format"),
    ("results table", "results_table"), ("results_tables", "results_table"),
    ("acceptance", "acceptance"),
])
def test_kind_is_known_by_its_name_and_title_one_or_many(word, kind):
    assert describe.kind_of(word) == kind


def test_unknown_kind_is_refused_with_the_nearest(faults):
    assert faults(describe.kind_of, "shedulers") == ['no kind "shedulers"; did you mean scheduler?']


def test_without_a_kind_every_kind_is_listed():
    text = describe.list_text()
    for title in ("models (", "hardware (", "nodes (", "schedulers (", "latency backends (", "arrival processes ("):
        assert f"\n{title}" in f"\n{text}"
    assert max(map(len, text.splitlines())) <= 80


def test_backend_is_described_with_keys_types_defaults_units_and_meaning():
    lines = describe.describe_text("latency", "linear").splitlines()
    assert lines[0] == "latency backend linear (simulator.latency.linear:Linear)"
    line, _ = paragraph("\n".join(lines), "base_us")
    assert line == "base_us a number from 0 to 1000000000000 default 5000.0 us constant time of an iteration"


def test_inner_tables_and_required_keys_are_described():
    line, cells = paragraph(describe.describe_text("scheduler", "vllm"), "speculative.num_tokens")
    assert cells[1:] == ["an integer from 1 to 1024", "required", "tokens"]
    assert line.endswith("drafts per step")


def test_tables_in_a_list_are_described():
    _, cells = paragraph(describe.describe_text("table", "cluster.routing"), "scorers[].weight")
    assert cells[1] == "a number > 0"


def test_table_of_the_experiment_is_described():
    text = describe.describe_text("table", "engine")
    assert "gpu_memory_utilization" in text
    assert '"vtc" or "module:Class"' in text


def test_table_that_stands_in_a_list_is_one_of_the_experiment():
    assert {"pools", "cluster.routing.scorers", "slo.classes"} <= set(describe.names("table"))
    assert describe.describe_text("table", "slo.classes").startswith("[[slo.classes]]\n")


@pytest.mark.parametrize(("kind", "name", "part"), [
    ("model", "llama-3.1-8b", "num_layers"),
    ("hardware", "h100-sxm-80gb", "memory_bandwidth_bytes_per_s  3.35e+12"),
    ("node", "dgx-h100", "num_accelerators"),
])
def test_facts_are_described_with_values_and_source(kind, name, part):
    text = describe.describe_text(kind, name)
    assert part in text
    assert "\n\nSource: " in text


@pytest.mark.parametrize(("kind", "name", "message"), [
    ("scheduler", "vlm", 'no scheduler "vlm"; did you mean vllm?'),
    ("table", "engin", 'no table "engin"; did you mean engine?'),
    ("model", "llama-3.1-8", 'no model "llama-3.1-8" in models/; did you mean llama-3.1-8b?'),
])
def test_unknown_name_is_refused_with_the_nearest(faults, kind, name, message):
    assert faults(describe.describe_text, kind, name) == [message]


@pytest.mark.parametrize(("name", "unit"), [
    ("base_us", "us"), ("per_context_token_us", "us"), ("rate_per_s", "1/s"), ("memory_bytes", "B"),
    ("scaleup_bytes_per_s", "B/s"), ("dense_flops_per_s.fp8", "FLOP/s"), ("num_lookahead_tokens", "tokens"),
    ("nic_gb_per_s", "GB/s"), ("fabric.nvlink_gbps", "Gbit/s"), ("max_model_len", "tokens"),
    ("engine.block_size", "tokens"), ("seed", ""),
])
def test_unit_is_read_off_the_name(name, unit):
    assert describe.unit_of(name) == unit


def numbers():
    """Return place, name and unit of each number that an experiment may hold."""
    structs = {("experiment", ""): Experiment} | {
        (kind, name): registry.parameters_of(registry.load(kind, name))
        for kind, entry in registry.KINDS.items() for name in entry.entries}
    return [(*place, key, unit) for place, struct in structs.items() for field in table_of(struct).fields
            for key, allowed, _, unit, _ in describe.rows_of(field) if re.search("number|integer", allowed)]


def test_every_number_has_a_unit_or_is_by_its_name_a_count_or_a_ratio():
    unclear = [number for number in numbers()
               if not number[3] and not re.fullmatch(f"{COUNTS}|{RATIOS}", number[2].split(".")[-1])]
    assert unclear == [], "end its name in a unit, declare one (fields.py), or let COUNTS or RATIOS know the name"


def test_unit_may_stand_in_the_declaration():
    units = {number[:3]: number[3] for number in numbers()}
    assert units["length_distribution", "lognormal", "std"] == "tokens"
    assert units["length_distribution", "empirical", "values"] == "tokens"
    assert units["collective", "busbw", "tensor.all_reduce"] == "GB/s"
    assert units["latency", "blackbox", "alpha"] == "us"


def test_columns_of_the_results_are_described_with_units_and_codes(faults):
    lines = describe.describe_text("results table", "requests").splitlines()

    assert lines[0] == "/requests in results.h5"
    text = "\n".join(lines)
    assert paragraph(text, "prompt_tokens") == (
        "prompt_tokens tokens length of the prompt", ["prompt_tokens", "tokens"])
    assert paragraph(text, "finish_reason")[0].endswith(
        "say length too: stop, length, max_model_len, timeout, error, abort, rejected, cancelled, kv_pool")
    assert describe.list_text("results tables").splitlines()[0] == "requests"
    assert faults(describe.describe_text, "results table", "request") == [
        'no results table "request"; did you mean requests?']


def test_key_is_described_with_who_reads_it():
    lines = describe.describe_text("key", "engine.chunk_size").splitlines()
    assert lines[0] == "engine.chunk_size"
    assert [line.split("  ")[0] for line in lines[1:] if not line.startswith("    ")] == ["read by scheduler sarathi"]


def test_key_is_known_by_its_end_and_by_the_number_of_a_list_item():
    text = describe.describe_text("key", "rate_per_s")
    assert "\nworkload.arrival.rate_per_s\n" in text and "\nworkload.load.stages.rate_per_s, " in f"\n{text}"
    assert describe.describe_text("key", "pools.0.replicas").startswith("pools.replicas\n")


def test_every_key_that_is_listed_is_described():
    listed = set(describe.names("key"))
    assert {"seed", "engine.max_num_seqs", "latency.base_us", "cluster.routing.scorers.weight"} <= listed
    assert all(describe.describe_text("key", name) for name in listed if name.startswith("cluster."))


def test_unknown_key_is_refused_with_the_nearest(faults):
    assert faults(describe.describe_text, "key", "max_num_seq") == ['no key "max_num_seq"; did you mean max_num_seqs?']
    assert faults(describe.describe_text, "key", "engin.block_size") == [
        'no key "engin.block_size"; did you mean engine.block_size?']


@pytest.mark.ci
@pytest.mark.slow
def test_nothing_that_is_described_is_wider_than_a_terminal():
    wide = {f"{kind} {name}": line for kind in describe.TITLES for name in describe.names(kind)
            for line in describe.describe_text(kind, name).splitlines() if len(line) > 80}

    assert wide == {}


def test_a_config_json_is_described(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "max_position_embeddings": 512, "torch_dtype": "bfloat16"}))

    text = describe.describe_text("model", str(tmp_path / "tiny/config.json"), read_config)

    assert text.startswith("model tiny\n") and "\nnum_layers" in text


@pytest.mark.parametrize(("name", "near"), [
    ("h200", "h200-sxm-141gb"), ("b200", "b200-sxm-180gb"), ("h200-sxm", "h200-sxm-141gb"), ("rtx4090", "rtx-4090")])
def test_the_nearest_accelerator_is_of_the_same_generation(faults, name, near):
    assert faults(describe.describe_text, "hardware", name) == [
        f'no hardware "{name}" in hardware/; did you mean {near}?']


def test_a_path_that_is_missed_says_that_names_and_paths_are_taken(faults, tmp_path):
    assert faults(describe.describe_text, "hardware", f"{tmp_path}/mine.toml") == [
        f'no file "{tmp_path}/mine.toml"; valid: ' + ", ".join(facts.names("hardware")[:40])
        + f" and {len(facts.names('hardware')) - 40} more"]
    (missed,) = faults(describe.describe_text, "hardware", "zzz")
    assert missed.endswith("; or the path of a .toml file of your own")


@pytest.mark.parametrize(("key", "said"), [
    ("study.statistics.min_tail", "read by studies sweep, capacity, tune  a number >= 0  default 50.0"),
    ("min_tail", "read by studies sweep, capacity, tune  a number >= 0  default 50.0"),
    ("study.slo.backlog", 'read by studies capacity, tune  one of "any", "stable"  default "stable"'),
    ("study.axes.NAME.scale", 'read by studies sweep, capacity, tune  one of "linear", "log"  default "linear"'),
    ("study.fit.NAME.prior_sd",
     "study calibrate  a number > 0                 standard deviation of the prior"),
    ("study.mix.0.replicas.to", "read by study capacity  an integer from 0 to 1048576  required"),
    ("study.limits.gpus", "read by study tune  an integer from 1 to 1048576")])
def test_key_of_a_study_is_described(key, said):
    assert said in describe.describe_text("key", key).splitlines()


def test_every_key_of_every_study_is_listed_and_described():
    listed = set(describe.names("key"))
    for kind in registry.STUDIES:
        for field in table_of(registry.study_table(kind)).fields:
            for name, *_, meaning in describe.rows_of(field):
                assert meaning, f"{kind}: {name}"
                assert f"study.{name}".replace("[]", "") in listed


def test_mistyped_key_of_a_study_is_told_the_nearest(faults):
    assert faults(describe.describe_text, "key", "study.statistics.min_tial") == [
        'no key "study.statistics.min_tial"; did you mean study.statistics.min_tail?']


def test_studies_and_their_tables_are_described():
    assert describe.list_text("studies").splitlines() == list(registry.STUDIES)
    assert {"study", "study.statistics", "study.mix", "study.limits"} <= set(describe.names("table"))
    assert describe.describe_text("study", "tune").startswith('[study] with kind = "tune"\n')
    whole = describe.describe_text("table", "study")
    for kind in registry.STUDIES:
        assert f'[study] with kind = "{kind}"' in whole.splitlines()
    for name in [*(f"table {name}" for name in describe.names("table") if name.startswith("study")), "study sweep"]:
        assert max(map(len, describe.describe_text(*name.split()).splitlines())) <= 80


def counts_of(name):
    """Return the lines of counts of a model, by their names."""
    lines = derived_lines(facts.load_model(name))
    column = lines[0].rindex(" ", 0, lines[0].index(" x ")) + 1
    return {line[:column].rstrip(): line[column:] for line in lines}


@pytest.mark.parametrize("name", facts.names("model"))
def test_weights_by_part_add_up_to_the_model(name):
    model = facts.load_model(name)

    assert weights_by_part(model).total() == model.num_parameters


def test_weights_around_layers_and_of_embeddings_have_their_names():
    # Gemma-3n: 262,144 rows of 35 layers of 256, and a projection of 2,048 to these, with a norm
    assert weights_by_part(facts.load_model("gemma-3n-e4b"))["embedding for each layer"] == (
        262_144 * 8960 + 2048 * 8960 + 256)
    # DeepSeek-V4: 2 sites of 43 layers with 24 rows of 4 x 4096 and 27 small weights; at the end 4 rows and 5
    assert weights_by_part(facts.load_model("deepseek-v4-flash"))["hyper-connections"] == (
        43 * 2 * (24 * 4 * 4096 + 27) + 4 * 4 * 4096 + 5)
    # GPT-BigCode: 8,192 learned positions of 6,144
    assert weights_by_part(facts.load_model("starcoder"))["learned positions"] == 8192 * 6144


def test_the_cache_is_shown_in_the_format_that_auto_is():
    counts = counts_of("deepseek-v4-flash")         # shared/data/model_configs, expected.json

    assert counts["KV of a token, fp8 by auto"] == "3850.25 bytes"
    assert counts["KV of the last 128 tokens, each"] == "25112 bytes"
    # of 21 CSA layers keys and gates of 2 x 512 and 2 x 128 elements, of 20 HCA layers of 512: in float32
    assert counts["rings of the last 8 tokens, each"] == f"{21 * 4 * (2048 + 512)} bytes"
    assert counts["rings of the last 128 tokens, each"] == f"{20 * 4 * 1024} bytes"


def test_a_cache_that_differs_by_card_is_shown_twice():
    counts = counts_of("glm-5")                     # 78 layers of a latent of 576 and an index key of 132 bytes

    assert counts["KV of a token, bfloat16"] == f"{78 * (1152 + 132)} bytes"
    assert counts["KV of a token, fp8 by auto, on B200 and B300"] == f"{78 * (576 + 132)} bytes"
    assert "KV of a token, fp8 by auto" in counts_of("deepseek-v3.2-nvfp4")     # declared, packed on Hopper


def test_a_model_shows_the_counts_that_follow():
    lines = describe.describe_text("model", "qwen3-next-80b-a3b").partition("Counts that follow:\n")[2].splitlines()

    counts = counts_of("qwen3-next-80b-a3b")
    assert counts["layers 3-47, each 4"] == "12 x multi_head + 512 experts"
    assert counts["weights of the decoder"] == "79_674_391_296"
    assert counts["KV of a token, bfloat16"] == "24576 bytes"               # 12 layers of 2 KV heads of 256
    parts = [int(count) for name, count in counts.items() if name.startswith("weights of")]
    assert sum(parts) == 2 * 79_674_391_296                                 # the parts, and the decoder
    assert all(len(line) <= 80 for line in lines)


def test_windows_and_states_are_shown_apart():
    assert "\nKV of the last 1024 tokens, each" in describe.describe_text("model", "gemma-3-27b")
    assert "\nstates of a sequence " in describe.describe_text("model", "nemotron-3-nano-30b-a3b")


@pytest.mark.parametrize(("kind", "like", "shown"), [
    ("models", "QWEN3.5-2", ["qwen3.5-27b"]), ("models", "meta-llama/Llama-3.2", ["llama-3.2-1b", "llama-3.2-3b"]),
    ("hardware", "h20-", ["h20-3e-141gb", "h20-96gb"])])
def test_names_that_are_alike_are_listed(kind, like, shown):
    assert describe.list_text(kind, like).splitlines() == shown


def test_names_that_nothing_is_like_are_refused():
    with pytest.raises(InputErrors, match=r'no model is like "lllama-3\.1-8b"; did you mean llama-3\.1-8b'):
        describe.list_text("models", "lllama-3.1-8b")
    with pytest.raises(InputErrors, match="needs the kind of names"):
        describe.list_text(like="qwen")
