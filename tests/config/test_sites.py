"""What an experiment runs on fits together: node and accelerator, text and model."""
import argparse
import re
from pathlib import Path

import pytest

from simulator.assembly import assemble
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.study import profile_layers

CONFIGS = Path(__file__).parents[2] / "configs"
MODEL = "model.name='llama-3-8b'"               # its longest text: 8192 tokens
MANY = "engine.num_gpu_blocks=10000"


def surveyed(load, *overrides):
    """Return the sites of all pools."""
    return [Site(pool).check() for pool in load(*overrides).all_pools()]


def test_node_of_another_accelerator_is_refused_with_those_that_fit(load, faults):
    assert faults(surveyed, load, "hardware.name='a100-sxm-80gb'", "topology.node='dgx-h100'") == [
        "topology.node: dgx-h100 holds h100-sxm-80gb, the accelerator is a100-sxm-80gb; nodes of a100-sxm-80gb: "
        'azure-nd-a100-v4, dgx-a100-80gb; a node file of your own may say accelerator = "a100-sxm-80gb" or "any"']
    assert surveyed(load, "hardware.name='h100-sxm-80gb'", "topology.node='dgx-h100'")


def test_accelerator_that_no_node_holds_says_so(load, faults):
    told, = faults(surveyed, load, "hardware.name='a10'", "topology.node='dgx-h100'")
    assert "the accelerator is a10; no node holds a10; " in told


def test_node_of_a_user_may_take_any_accelerator(load, tmp_path):
    (tmp_path / "box.toml").write_text("""
        accelerator = "any"
        num_accelerators = 8
        scaleup_domain_size = 8
        scaleup_bytes_per_s = 450e9
        num_nics = 8
        nic_bytes_per_s = 50e9
        scaleout_bytes_per_s = 50e9
    """)
    site, = surveyed(load, MODEL, "hardware.name='t4'", "topology.node='./box.toml'")
    assert site.deployment.node.name == "box"


def test_node_of_a_pool_is_held_against_the_accelerator_of_the_pool(load, faults):
    pools = "pools=[{name='a', hardware={name='t4'}}, {name='b', hardware={name='h100-sxm-80gb'}}]"
    told = faults(assemble.prepare, load(pools, "topology.node='dgx-h100'"))
    assert [fault.partition(":")[0] for fault in told if "holds" in fault] == ["pools.a.topology.node"]


def test_node_of_a_command_line_is_held_against_its_accelerator(faults, tmp_path):
    parser = argparse.ArgumentParser()
    profile_layers.add_arguments(parser)
    words = ["llama-3.1-8b", "t4", "--node", "dgx-h100", "--out", str(tmp_path / "tables")]
    told, = faults(profile_layers.run, parser.parse_args(words))
    assert told.startswith("--node: dgx-h100 holds h100-sxm-80gb, the accelerator is t4; ")


def test_text_longer_than_the_models_is_refused_as_vllm_refuses_it(load, faults):
    assert faults(surveyed, load, MODEL, MANY, "engine.max_model_len=8193") == [
        "engine.max_model_len: expected at most 8192, the maximum of llama-3-8b, found 8193; vLLM refuses it too. "
        "allow_long_max_model_len = true takes it, like vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN"]
    assert [site.max_model_len for site in surveyed(load, MODEL, MANY, "engine.max_model_len=8192")] == [8192]


def test_who_means_it_gets_a_text_longer_than_the_models(load):
    site, = surveyed(load, MODEL, MANY, "engine.max_model_len=8193", "engine.allow_long_max_model_len=true")
    assert site.max_model_len == 8193


def test_permission_for_long_texts_is_refused_where_no_model_limits_them(load, faults):
    assert faults(surveyed, load, "engine.allow_long_max_model_len=true") == [
        "engine.allow_long_max_model_len: without [model] there is no maximum that it could lift; expected false"]


def test_memory_plan_advises_no_text_longer_than_the_one_asked_for(load, faults):
    # 16.1 GB of weights leave 5 GB of an L4: less than 131072 tokens of 131 kB each
    text = "model.name = 'llama-3.1-8b'\nhardware.name = 'l4'\nlatency.backend = 'linear'\n[workload]\ntype = 'trace'\n"
    told, = faults(Site(load(text=text + "path = 't.csv'")).check)
    advised = int(re.search(r"max_model_len <= (\d+)", told)[1])
    assert 0 < advised < 131072


@pytest.mark.parametrize(("key", "value"), [
    ("engine.max_model_len", 10**6), ("engine.disable_hybrid_kv_cache_manager", True),
    ("engine.data_parallel.lockstep", True), ("topology.tensor_parallel", 7)])
def test_each_fault_of_a_pool_is_told_once_and_hides_none_of_the_workload(key, value, faults):
    bad = {key: value, "topology.data_parallel": 2, "workload.arrival": {"process": "trace", "path": "missing"}}
    told = faults(assemble.prepare, load_experiment(CONFIGS / "prefill_decode.toml", bad))
    assert [fault.partition(": ")[0] for fault in told if "missing" not in fault] == [
        f"pools.{name}.{key.removesuffix('.tensor_parallel')}" for name in ("prefill", "decode")]
    assert sum("missing: no such file" in fault for fault in told) == 1


def test_a_fault_of_an_encode_pool_names_it(faults):
    told = faults(assemble.prepare, load_experiment(CONFIGS / "encode_pool.toml", {"topology.tensor_parallel": 7}))
    assert {fault.partition(": ")[0] for fault in told} == {"pools.encode.topology", "pools.serve.topology"}


def test_conflict_that_needs_the_model_hides_no_fault_of_the_workload(load, faults):
    told = faults(assemble.prepare, load('kv_tiers={protocol="lmcache", cpu_gib=9.0}', 'model.name="gpt-oss-20b"',
                                         'workload={type="trace", path="missing.csv"}'))
    assert told[0].startswith("kv_tiers.protocol: ")
    assert sum("missing.csv: no such file" in fault for fault in told) == 1
