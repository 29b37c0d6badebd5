"""The fact files load, agree with published numbers, and faults in a user's file are all reported."""
import csv
import re
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain.facts import FOLDERS, folder, load_accelerator, load_model, load_node, names, read_table
from simulator.domain.hardware_spec import AcceleratorSpec, NodeSpec
from simulator.domain.model_spec import ModelSpec
from simulator.errors import InputErrors
from support.parameters import active_parameters, published_scope_parameters
from support.published_configs import CONFIGS

VALIDATION = Path(__file__).parents[3] / "shared/data/models/validation.csv"
# The hub leaves out the router biases of the 23 x 128 experts.
LEFT_OUT_BY_THE_HUB = {"nemotron-3-nano-30b-a3b": 23 * 128}

MODELS, ACCELERATORS, NODES = names("model"), names("hardware"), names("node")


def faults(load, path, text) -> list[str]:
    path.write_text(text)
    with pytest.raises(InputErrors) as caught:
        load(path)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def test_there_are_enough_models_accelerators_and_nodes():
    assert len(MODELS) >= 150
    assert len(ACCELERATORS) >= 45
    assert len(NODES) >= 25


@pytest.mark.parametrize("name", MODELS)
def test_model_has_sources_and_counts_what_was_published(name):
    model = load_model(name)
    published, counted = model.published, published_scope_parameters(model)

    assert model.name == name
    assert "" not in (model.source, model.hf_id, model.architecture, published.source)
    assert re.fullmatch(r"20\d\d-\d\d", model.date)
    if published.kind == "exact":
        assert counted - published.parameters == LEFT_OUT_BY_THE_HUB.get(name, 0)
    elif published.kind == "counted":       # by a program that may leave router biases out
        assert abs(counted / published.parameters - 1) < 1e-6
    else:
        assert abs(counted / published.parameters - 1) < 0.03


def test_a_model_made_of_defaults_says_so():
    of_defaults = [model for model in map(load_model, MODELS) if model.source.startswith("defaults of")]

    assert len(of_defaults) == 8
    assert all("published model may differ" in model.note for model in of_defaults)


@pytest.mark.parametrize("name", MODELS)
def test_model_goes_by_its_repository_on_the_hub_too(name):
    assert load_model(load_model(name).hf_id) == load_model(name)


def test_repository_that_is_not_there_is_answered_with_the_nearest():
    with pytest.raises(InputErrors) as caught:
        load_model("Qwen/Qwen3-235B-A22B-FP9")

    assert caught.value.faults == (
        'no model "Qwen/Qwen3-235B-A22B-FP9" in models/; did you mean Qwen/Qwen3-235B-A22B-FP8?',)


def test_most_published_counts_are_exact():
    kinds = [load_model(name).published.kind for name in MODELS]

    assert kinds.count("exact") >= 58


@pytest.mark.parametrize("name", [name for name in MODELS if load_model(name).published.active])
def test_active_parameters_are_near_the_advertised_ones(name):
    # Advertised figures are rounded, and leave out the input embedding, the head, or neither.
    model = load_model(name)
    everything = active_parameters(model)
    least = everything - model.embedding_parameters - model.lm_head_parameters

    assert least * 0.9 <= model.published.active <= everything * 1.05


def test_counts_agree_with_the_validation_table():
    if not VALIDATION.exists():
        pytest.skip(f"{VALIDATION} is not there")
    with VALIDATION.open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert set(rows) <= set(MODELS)

    for name, row in rows.items():
        model = load_model(name)
        assert model.num_parameters == int(row["computed_decoder_params"]), name
        assert active_parameters(model) == int(row["computed_active_params"]), name


@pytest.mark.parametrize("name", ACCELERATORS)
def test_accelerator_has_sources_and_plausible_rates(name):
    accelerator = load_accelerator(name)

    assert accelerator.name == name
    assert "" not in (accelerator.source, accelerator.confidence)
    assert 15e9 < accelerator.memory_bytes < 320e9
    assert 250e9 < accelerator.memory_bandwidth_bytes_per_s < 10e12
    assert 30e12 < accelerator.flops_per_s("bfloat16") < 6e15
    assert accelerator.flops_per_s("fp4") >= accelerator.flops_per_s("bfloat16")


@pytest.mark.parametrize("name", NODES)
def test_node_names_a_known_accelerator_and_its_links(name):
    node = load_node(name)
    accelerator = load_accelerator(node.accelerator)

    assert node.name == name
    assert node.source
    assert node.scaleup_bytes_per_s in (accelerator.scaleup_bytes_per_s, accelerator.pcie_bytes_per_s)
    # the cards of a node carry what its accelerators are said to send, or more
    assert node.scaleout_bytes_per_s * node.num_accelerators <= node.num_nics * node.nic_bytes_per_s * 1.001


