"""Every file in configs/ says what it shows, is valid, and runs."""
import argparse
import importlib
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
import tomli

import simulator
from simulator import cli, registry
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.study.compare import measure, prepare
from simulator.study.compare_file import read_comparison
from support.goldens import GOLDENS

CONFIGS = Path(__file__).parents[1] / "configs"
GUIDES = CONFIGS.parent / "docs/guide"
FILES = sorted(CONFIGS.glob("*.toml"), key=lambda path: path.name)
COMPARISONS = [path for path in FILES if path.name.startswith("compare_")]
STUDIES = {path: kind[1] for path in FILES
           if (kind := re.search(r'^\[study\]\nkind = "(\w+)"', path.read_text(), re.MULTILINE))}
EXPERIMENTS = [path for path in FILES if path not in COMPARISONS and path not in STUDIES]
PROFILES = {                    # of vidur.toml: measured operators, and attention derived from measurements
    "latency.compute_file": GOLDENS.parent / "data/profiles/vidur/compute/a100/Llama-2-7b-hf/mlp.csv.gz",
    "latency.attention_file": GOLDENS / "vidur/_profiles/attention_a100_llama2-7b_SURROGATE.csv.gz"}
OPERATORS = GOLDENS.parent / "data/profiles/aiconfigurator/h100_sxm"     # of operators.toml; its reader installs them
REFUSING = ("admission", "gateway_queue", "queue_limits", "revocation")      # these show that requests are not served
AZURE_TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""


def name(path):
    return path.stem


def p99_ttft_ms(config, overrides):
    """Return it for the most urgent requests."""
    summary = simulator.run(config, overrides).summary
    return summary["by_slo_class"].get("critical", summary)["ttft_ms"]["p99"]


def trained_fast(folder):
    """Return overrides that train small forests in `folder`."""
    pytest.importorskip("sklearn", reason="scikit-learn is in the forest extra")
    return {"latency.cache_directory": str(folder), "latency.num_estimators": [2], "latency.max_depth": [8],
            "latency.min_samples_split": [2]}


def brought(config, folder):
    """Return overrides that say where the files lie which a reader of `config` fetches; small ones, for speed."""
    if config.stem == "forest":
        return trained_fast(folder)
    if config.stem == "azure_conv":
        trace = folder / "azure.csv"
        trace.write_text(AZURE_TRACE)
        return {"workload.path": str(trace)}
    if config.stem == "operators":
        if not OPERATORS.exists():
            pytest.skip("needs ../shared/data/profiles/aiconfigurator")
        return {"latency.path": str(OPERATORS), "latency.cache_directory": str(folder)}
    if config.stem == "vidur":
        if not all(path.exists() for path in PROFILES.values()):
            pytest.skip("needs ../shared/data/profiles/vidur and ../shared/goldens/vidur")
        return PROFILES | trained_fast(folder)
    return {}


@pytest.mark.parametrize("config", FILES, ids=name)
def test_opens_with_what_it_shows(config):
    assert re.match(r"# \w.+\n", config.read_text())


@pytest.mark.parametrize("config", EXPERIMENTS, ids=name)
def test_experiment_runs_and_is_named_as_its_file(config, tmp_path):
    overrides = brought(config, tmp_path)
    if load_experiment(config).workload.type == "synthetic":
        overrides["workload.num_requests"] = 30
        overrides["workload.measure.warmup_s"] = 0.0        # so few may all come before
    summary = simulator.run(config, overrides).summary
    requests = summary["requests"]
    assert summary["name"] == config.stem
    assert requests["completed"] + requests["rejected"] + requests["failed"] == requests["injected"] > 0
    assert (requests["rejected"] > 0) == (config.stem in REFUSING)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("config", EXPERIMENTS, ids=name)
