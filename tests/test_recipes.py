"""The recipes of CONTRIBUTING.md: each change is made in a copy of the package, in the files it lists, and runs."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n# (?:(line) of )?(simulator/[\w/]+\.py(?:, \w+)?)\n(.*?)^```$",
                   re.MULTILINE | re.DOTALL)
# Places that a line of a recipe goes behind, by file.
PLACES = {"simulator/registry.py": '    "router": Kind("router", "policy", {\n',
          "simulator/registry.py, PARTS": "PARTS = {\n",
          "simulator/domain/columns.py": "REQUESTS = _columns(\n",
          "simulator/results/traits.py": "DERIVED = {\n",
          "simulator/domain/vllm_versions.py": "repeats_last_states=False, engines_start_waves=True)\n",
          "simulator/server_line/vllm/rules.py": "True, True, False, False, True, True)}\n",
          "simulator/domain/layer_spec.py": "\nATTENTION = {\n",
          "simulator/config/huggingface/rows_dense.py": "DENSE = {\n"}
EXPERIMENT = """
latency.backend = "linear"
topology.replicas = 2
engine = {num_gpu_blocks = 100, max_model_len = 400}
[workload]
type = "synthetic"
num_requests = 20
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "constant", tokens = 50}
output_tokens = {distribution = "constant", tokens = 10}
"""
pytestmark = pytest.mark.slow


def recipe(title):
    """Return the number of files that a recipe names, and its blocks: (line or "", file, text)."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^\*\*{re.escape(title)}\*\*.*?(?=^\*\*|^## )", page, re.MULTILINE | re.DOTALL)[0]
    return int(re.search(r"\((\d+) files?\)", section)[1]), BLOCK.findall(section)


@pytest.fixture
def follow(tmp_path, simulate):
    """Return a function that follows a recipe in a copy of the package and returns what a run there prints."""
    for folder in ("hardware", "models", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for source in (ROOT / "simulator").rglob("*"):
        if source.is_file() and "__pycache__" not in source.parts:
            target = tmp_path / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)

    def follow(title, most, *arguments):
        count, blocks = recipe(title)
        assert count == len({file for _, file, _ in blocks}) <= most
        for is_line, file, text in blocks:
            path = tmp_path / file.partition(",")[0]
            old = path.read_text(encoding="utf-8") if is_line else ""
            path.unlink(missing_ok=True)
            assert old.count(PLACES.get(file, "")) == 1 or not is_line
            path.write_text(old.replace(PLACES[file], PLACES[file] + text) if is_line else text, encoding="utf-8")
        (tmp_path / "a.toml").write_text(EXPERIMENT)
        return simulate(*arguments)

    return follow


@pytest.fixture
def simulate(tmp_path):
    """Return a function that runs a command in the copy, and returns what it prints."""
    def simulate(*arguments, status=0, module="-m"):
        command = [sys.executable, module, *["simulator"] * (module == "-m"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True,
                              env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return simulate


def simulator(folder, *arguments):
    """Run the copy of the package in a folder."""
    return subprocess.run([sys.executable, "-m", "simulator", *arguments], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(folder)}, check=False)


def test_a_router(follow, tmp_path):
    follow("A router", 2, "a.toml", "--set", 'cluster.routing.policy="first_open"', "--out", "out")

    replicas = json.loads((tmp_path / "out/summary.json").read_text())["replicas"]
    assert [each["prefix_cache"]["query_tokens"] for each in replicas] == [20 * 50, 0]


def test_a_column(follow):
    assert "whole_tokens" in follow("A column of /requests", 2, "describe", "results table", "requests")


def test_a_column_has_values(follow, tmp_path):
    follow("A column of /requests", 2, "a.toml", "--out", "out")

    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out/results.h5") as file:
        assert set(file["requests"]["whole_tokens"]) == {60}


def test_a_version_of_vllm(follow, simulate, tmp_path):
    follow("A version of vLLM", 2, "a.toml", "--set", 'engine.vllm_version="0.34"', "--out", "out")
    found = json.loads(simulate("diff-versions", "a.toml", "0.33", "0.34", "--json"))

    assert 'vllm_version = "0.34"' in (tmp_path / "out/resolved.toml").read_text()
    assert [cause["rules"] for cause in found["causes"]["found"]] == [["is_async_by_default"]]


def test_a_version_of_vllm_without_flags_says_so(follow, simulate, tmp_path):
    line = ("from", "vllm serve Qwen/Qwen3-8B --max-model-len 8192", "--gpu", "l4", "--version", "0.34")
    (tmp_path / "engines").mkdir()
    for table in (ROOT / "engines").iterdir():
        (tmp_path / "engines" / table.name).symlink_to(table)
    follow("A version of vLLM", 2, "list", "models")
    without = simulate(*line, status=2)
    flags = (ROOT / "engines/vllm-0.33.toml").read_text(encoding="utf-8").replace("0.33", "0.34")
    (tmp_path / "engines/vllm-0.34.toml").write_text(flags, encoding="utf-8")           # as the tool writes it there
    with_flags = simulate(*line, "--allow-unmodelled")
    rules = tmp_path / "simulator/server_line/vllm/rules.py"
    rules.unlink()
    rules.symlink_to(ROOT / "simulator/server_line/vllm/rules.py")
    without_rules = simulate(*line, status=2)

    assert "vLLM 0.34: its scheduler is modelled (engine.vllm_version), its flags are not" in without
    assert 'vllm_version = "0.34"' in with_flags
    assert "vLLM 0.34: its flags are known, the rules of its defaults are not" in without_rules


def test_a_version_of_vllm_takes_recordings_as_they_are(follow, tmp_path):
    follow("A version of vLLM", 2, "list", "models")
    page = (ROOT / "docs/howto/new_engine_version.md").read_text(encoding="utf-8")
    scenario, log = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    cases = tmp_path / "goldens/vllm_034/of_a_day"
    cases.mkdir(parents=True)
    (cases / "example.json").write_text(scenario)
    (cases / "example.log.json").write_text(log)
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests")])
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(
        ROOT / "tests/parity/test_vllm.py")], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": paths, "SIM_GOLDENS": str(tmp_path / "goldens")})

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_part(follow, simulate, tmp_path):
    h5py = pytest.importorskip("h5py")
    follow("A part", 4, "a.toml", "--set", "census.every_s=0.1", "--out", "on")
    simulate("a.toml", "--out", "off")

    on, off = (json.loads((tmp_path / folder / "summary.json").read_text()) for folder in ("on", "off"))
    with h5py.File(tmp_path / "on/results.h5") as one, h5py.File(tmp_path / "off/results.h5") as other:
        found, fields = one["requests"]["census_found"], json.loads(one["requests"].attrs["fields"])
        assert set(one["requests"].dtype.names) - set(other["requests"].dtype.names) == {"census_found"}
    assert on.pop("census") == {"found": int(found.sum())} and found.sum() > 0
    assert on == off                        # it looks, and changes nothing
    assert fields["census_found"] == {"unit": "", "text": "counts that found the request in the system"}
    assert "every_s = 0.1" in (tmp_path / "on/resolved.toml").read_text()
    assert "census" not in (tmp_path / "off/resolved.toml").read_text()


