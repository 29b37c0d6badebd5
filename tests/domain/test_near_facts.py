"""A wrong name of a model, accelerator or node is answered with one of its generation, or with none."""
import pytest

from simulator.config.load import load_experiment
from simulator.domain import facts
from simulator.domain.near_facts import near
from simulator.errors import InputErrors


@pytest.mark.parametrize(("name", "meant"), [
    ("H100-SXM5-80GB", "h100-sxm-80gb"), ("H100-SXM5-80GB-oc", "h100-sxm-80gb"),
    ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"), ("h100_pcie_80gb", "h100-pcie-80gb"), ("H100 NVL", "h100-nvl-94gb"),
    ("H200", "h200-sxm-141gb"), ("GH200", "h100-sxm-96gb-gh200"), ("B200", "b200-sxm-180gb"), ("GB200-NVL72", "gb200"),
    ("A100-SXM4-40GB", "a100-sxm-40gb"), ("A100-PCIE-80GB", "a100-pcie-80gb"), ("A800", "a800-sxm-80gb"),
    ("H20", "h20-96gb"), ("L40S", "l40s"), ("L4-24GB", "l4"),
    ("GeForce RTX 4090", "rtx-4090"), ("tpuv5e", "tpu-v5e"), ("AMD Instinct MI300X", "mi300x"),
    ("mi325", "mi325x"),
    ("cards/H100-SXM5-80GB.toml", "h100-sxm-80gb"),
    ("B100", None), ("L20", None), ("my-card", None)])
def test_accelerator_of_the_same_generation(name, meant):
    assert near(name, facts.names("hardware")) == meant


@pytest.mark.parametrize(("name", "meant"), [
    ("Llama-3.1-8B", "llama-3.1-8b"), ("llama-3.1-8b-instruct", "llama-3.1-8b"), ("llama-2-70b-chat", "llama-2-70b"),
    ("Kimi-K2", "kimi-k2"), ("qwen-3-32b", "qwen3-32b"), ("gpt-oss-120", "gpt-oss-120b"),
    ("DeepSeek-R1-0528", "deepseek-r1"),
    ("DeepSeek-V9", None), ("persimmon-8b", None)])
def test_model_of_the_same_generation(name, meant):
    assert near(name, facts.names("model")) == meant


@pytest.mark.parametrize("kind", ["hardware", "model", "node"])
def test_every_name_is_meant_by_itself_in_any_spelling(kind):
    for name in facts.names(kind):
        for spelt in (name, name.upper(), name.replace("-", "_"), name.replace("-", " "), f"mine/{name}.toml"):
            assert near(spelt, facts.names(kind)) == name


def faults_of(path, named):
    tables = "".join(f'[{table}]\n{key} = "{name}"\n' for (table, key), name in named.items())
    path.write_text(tables + '[workload]\ntype = "trace"\npath = "t.csv"\n[latency]\nbackend = "roofline"\n')
    with pytest.raises(InputErrors) as caught:
        load_experiment(path)
    return list(caught.value.faults)


KEYS = {"hardware": ("hardware", "name"), "model": ("model", "name"), "node": ("topology", "node")}


@pytest.mark.parametrize(("kind", "name", "told"), [
    ("hardware", "cards/H100-SXM5.toml", 'no file "{}/cards/H100-SXM5.toml"; did you mean h100-sxm-80gb?'),
    ("hardware", "./my h100.toml", 'no file "{}/my h100.toml"; did you mean {}/my-h100.toml?'),
    ("model", "mine/Llama-3.1-8B.toml", 'no file "{}/mine/Llama-3.1-8B.toml"; did you mean llama-3.1-8b?'),
    ("model", "me/DeepSeek-V9", 'no file "{}/me/DeepSeek-V9", nor a repository on the hub that is known; valid: '
                                "deepseek-r1, deepseek-v2, deepseek-v2-lite, deepseek-v3, deepseek-v3.1, "),
    ("node", "racks/DGX-H100.toml", 'no file "{}/racks/DGX-H100.toml"; did you mean dgx-h100?'),
    ("node", "HGX H100", 'no node "HGX H100" in hardware/nodes/; did you mean dgx-h100?')])
def test_own_file_that_is_missed_is_named_with_file_and_key(tmp_path, kind, name, told):
    (tmp_path / "my-h100.toml").touch()
    path = tmp_path / "a.toml"
    given = {("hardware", "name"): "h100-sxm-80gb", ("model", "name"): "llama-3.1-8b"} | {KEYS[kind]: name}
    (fault,) = faults_of(path, given)
    assert fault.startswith(f"{path}: {'.'.join(KEYS[kind])}: " + told.format(tmp_path, tmp_path))


@pytest.mark.parametrize(("hub_id", "told"), [
    ("Qwen/Qwen2.5-7B-Instruct", 'of its shape is name = "qwen2.5-7b"; its longest text may differ'),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", 'of its shape is name = "qwen3-235b-a22b" with dtype = "fp8_block"; '),
    ("nvidia/DeepSeek-R1-NVFP4", 'of its shape is name = "deepseek-r1" with dtype = "nvfp4"; '),
    ("Qwen/Qwen3-32B-AWQ", 'of its shape is name = "qwen3-32b" with dtype = "awq"; '),
    ("Qwen/Qwen3-Coder-999B-Instruct", "did you mean Qwen/")])
def test_a_variant_of_a_model_on_the_hub_is_named_with_its_format(hub_id, told):
    with pytest.raises(InputErrors) as caught:
        facts.load_model(hub_id)
    (fault,) = caught.value.faults
    assert fault.startswith(f'no model "{hub_id}" in models/; {told}')