def test_experiment_runs_with_a_report(config, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pictures are in the report extra")
    overrides = brought(config, tmp_path)
    if load_experiment(config).workload.type == "synthetic":
        overrides |= {"workload.num_requests": 30, "workload.measure.warmup_s": 0.0}
    settings = [f"--set={key}={value}" for key, value in overrides.items()]

    assert cli.main([str(config), "--out", str(tmp_path / "out"), "--report", "--quiet", *settings]) == 0

    capsys.readouterr()
    assert f"<title>{config.stem}" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("config", EXPERIMENTS, ids=name)
def test_experiment_is_valid(config, tmp_path, capsys):
    overrides = [f"--set={key}={value}" for key, value in brought(config, tmp_path).items()]
    assert cli.main(["validate", str(config), *overrides]) == 0
    assert tomli.loads(capsys.readouterr().out)["name"] == config.stem


@pytest.mark.slow
@pytest.mark.parametrize("config", STUDIES, ids=name)
def test_study_runs_by_the_command_of_its_kind(config, tmp_path):
    options = ["--out", str(tmp_path), "--set", "workload.num_requests=100", "--quiet"]
    if STUDIES[config] == "capacity":
        options += ["--set", "study.statistics.min_tail=0"]
    if 'search = "optuna"' in config.read_text():
        pytest.importorskip("optuna", reason="Optuna is in the tune extra")
        options += ["--set", "study.max_trials=4", "--set", "study.held_out=2", "--set", "study.seeds=3", "--jobs", "1"]

    assert cli.main([STUDIES[config], str(config), *options]) == 0
    assert (tmp_path / {"capacity": "capacity.json", "tune": "tune.json"}.get(STUDIES[config], "table.csv")).exists()


@pytest.mark.parametrize("config", COMPARISONS, ids=name)
def test_comparison_runs(config, tmp_path):
    num_requests = {"compare_autoscalers": 2000, "compare_backends": 30, "compare_routers": 400,
                    "compare_schedulers": 300}.get(config.stem, 100)
    overrides = trained_fast(tmp_path) if config.stem == "compare_backends" else {}
    few = {"workload.num_requests": num_requests}
    if config.stem in ("compare_gateways", "compare_kv_retention"):
        few = {"workload.num_sessions": 60}
    plan = prepare(read_comparison(config, few | overrides))
    results = dict(measure(plan))
    assert not plan.unavailable
    completed = {measured.metrics["requests.completed"] for measured in results.values()}
    assert completed == {num_requests} or ("workload.num_sessions" in few and len(completed) == 1)
    assert len({measured.metrics["tpot_ms.mean"] for measured in results.values()}) == len(results)


def test_every_scheduler_is_compared():
    plan = prepare(read_comparison(CONFIGS / "compare_schedulers.toml", {}))

    compared = {each.engine.scheduler for each in plan.experiments.values()}
    assert compared | {"split_wise"} == registry.KINDS["scheduler"].entries.keys()      # it takes pools with roles
    page = (GUIDES / "schedulers.md").read_text()
    assert not [name for name in plan.experiments if f"| `{name}` | " not in page]


@pytest.mark.parametrize("config", FILES, ids=name)
def test_page_of_the_folder_tells_of_it(config):
    assert f"`{config.name}`" in (CONFIGS / "README.md").read_text()


def test_absent_profiles_are_named(tmp_path):
    config = tmp_path / "vidur.toml"
    config.write_text(f'extends = "{CONFIGS / "vidur.toml"}"\nlatency.compute_file = "a.csv"\n'
                      'latency.attention_file = "b.csv"\n')
    with pytest.raises(InputErrors) as caught:
        simulator.run(config)
    assert caught.value.faults == tuple(f"{tmp_path}/{file}: cannot be read: No such file or directory"
                                        for file in ("a.csv", "b.csv"))


@pytest.mark.parametrize(("config", "command", "folder"), [
    ("aicb", "profile-layers", "aicb"), ("compare_backends", "profile-layers", "aicb_dense"),
    ("forest", "profile-operators", "forest")])
def test_tables_are_what_the_command_beside_them_writes(config, command, folder, tmp_path):
    # They are synthetic: a change of the roofline model changes them, and this command writes them anew.
    comment = re.sub(r"\n#|\\", " ", (CONFIGS / f"{config}.toml").read_text())
    words, out = re.search(rf"{command} (.*? --out) +configs/(\S+)", comment).groups()
    study = importlib.import_module(f"simulator.study.{cli.STUDIES[command][0]}")
    parser = argparse.ArgumentParser()
    study.add_arguments(parser)
    study.run(parser.parse_args([*shlex.split(words), str(tmp_path)]))

    assert out == f"data/{folder}"
    shipped = {path.name: path.read_bytes() for path in (CONFIGS / out).iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == shipped
    assert sum(map(len, shipped.values())) < 40_000


def test_made_up_data_is_what_the_script_beside_it_writes(tmp_path):
    script = runpy.run_path(str(CONFIGS / "data/write_data.py"))
    script["write"](tmp_path)
    written = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert len(written) == 11
    assert written == {name: (CONFIGS / "data" / name).read_bytes() for name in written}


@pytest.mark.parametrize(("config", "worse"), [
    ("routing", {"cluster.routing.policy": "random"}),
    ("stale_signals", {"cluster.routing.snapshot_refresh_interval_s": 5.0}),
    ("weighted", {"cluster.routing.policy": "round_robin"}),
    ("sessions", {"cluster.routing.policy": "round_robin"}),
    ("admission", {"cluster.admission.policy": "always"}),
    ("gateway_queue", {"cluster.gateway_queue.order": "fifo"}),
    ("llumnix", {"cluster.routing.enable_instance_status_local_account": False}),
    ("llumnix_slo", {"cluster.routing.policy": "least_loaded"}),
    ("adaptive_prefill_decode", {"cluster.routing.enable_adaptive_pd": False})])
def test_policy_does_what_its_file_says(config, worse):
    path = CONFIGS / f"{config}.toml"
    assert p99_ttft_ms(path, {}) < 0.9 * p99_ttft_ms(path, worse)


def test_the_balancer_follows_loads_that_drift():
    path, fewer = CONFIGS / "eplb_drift.toml", {"workload.num_requests": 500}
    balanced, left_alone = (simulator.run(path, fewer | {"engine.experts.eplb.step_interval": steps}).summary
                            for steps in (200, 10**9))

    assert balanced["tpot_ms"]["mean"] < 0.95 * left_alone["tpot_ms"]["mean"]


def test_a_busy_tenant_queues_by_itself():
    vtc, turns = (simulator.run(CONFIGS / "fairness.toml", overrides).summary["by_tenant"]
                  for overrides in ({}, {"cluster.routing": {"policy": "round_robin"}}))
    for tenant in ("birch", "cedar"):
        assert vtc[tenant]["ttft_ms"]["mean"] < 0.9 * turns[tenant]["ttft_ms"]["mean"]
    assert vtc["acme"]["ttft_ms"]["mean"] > turns["acme"]["ttft_ms"]["mean"]


def test_members_come_and_go(capsys):
    assert cli.main(["workload", str(CONFIGS / "cohorts.toml"), "--json"]) == 0

    counts = json.loads(capsys.readouterr().out)["arrivals"]["in_windows"]
    assert max(counts) > 2.5 * counts[0] and max(counts) > 2.5 * counts[-1]


def test_lanes_share_the_time_in_which_agents_wait():
    seconds = [simulator.run(CONFIGS / "agents.toml", {"workload.load.lanes": lanes}).summary["duration_s"]
               for lanes in (4, 8, 16)]
    assert seconds[1] < 0.65 * seconds[0]
    assert seconds[2] < 0.65 * seconds[1]


def test_a_node_that_fails_takes_two_replicas_along():
    result = simulator.run(CONFIGS / "failures.toml", {"workload.num_requests": 2500})
    cut_off = result.lifecycle[result.lifecycle["state"] == records.STAGE_NAMES.index("cut_off")]
    assert set(cut_off["replica"].tolist()) == {0, 1}
    assert result.summary["retries"] > 0


def test_router_and_scorers_of_the_guide_run(tmp_path):
    page = (GUIDES / "routers.md").read_text()
    toml, python = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL).group(1) for kind in ("toml", "python"))
    (tmp_path / "my_lab.py").write_text(python)
    (tmp_path / "a.toml").write_text(f'extends = "{CONFIGS / "weighted.toml"}"\n{toml}')
    for overrides in ({}, {"cluster.routing.policy": "my_lab:MostFree"}):
        result = simulator.run(tmp_path / "a.toml", {"workload.num_requests": 100} | overrides)
        assert result.summary["requests"]["completed"] == 100


def test_comparison_has_every_backend_that_needs_no_files_of_its_reader():
    config = CONFIGS / "compare_backends.toml"
    chosen = {each.latency.backend for each in read_comparison(config).experiments.values()}
    assert set(registry.KINDS["latency"].entries) - chosen == {"operators"}


def test_network_and_formula_time_the_same_messages_differently():
    runs = {stem: simulator.run(CONFIGS / f"{stem}.toml", {"workload.num_requests": 30})
            for stem in ("simai_analytical", "simai_simulation")}
    formula, network = (run.summary["tpot_ms"]["mean"] for run in runs.values())
    # An all-reduce of few tokens over 16 GPUs: 60 us or more by formula, 30 steps of 6 us or more on the network; there
    # are 252 of them in an iteration, beside 20 ms of weights.
    assert 1.2 < network / formula < 3