@pytest.mark.parametrize(("name", "memory_bytes", "bandwidth", "bfloat16"), [
    ("h100-sxm-80gb", 85_520_809_984, 3.35e12, 989.4e12),
    ("a100-sxm-80gb", 85_899_345_920, 2.039e12, 312e12),
    ("mi300x", 192 * 2**30, 5.3e12, 1307.4e12),
])
def test_facts_of_common_accelerators(name, memory_bytes, bandwidth, bfloat16):
    accelerator = load_accelerator(name)

    assert accelerator.memory_bytes == memory_bytes
    assert accelerator.memory_bandwidth_bytes_per_s == bandwidth
    assert accelerator.dense_flops_per_s.bfloat16 == bfloat16


def test_formats_without_a_rate_run_at_that_of_the_format_they_are_unpacked_to():
    assert load_accelerator("a100-sxm-80gb").flops_per_s("fp8") == 312e12
    assert load_accelerator("v100-sxm2-32gb").flops_per_s("bfloat16") == 125e12     # of float16
    assert load_accelerator("h100-sxm-80gb").flops_per_s("int4") == 989.4e12


@pytest.mark.parametrize(("load", "wrong", "message"), [
    (load_model, "lama-3.1-8b", 'no model "lama-3.1-8b" in models/; did you mean llama-3.1-8b?'),
    (load_accelerator, "h100-sxm", 'no hardware "h100-sxm" in hardware/; did you mean h100-sxm-80gb?'),
    (load_node, "dgx-h10", 'no node "dgx-h10" in hardware/nodes/; did you mean dgx-h100?'),
])
def test_unknown_name_is_answered_with_the_nearest(load, wrong, message):
    with pytest.raises(InputErrors) as caught:
        load(wrong)

    assert caught.value.faults == (message,)


def test_a_file_of_the_users_own_is_read_by_path(tmp_path):
    file = tmp_path / "my-model.toml"
    file.write_text((folder("model") / "llama-3.1-8b.toml").read_text())

    assert load_model(file).num_parameters == 8_030_261_248
    assert load_model(str(file)).name == "my-model"


def test_all_faults_of_a_file_are_reported_with_their_keys(tmp_path):
    text = (folder("model") / "deepseek-v3.toml").read_text()
    text = text.replace("num_layers = 61", 'num_layers = "61"').replace("hidden_size", "hiden_size")
    text = text.replace("kv_rank = 512", "kv_rank = 0").replace("num_experts = 256", "num_expert = 256")

    assert faults(load_model, tmp_path / "m.toml", text) == [
        "hiden_size: unknown key; did you mean hidden_size?",
        "num_layers: expected `int`, got `str`",
        "hidden_size: required key is missing",
        "attention.kv_rank: expected `int` >= 1",
        "moe.num_expert: unknown key; did you mean num_experts?",
        "moe.num_experts: required key is missing",
    ]


def test_a_model_that_contradicts_itself_is_refused(tmp_path):
    text = (folder("model") / "llama-3.1-8b.toml").read_text().replace("num_layers", 'layer_pattern = "SL"\nnum_layers')

    fault, = faults(load_model, tmp_path / "m.toml", text)

    assert "layer_pattern has S but [sliding_attention] is missing" in fault
    assert "layer_pattern has L but [linear_attention] is missing" in fault


def test_an_unknown_kind_of_attention_is_refused_with_what_is_known(tmp_path):
    text = (folder("model") / "llama-3.1-8b.toml").read_text().replace('"multi_head"', '"multi_hed"')

    fault, = faults(load_model, tmp_path / "m.toml", text)

    assert fault == 'attention.kind: unknown "multi_hed"; did you mean multi_head?'


@pytest.mark.parametrize("text", ["num_layers = ", "a = 1\na = 2", "\x00"])
def test_a_file_that_is_no_toml_is_refused(text, tmp_path):
    fault, = faults(load_model, tmp_path / "m.toml", text)

    assert "line" in fault or "at end of document" in fault


JUNK = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from([0, -1, 2**64, "lightning", "F"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_fuzzed_tables_give_facts_or_input_errors(data):
    kind, struct = data.draw(st.sampled_from([("model", ModelSpec), ("hardware", AcceleratorSpec), ("node", NodeSpec)]))
    name = data.draw(st.sampled_from(names(kind)))
    table = tomli.loads((folder(kind) / f"{name}.toml").read_text())
    for part in [table, *(value for value in table.values() if isinstance(value, dict))]:
        for key in data.draw(st.lists(st.sampled_from(sorted(part)), max_size=2)):
            part[key] = data.draw(JUNK)

    facts, found = None, ()
    try:
        facts = read_table(table, struct, "facts.toml")
    except InputErrors as error:
        found = error.faults

    assert all(fault.startswith("facts.toml: ") for fault in found)
    assert (facts is None) == bool(found)


def test_missing_and_unreadable_files_are_refused(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(InputErrors):
            load_model(f"{path}/") if path is tmp_path else load_model(path)


def test_every_folder_of_facts_is_there():
    assert all(folder(kind).is_dir() for kind in FOLDERS)
    assert set(CONFIGS) <= set(MODELS)
