"""Cost and energy of whole experiments: in memory, in files, in parts, in sweeps."""
import json
import pickle
import tomllib
from pathlib import Path

import pytest
import tomli_w

import simulator
from simulator import cli
from simulator.assembly import assemble, split_run
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.results.memory import MemoryRecorder
from simulator.study.sweep.bench import leaves

CONFIGS = Path(__file__).parents[1] / "configs"
PRICE = {"per_gpu_hour": 4.25, "currency": "USD", "source": "s", "date": "2024-02-07"}
POWER = {"idle_w": 75.0, "prefill_w": 700.0, "decode_w": 380.0, "source": "s", "pue": 1.2, "pue_source": "s"}
CARBON = {"g_per_kwh": 400.0, "source": "s", "region": "r", "date": "2024-02-07"}
NOTHING = {"base_us": 0.0, "per_sequence_us": 0.0, "per_context_token_us": 0.0}


def experiment(tmp_path, trace, **tables):
    """Write an experiment with [prices], [power] and [carbon], one accelerator, and return its file."""
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + trace)
    data = {"hardware": {"name": "h100-sxm-80gb"}, "prices": {"h100-sxm-80gb": PRICE},
            "power": {"h100-sxm-80gb": POWER}, "carbon": CARBON,
            "engine": {"max_model_len": 70_000, "num_gpu_blocks": 20_000},
            "latency": {"backend": "linear", "per_prefill_token_us": 20_000.0, "per_decode_token_us": 1000.0} | NOTHING,
            "workload": {"type": "trace", "path": "trace.csv"}}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(data | tables))
    return tmp_path / "a.toml"


@pytest.fixture
def worked(tmp_path):
    """Return 1,000 prompt tokens of 20 ms, 60,001 output tokens of 1 ms, and 20 s until somebody comes at 100 s."""
    return experiment(tmp_path, "0,1000,60001\n200,10,1\n", horizon_s=100.0)


def test_worked_example_by_the_engine(worked):
    summary = simulator.run(worked).summary

    assert summary["clock_s"] == 100.0
    assert summary["energy"]["energy_j"] == {
        "accelerator_active": pytest.approx(36_800), "accelerator_idle": pytest.approx(1500), "host": None,
        "total": pytest.approx(38_300)}
    assert summary["energy"]["joules_per_output_token"] == pytest.approx(38_300 / 60_001)
    assert summary["energy"]["carbon_g"] == pytest.approx(5.1067, abs=5e-5)
    # 4.25 an hour / (3600 x 60,001 tokens in 80 s)
    assert summary["cost"]["cost_per_million_output_tokens"] == pytest.approx(4.25e6 / (3600 * 60_001 / 80))
    assert summary["diagnosis"][-1] == "energy: of accelerators alone; [power] does not say host_w for all of them"


def test_numbers_are_the_same_in_files_and_need_no_table(worked, tmp_path):
    in_memory = simulator.run(worked).summary

    written = simulator.run(worked, {"output.iterations": False}, out=tmp_path / "out").summary
    without = simulator.run(worked, {"output.iterations": False})

    for name in ("cost", "energy"):
        assert json.loads((tmp_path / "out" / "summary.json").read_text())[name] == written[name] == in_memory[name]
        assert without.summary[name] == in_memory[name]
    with pytest.raises(LookupError):
        _ = without.iterations


def test_both_at_once_are_shared_by_the_prices_of_linear(tmp_path):
    # 0.2 s of prompt, then a step of 10 prompt tokens (200 ms) and a decode (1 ms): 0.4 s x 700 W + 1 ms x 380 W
    file = experiment(tmp_path, "0,10,2\n0.1,10,1\n")

    result = simulator.run(file, {"engine.async_scheduling": False})

    assert [(row["prefill_tokens"], row["decode_tokens"]) for row in result.iterations] == [(10, 0), (10, 1)]
    assert result.summary["energy"]["energy_j"]["accelerator_active"] == pytest.approx(0.4 * 700 + 0.001 * 380)


