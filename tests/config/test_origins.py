"""The resolved file names the source of each value, and reads back as the same experiment."""
import pickle

import pytest
import tomli

import simulator
from simulator.config.load import changed, commented_toml, load_experiment, resolved_toml
from simulator.config.origins import with_comments

PLAIN = """
seed = 3
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
POOLS = """
[[pools]]
name = "one"
engine.max_num_seqs = 9
[[pools]]
name = "two"
hardware.name = "l40s"
"""


def lines_of(text):
    """Return the comment of each line of [engine], beside the key or above it."""
    found, above = {}, []
    for line in text.partition("\n[engine]\n")[2].partition("\n[")[0].splitlines():
        if line.startswith("# ") and not line.endswith("checkpoint"):
            above.append(line[2:])
        elif line and line[0] != "#":
            key, _, rest = line.partition(" = ")
            found[key], above = rest.partition("  # ")[2] or " ".join(above), []
    return found


def test_each_value_has_its_source(write):
    text = commented_toml(load_experiment(write(PLAIN), ["engine.block_size=32"], "--set"))
    found = lines_of(text)

    assert found["block_size"] == "--set"
    assert found["max_num_batched_tokens"] == "vLLM 0.32 on H100 SXM5 80GB: 70 GiB or more, not an A100".replace(
        "0.32", tomli.loads(text)["engine"]["vllm_version"])
    assert found["watermark"] == "default"
    assert "seed = 3  # file\n" in text
    assert 'type = "synthetic"  # file\n' in text
    assert "\n[engine]\n# max_model_len = 131072: checkpoint\n" in text


def test_an_extended_file_is_named(tmp_path):
    (tmp_path / "base.toml").write_text(PLAIN)
    (tmp_path / "a.toml").write_text('extends = "base.toml"\nseed = 4')
    text = commented_toml(load_experiment(tmp_path / "a.toml"))

    assert "seed = 4  # file\n" in text
    assert 'name = "llama-3.1-8b"  # base.toml\n' in text


def test_pools_name_their_own_sources_and_those_of_the_experiment(write):
    experiment = load_experiment(write(PLAIN + POOLS))
    of = experiment.origins.of

    assert of(("pools", 0, "engine", "max_num_seqs")) == "file"
    assert of(("pools", 0, "model", "name")) == "file"           # from [model]
    assert "L40S" in of(("pools", 1, "engine", "max_num_seqs"))
    assert of(("pools", 1, "engine", "watermark")) == "default"
    text = commented_toml(experiment)
    assert max(len(line) for line in text.splitlines() if "#" in line) <= 80
    assert "# vLLM" in text.partition("[pools.engine]")[2]


@pytest.mark.parametrize("text", [PLAIN, PLAIN + POOLS])
def test_it_reads_back_as_the_same_experiment(write, tmp_path, text):
    experiment = load_experiment(write(text))
    (tmp_path / "again.toml").write_text(commented_toml(experiment))
    again = load_experiment(tmp_path / "again.toml", {"name": experiment.name})

    assert again == experiment
    assert resolved_toml(again) == resolved_toml(experiment)


def test_a_changed_experiment_keeps_its_sources(write):
    experiment = load_experiment(write(PLAIN))
    assert changed(experiment, seed=9).origins is experiment.origins


def test_results_hold_the_sources(write, tmp_path):
    simulator.run(write(PLAIN), out=tmp_path / "out", quiet=True)
    assert "# vLLM" in (tmp_path / "out" / "resolved.toml").read_text()


def test_comments_of_lists_of_tables_count_their_tables():
    text = '[[a]]\nx = 1\n\n[[a.b]]\ny = 2\n\n[[a]]\nx = 3\n\n[[a.b]]\ny = [\n    4,\n]\n\n["c.d".e]\n"f g" = "h # i"\n'
    seen = []
    said = with_comments(text, lambda path: seen.append(path) or "said", {("a", 1, "z"): 7})

    assert seen == [("a", 0, "x"), ("a", 0, "b", 0, "y"), ("a", 1, "x"), ("a", 1, "b", 0, "y"), ("c.d", "e", "f g")]
    assert tomli.loads(said) == tomli.loads(text)
    assert said.count("# said") == 5
    assert "[[a]]\n# z = 7: checkpoint\nx = 3" in said


def test_sources_go_with_an_experiment_to_other_processes(load):
    experiment = load("seed=3")
    there = pickle.loads(pickle.dumps(experiment))
    assert there == experiment
    assert commented_toml(there) == commented_toml(experiment)
    assert "seed = 3  # --set" in commented_toml(there)