def test_a_part_is_described_and_its_conflict_refused(follow, simulate):
    assert "every_s" in follow("A part", 4, "describe", "table", "census")
    assert "census_found" in simulate("describe", "results table", "requests")
    assert "time between two counts" in simulate("describe", "key", "census.every_s")
    refused = simulate("validate", "a.toml", "--set", "census.every_s=1.0", "--set", "output.requests=false", status=2)
    assert "census: expected none with output.requests = false" in refused
    assert "every_s" in simulate("validate", "a.toml", "--set", "census.every=1.0", status=2)     # the nearest key


def test_a_part_without_its_keys_is_not_imported(follow, simulate):
    follow("A part", 4, "a.toml", "--out", "out")
    loaded = simulate("import simulator, sys; simulator.run('a.toml'); print(*sys.modules)", module="-c")
    assert not [name for name in loaded.split() if name.startswith("simulator.assembly.parts")]


DIFF_LLAMA = {
    "num_hidden_layers": 8, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 8192, "vocab_size": 32000, "torch_dtype": "bfloat16", "max_position_embeddings": 8192}
PRICED = 'latency = {backend = "roofline", efficiency = "shares", attention_latency_us = 0}'


@pytest.fixture
def models(tmp_path):
    """Write experiments with a model of differential attention, and with a model of its shape with plain attention."""
    for name, architecture in (("plain", "LlamaForCausalLM"), ("diff", "DiffLlamaForCausalLM")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(DIFF_LLAMA | {"architectures": [architecture]}))
        (tmp_path / f"{name}.toml").write_text(
            f'model.config = "{name}"\nhardware.name = "h100-sxm-80gb"\n{PRICED}\n[workload]'
            + EXPERIMENT.partition("[workload]")[2])
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/gemm_perf.csv").write_text("gemm_dtype,m,n,k,latency\n")


def test_an_attention_kind(follow, models, tmp_path):
    follow("An attention kind", 4, "list", "router")
    diff = json.loads(simulator(tmp_path, "fit", "diff.toml", "--json").stdout)["layouts"][0]
    plain = json.loads(simulator(tmp_path, "fit", "plain.toml", "--json").stdout)["layouts"][0]
    assert diff["weights_gb"] - plain["weights_gb"] == pytest.approx(8 * 4 * 128 * 2 / 1e9)     # four vectors a layer
    assert abs(diff["kv_tokens"] - plain["kv_tokens"]) <= 16                                    # equal KV of a token

    # Arithmetic bounds long prompts: q.k over 128 and p.v over 256 elements, in place of 128 and 128.
    found = [simulator(tmp_path, "predict", f"{name}.toml", "--prefill", "8192").stdout for name in ("diff", "plain")]
    times = [float(re.search(r"prefill_attention +([\d.,]+)", text)[1].replace(",", "")) for text in found]
    assert times[0] == pytest.approx(1.5 * times[1])

    done = simulator(tmp_path, "diff.toml", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/summary.json").read_text())["requests"]["completed"] == 20


@pytest.mark.parametrize("latency", [
    '"trained_physics"', '"step_roofline"', '"crossmodel"',
    '"forest"\nlatency.compute_file = "a.csv"\nlatency.attention_file = "a.csv"'])
def test_an_attention_kind_without_a_price_is_refused_by_name(follow, models, tmp_path, latency):
    file = tmp_path / "diff.toml"
    file.write_text(file.read_text().replace(PRICED, f"latency.backend = {latency}"))
    follow("An attention kind", 4, "list", "router")

    done = simulator(tmp_path, "predict", "diff.toml", "--decode", "100")
    assert done.returncode == 2
    assert "differential attention" in done.stderr