@pytest.mark.parametrize("topology", [{"tensor_parallel": 2}, {"pipeline_parallel": 2}, {"data_parallel": 2},
                                      {"replicas": 2}])
def test_accelerators_idle_when_they_do_not_work(tmp_path, topology):
    # one request and two accelerators: both work, or one does and the other is idle
    power = POWER | {"prefill_w": 100.0, "decode_w": 100.0, "idle_w": 10.0}
    file = experiment(tmp_path, "0,10,11\n", topology=topology, power={"h100-sxm-80gb": power})

    result = simulator.run(file)

    clock_s, busy_s = result.summary["clock_s"], result.iterations["duration_ns"].sum() / 1e9
    worked_s = busy_s * topology.get("tensor_parallel", 1)
    total_j = result.summary["energy"]["energy_j"]["total"]
    assert total_j == pytest.approx(100 * worked_s + 10 * (2 * clock_s - worked_s))
    assert result.summary["cost"]["per_hour"] == pytest.approx(2 * 4.25)


def test_threads_give_the_same(tmp_path):
    trace = "".join(f"{0.05 * i},{10 + i % 7},{3 + i % 5}\n" for i in range(200))
    file = experiment(tmp_path, trace, topology={"replicas": 4})

    one, many = (simulator.run(file, threads=threads).summary for threads in (1, 2))

    assert one["energy"] == many["energy"]
    assert one["energy"]["coverage"] == 1.0


def test_pools_are_paid_by_their_accelerators(tmp_path):
    file = experiment(tmp_path, "0,10,11\n0,10,11\n", pools=[
        {"name": "a", "topology": {"tensor_parallel": 2}}, {"name": "b", "cost_per_hour": 1.5}])

    summary = simulator.run(file).summary

    assert [summary["by_pool"][name]["cost_per_hour"] for name in "ab"] == [8.5, 1.5]
    assert summary["cost"]["per_hour"] == pytest.approx(10.0)
    assert summary["cost"]["total"] == pytest.approx(sum(pool["cost"] for pool in summary["by_pool"].values()))


def test_pools_pay_by_the_hour_of_their_own_time_zone(tmp_path):
    # 90 minutes at 0.09 kW a replica, with the pue; hour h costs h + 1, each pool has one number of its own
    hours = [float(hour + 1) for hour in range(24)]
    power = POWER | {"prefill_w": 75.0, "decode_w": 75.0}
    file = experiment(tmp_path, "0,10,11\n9000,1,1\n", horizon_s=5400.0, carbon=CARBON | {"g_per_kwh": hours},
                      power={"h100-sxm-80gb": power},
                      electricity={"per_kwh": 0.5, "currency": "USD", "source": "s", "date": "2024-02-07"},
                      prices={"h100-sxm-80gb": PRICE | {"per_gpu_hour": hours, "starts_at_hour": 22}}, pools=[
                          {"name": "a", "electricity_per_kwh": [10.0, 100.0, *hours[2:]]},
                          {"name": "b", "starts_at_hour": 5, "carbon_g_per_kwh": 1000.0},
                          {"name": "c", "price_per_gpu_hour": 7.0}])

    summary = simulator.run(file).summary

    pools = summary["by_pool"]
    assert [pools[name]["cost"] for name in "abc"] == pytest.approx([23 + 24 / 2, 6 + 7 / 2, 7 * 1.5])
    assert [pools[name]["cost_per_hour"] for name in "abc"] == pytest.approx([12.5, 12.5, 7.0])      # mean of the day
    assert [replica["cost"] for replica in summary["replicas"]] == [pools[name]["cost"] for name in "abc"]
    assert summary["cost"]["total"] == pytest.approx(35 + 9.5 + 10.5)
    assert summary["energy"]["carbon_g"] == pytest.approx(0.09 * (1 + 2 / 2 + 1.5 * 1000 + 1 + 2 / 2))
    assert summary["energy"]["electricity_cost"] == pytest.approx(0.09 * (10 + 100 / 2 + 0.5 * 1.5 * 2))


def test_pools_that_say_what_they_cost_need_no_prices(tmp_path):
    file = experiment(tmp_path, "0,10,11\n", pools=[{"name": "a", "cost_per_hour": 1.5}])
    data = {key: value for key, value in tomllib.loads(file.read_text()).items() if key in (
        "hardware", "engine", "latency", "workload", "pools")}
    file.write_text(tomli_w.dumps(data))

    summary = simulator.run(file).summary

    assert summary["cost"]["per_hour"] == pytest.approx(1.5)
    assert summary["cost"]["currency"] is None
    assert "energy" not in summary


def test_studies_get_them_as_columns(worked):
    found = leaves(simulator.run(worked).summary)

    assert {"cost.cost_per_million_output_tokens", "energy.joules_per_output_token", "energy.energy_j.total",
            "energy.coverage", "energy.carbon_g"} <= set(found)


def test_a_run_names_its_old_prices_and_its_summary_does_not(worked, tmp_path, capsys):
    assert cli.main([str(worked), "--out", str(tmp_path / "out")]) == 0

    told = capsys.readouterr()
    assert "warning: prices.h100-sxm-80gb: 4.25 an hour is " in told.err
    assert "\nenergy       38,300.0 J, 383.0 W on average, " in told.out
    assert "days old" not in (tmp_path / "out" / "summary.json").read_text()


def test_the_example_shows_all_of_it():
    experiment = load_experiment(CONFIGS / "costs.toml")

    assert experiment.prices["h100-sxm-80gb"].per_gpu_hour == 4.25
    summary = simulator.run(CONFIGS / "costs.toml", {"workload.num_requests": 100}).summary
    assert None not in summary["energy"]["energy_j"].values()
    assert summary["energy"]["electricity_cost"] > 0


def test_parts_of_a_run_draw_what_the_whole_does(tmp_path):
    trace = "".join(f"{0.05 * i},{10 + i % 7},{3 + i % 5}\n" for i in range(100))
    file = experiment(tmp_path, trace, topology={"replicas": 3})
    whole, prepared = simulator.run(file).summary, assemble.prepare(load_experiment(file))
    costs = prepared.parts[0]
    sink = MemoryRecorder(prepared.experiment.output, prepared.workload, (costs.listener(False),))

    tasks = [pickle.loads(pickle.dumps(task)) for task in split_run.tasks_of(prepared, sink, 2)]
    run = split_run.joined(map(split_run.serve, tasks), prepared, sink)

    assert costs.summary(run, whole)["energy"] == whole["energy"]


def test_encode_pools_are_refused_with_power():
    overrides = {"power": {"h100-sxm-80gb": POWER}}
    with pytest.raises(InputErrors) as caught:
        load_experiment(CONFIGS / "encode_pool.toml", overrides)

    assert any("expected no encode pool with [power]" in fault for fault in caught.value.faults)


def test_energy_is_that_of_the_iteration_table_added_up_row_by_row(tmp_path):
    # the twin: plain Python over the rows that a run wrote; two replicas, batches of prompts and decodes
    trace = "".join(f"{0.005 * i},{10 + i % 7},{3 + i % 5}\n" for i in range(120))
    file = experiment(tmp_path, trace, topology={"replicas": 2, "tensor_parallel": 2}, latency={
        "backend": "linear", "per_prefill_token_us": 300.0, "per_decode_token_us": 700.0, "per_context_token_us": 2.0})

    result = simulator.run(file)

    active_j, active_s = 0.0, 0.0
    for row in result.iterations:
        prompts, decodes = 300.0 * row["prefill_tokens"], 700.0 * row["decode_tokens"] + 2.0 * row["context_tokens"]
        seconds = 2 * row["duration_ns"] / 1e9
        active_j += seconds * (prompts * 700 + decodes * 380) / (prompts + decodes)
        active_s += seconds
    found = result.summary["energy"]["energy_j"]
    assert any(row["prefill_tokens"] and row["decode_tokens"] for row in result.iterations)
    assert found["accelerator_active"] == pytest.approx(active_j, rel=1e-6)     # shares are rounded to nanoseconds
    assert found["accelerator_idle"] == pytest.approx(75 * (4 * result.summary["clock_s"] - active_s))
