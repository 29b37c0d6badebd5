"""Files of Vidur and SimAI are theirs, column by column, and say only what is known."""
import gzip
import json

import numpy as np
import pandas as pd
import pytest

import simulator
from results.export.runs import PREEMPTED, busy_run, events, export, small_run, table
from support.goldens import GOLDENS

# Headers of files that microsoft/vidur 7d47513 and SimAI cef83f9d wrote.
TIMES = ["request_e2e_time", "request_e2e_time_normalized", "request_execution_time",
         "request_execution_time_normalized", "request_model_execution_time",
         "request_model_execution_time_normalized", "request_preemption_time", "request_scheduling_delay",
         "request_execution_plus_preemption_time", "request_execution_plus_preemption_time_normalized",
         "prefill_e2e_time", "prefill_time_execution_plus_preemption",
         "prefill_time_execution_plus_preemption_normalized", "decode_time_execution_plus_preemption_normalized"]
LENGTHS = ["request_inter_arrival_delay", "request_num_tokens", "request_num_prefill_tokens",
           "request_num_decode_tokens", "request_pd_ratio", "request_num_restarts"]
PHASES = ["arrived_at", "prefill_arrived_at", "scheduled_at", "prefill_completed_at", "decode_arrived_at",
          "completed_at", "preempted_time", "decode_time", "prefill_replica_id", "decode_replica_id",
          "pd_p2p_comm_size", "pd_p2p_comm_time", "pd_p2p_comm_bandwidth", "pd_p2p_bytes_per_token",
          "pd_p2p_comm_dtype"]
BATCH = ["Batch Id", "batch_num_tokens", "batch_num_prefill_tokens", "batch_num_decode_tokens", "batch_size",
         "batch_execution_time"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def exported(results):
    return export(results, "vidur", "--quiet")


def test_columns_are_those_of_vidur(exported):
    assert table(exported, "request_metrics.csv").columns.tolist() == ["Request Id", *TIMES, *LENGTHS]
    assert table(exported, "batch_metrics.csv").columns.tolist() == BATCH


def test_columns_of_simai_are_those_of_its_program_and_then_that_of_its_description(results):
    columns = table(export(results, "simai", "--quiet"), "request_metrics.csv").columns.tolist()

    assert columns == ["Request Id", *TIMES, *PHASES, *LENGTHS, "tbt"]


@pytest.mark.parametrize(("family", "more"), [("vidur", []), ("vidurali", PHASES)])
def test_these_columns_are_in_the_files_that_upstream_wrote(family, more):
    files = sorted((GOLDENS / family).glob("*/request_metrics.csv"))
    if not files:
        pytest.skip(f"needs ../shared/goldens/{family}")
    for path in files:
        with open(path, encoding="utf-8") as file:
            assert file.readline().strip().split(",") == ["Request Id", *TIMES, *more, *LENGTHS]


def assert_columns_agree(rows):
    """Check what Vidur's definitions make of columns: a phase follows the other, a ratio is of these numbers."""
    rows = rows.dropna(subset=["request_execution_time"])
    whole, decode = rows["request_e2e_time"], rows["request_num_decode_tokens"]
    both = rows["request_execution_plus_preemption_time"]
    for found, expected in (
            (rows["request_scheduling_delay"] + both, whole),
            (rows["request_execution_time"] + rows["request_preemption_time"], both),
            (rows["request_scheduling_delay"] + rows["prefill_time_execution_plus_preemption"],
             rows["prefill_e2e_time"]),
            (rows["prefill_e2e_time"] + rows["decode_time_execution_plus_preemption_normalized"] * decode, whole),
            (rows["request_e2e_time_normalized"] * decode, whole),
            (rows["prefill_time_execution_plus_preemption_normalized"] * rows["request_num_prefill_tokens"],
             rows["prefill_time_execution_plus_preemption"]),
            (rows["request_num_prefill_tokens"] + decode, rows["request_num_tokens"]),
            (rows["request_pd_ratio"] * decode, rows["request_num_prefill_tokens"])):
        assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-9)
    assert len(rows)


@pytest.mark.parametrize("overrides", [{}, PREEMPTED])
def test_columns_agree_as_definitions_of_vidur_have_it(tmp_path, overrides):
    busy_run(tmp_path, overrides)

    assert_columns_agree(table(export(tmp_path / "out", "vidur", "--quiet"), "request_metrics.csv"))


def test_columns_of_upstream_agree_in_the_same_way():
    files = sorted((GOLDENS / "vidur").glob("*/request_metrics.csv"))
    if not files:
        pytest.skip("needs ../shared/goldens/vidur")
    for path in files:
        assert_columns_agree(pd.read_csv(path))


def test_times_of_requests_are_seconds(exported):
    rows = table(exported, "request_metrics.csv").set_index("Request Id")

    assert rows.index.tolist() == ["first", "second", "third"]
    assert rows["request_e2e_time"].tolist() == pytest.approx([0.020, 0.025, 0.024])
    assert rows["prefill_e2e_time"].tolist() == pytest.approx([0.010, 0.015, 0.024])
    assert rows["request_scheduling_delay"].tolist() == pytest.approx([0, 0.005, 0.014])
    assert rows["request_execution_time"].tolist() == pytest.approx([0.020, 0.020, 0.010])
    assert rows["request_preemption_time"].tolist() == [0, 0, 0]
    assert rows["decode_time_execution_plus_preemption_normalized"].tolist() == pytest.approx([0.005, 0.005, 0])
    assert rows["request_num_tokens"].tolist() == [12, 22, 31]
    assert rows["request_pd_ratio"].tolist() == [5, 10, 30]
    assert np.isnan(rows["request_inter_arrival_delay"]["first"])
    assert rows["request_inter_arrival_delay"].tolist()[1:] == pytest.approx([0.005, 0.001])


def test_batches_have_their_tokens_and_requests(exported):
    rows = table(exported, "batch_metrics.csv")

    assert rows["batch_num_prefill_tokens"].tolist() == [10, 20, 30]
    assert rows["batch_num_decode_tokens"].tolist() == [0, 1, 1]
    assert rows["batch_size"].tolist() == [1, 2, 2]
    assert rows["batch_execution_time"].tolist() == pytest.approx([0.010] * 3)
    assert [(event["name"], event["ts"], event["dur"], event["args"]["batch_id"]) for event in events(exported)] == [
        ("['first']", 0, 10_000, 0), ("['first', 'second']", 10_000, 10_000, 1),
        ("['second', 'third']", 20_000, 10_000, 2)]


def test_configuration_has_the_keys_of_vidur_and_the_experiment(exported):
    config = json.loads((exported / "config.json").read_text())

    assert config["cluster_config"]["replica_config"]["model_name"] == "llama-3.1-8b"
    assert config["cluster_config"]["replica_scheduler_config"] == {
        "batch_size_cap": 2, "block_size": 16, "watermark_blocks_fraction": 0, "num_blocks": 100,
        "max_tokens_in_batch": config["resolved"]["engine"]["max_num_batched_tokens"], "name": "vllm"}
    assert config["resolved"]["horizon_s"] == "inf"


def test_run_itself_writes_the_tables_that_export_makes(tmp_path, exported):
    out = small_run(tmp_path, **{"output.vidur_csv": True})

    for name in ("request_metrics.csv", "batch_metrics.csv"):
        assert (out / name).read_bytes() == (exported / name).read_bytes()
    assert simulator.run(tmp_path / "small.toml", {"output.vidur_csv": True}, out=out, overwrite=True)


@pytest.mark.parametrize("key", ["requests", "iterations"])
def test_a_run_without_the_tables_has_no_files_of_vidur(tmp_path, key):
    with pytest.raises(simulator.InputErrors, match="takes requests = true and iterations = true"):
        small_run(tmp_path, **{"output.vidur_csv": True, f"output.{key}": False})


def test_what_is_not_known_is_blank_and_said(tmp_path, capsys):
    requests = busy_run(tmp_path, PREEMPTED).requests

    rows = table(export(tmp_path / "out", "vidur", "--quiet"), "request_metrics.csv")

    unknown = rows["request_execution_time"].isna()
    assert unknown[requests["preemptions"] > 0].all()
    assert 0 < unknown.sum() < len(rows)
    assert f"execution and preemption times of {unknown.sum()} of 200 completed requests are blank" in (
        capsys.readouterr().err)
    assert rows["request_execution_plus_preemption_time"].notna().all()
    assert rows["request_num_restarts"].sum() == requests["preemptions"].sum() > 0


def test_stages_of_a_pipeline_are_one_batch_and_an_event_each(tmp_path):
    busy_run(tmp_path, {"topology.pipeline_parallel": 2})
    exported = export(tmp_path / "out", "vidur", "--quiet")

    batches, shown = table(exported, "batch_metrics.csv"), events(exported)

    assert len(shown) == 2 * len(batches)
    assert batches["batch_execution_time"].notna().all()
    own = sorted((event for event in shown if event["args"]["batch_id"] == 7), key=lambda event: event["tid"])
    assert [event["tid"] for event in own] == [0, 1]
    # Both stages execute within it; what it waited is in it, too.
    assert batches["batch_execution_time"][7] >= sum(event["dur"] for event in own) / 1e6 - 1e-12


def test_requests_that_are_handed_over_have_columns_of_simai(tmp_path):
    pools = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]
    requests = busy_run(tmp_path, {"pools": pools, "kv_transfer.protocol": "nixl"}).requests

    rows = table(export(tmp_path / "out", "simai", "--quiet"), "request_metrics.csv")

    assert rows["pd_p2p_comm_size"].tolist() == requests["transfer_bytes"].tolist()
    assert set(rows["prefill_replica_id"]) == {0, 1}
    assert set(rows["decode_replica_id"]) == {2, 3}
    assert rows["decode_arrived_at"].tolist() == pytest.approx((requests["transfer_end_ns"] / 1e9).tolist())
    took_s = rows["pd_p2p_comm_time"]
    assert (rows["pd_p2p_comm_bandwidth"] * took_s).tolist() == pytest.approx(rows["pd_p2p_comm_size"].tolist())
    assert rows["tbt"].tolist() == pytest.approx((rows["decode_time"] / rows["request_num_decode_tokens"]).tolist())


PIPELINED = {"topology.pipeline_parallel": 2}
ROLES = {"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}], "kv_transfer.protocol": "nixl"}
SPENT = ["request_execution_time", "request_preemption_time"]


@pytest.mark.parametrize("overrides", [{}, PREEMPTED, PIPELINED, PIPELINED | PREEMPTED, ROLES, ROLES | PREEMPTED],
                         ids=["plain", "preempted", "pipelined", "both", "roles", "roles preempted"])
def test_times_that_a_run_adds_up_are_known_of_all_and_are_those_that_can_be_told(tmp_path, overrides, capsys):
    busy_run(tmp_path, overrides)
    told = table(export(tmp_path / "out", "vidur", "--quiet"), "request_metrics.csv")
    capsys.readouterr()
    (tmp_path / "more").mkdir()
    busy_run(tmp_path / "more", overrides | {"output.vidur_csv": True})
    kept = table(export(tmp_path / "more/out", "vidur", "--quiet"), "request_metrics.csv")

    assert kept[SPENT].notna().all().all()
    assert "execution and preemption times" not in capsys.readouterr().err
    known = told[SPENT[0]].notna()
    for name in SPENT:
        assert kept[name][known].tolist() == pytest.approx(told[name][known].tolist(), abs=2e-9)
    others = told.columns.drop([name for name in told if "execution" in name or "preemption" in name])
    pd.testing.assert_frame_equal(kept[others], told[others])


@pytest.mark.parametrize("overrides", [PREEMPTED, PIPELINED, ROLES])
def test_all_that_executed_is_somebodys(tmp_path, overrides):
    result = busy_run(tmp_path, overrides | {"output.vidur_csv": True})
    rows, requests = result.iterations, result.requests

    # Each iteration is charged to all in it; each request was served from its first iteration to its last.
    assert requests["execution_ns"].sum() == (rows["duration_ns"] * rows["sequences"]).sum()
    if overrides is not PIPELINED:          # where two chunks of a prompt may be in different stages
        span_ns = requests["completed_ns"] - requests["scheduled_ns"]
        assert (requests["execution_ns"] + requests["preempted_ns"] <= span_ns).all()
    assert (requests["preempted_ns"] > 0).any()


def test_fast_forward_and_threads_change_nothing_of_it(tmp_path):
    found = []
    for i, more in enumerate(({}, {"engine.fast_forward": False})):
        (tmp_path / str(i)).mkdir()
        busy_run(tmp_path / str(i), PREEMPTED | {"output.vidur_csv": True} | more)
        found.append((tmp_path / str(i) / "out/request_metrics.csv").read_bytes())

    assert found[0] == found[1]


def test_events_are_those_of_vidur_in_their_order(exported):
    """first: 0 - 20 ms; second: comes at 5, 10 - 30 ms; third: comes at 6, waits for a place, 20 - 30 ms."""
    found = json.loads((exported / "event_trace.json").read_text())

    assert [(round(1000 * event["time"]), event["event_type"]) for event in found[:9]] == [
        (0, "RequestArrivalEvent"), (0, "GlobalScheduleEvent"), (0, "ReplicaScheduleEvent"),
        (0, "BatchStageArrivalEvent"), (0, "ReplicaStageScheduleEvent"), (5, "RequestArrivalEvent"),
        (5, "GlobalScheduleEvent"), (6, "RequestArrivalEvent"), (6, "GlobalScheduleEvent")]
    assert found[5:7] == [
        {"time": 0.005, "event_type": "RequestArrivalEvent", "request": "second"},
        {"time": 0.005, "event_type": "GlobalScheduleEvent", "replica_set": [0], "request_mapping": [[0, "second"]]}]
    assert found[9:14] == [
        {"time": 0.01, "event_type": "BatchStageEndEvent", "replica_id": 0, "stage_id": 0, "batch_id": 0,
         "batch_stage_id": 0, "is_last_stage": True},
        {"time": 0.01, "event_type": "BatchEndEvent", "batch_id": 0},
        {"time": 0.01, "event_type": "ReplicaScheduleEvent", "replica_id": 0, "batch_ids": [1]},
        {"time": 0.01, "event_type": "BatchStageArrivalEvent", "replica_id": 0, "stage_id": 0, "batch_id": 1},
        {"time": 0.01, "event_type": "ReplicaStageScheduleEvent", "replica_id": 0, "stage_id": 0, "batch_id": 1,
         "batch_stage_id": 1, "is_last_stage": True}]
    assert len(found) == 2 * 3 + 5 * 3


@pytest.mark.parametrize("overrides", [PIPELINED, ROLES, PREEMPTED], ids=["pipelined", "roles", "preempted"])
def test_each_stage_of_a_batch_comes_begins_and_ends(tmp_path, overrides):
    result = busy_run(tmp_path, overrides)
    found = json.loads((export(tmp_path / "out", "simai", "--quiet") / "event_trace.json").read_text())
    count = {name: sum(event["event_type"] == name for event in found) for name in {e["event_type"] for e in found}}
    stages, rows = result.iterations["stage"].max() + 1, len(result.iterations)

    assert [event["time"] for event in found] == sorted(event["time"] for event in found)
    assert count["RequestArrivalEvent"] == 200
    assert count["GlobalScheduleEvent"] == (400 if "pools" in overrides else 200)      # to each role
    assert (count["BatchStageArrivalEvent"] == count["ReplicaStageScheduleEvent"] == count["BatchStageEndEvent"]
            == rows)
    assert count["ReplicaScheduleEvent"] == count["BatchEndEvent"] == rows / stages


def test_upstream_has_these_events_with_these_fields():
    files = sorted((GOLDENS / "vidur").glob("*/events.jsonl.gz"))
    if not files:
        pytest.skip("needs ../shared/goldens/vidur")
    fields = {"RequestArrivalEvent": {"request"}, "GlobalScheduleEvent": {"replica_set", "request_mapping"},
              "ReplicaScheduleEvent": {"replica_id", "batch_ids"},
              "BatchStageArrivalEvent": {"replica_id", "stage_id", "batch_id"},
              "ReplicaStageScheduleEvent": {"replica_id", "stage_id", "batch_id", "batch_stage_id", "is_last_stage"},
              "BatchStageEndEvent": {"replica_id", "stage_id", "batch_id", "batch_stage_id", "is_last_stage"},
              "BatchEndEvent": {"batch_id"}}
    with gzip.open(files[0], "rt") as file:
        recorded = [json.loads(line) for line in file]
    assert {event["type"]: set(event) - {"n", "t", "id", "type", "new"} for event in recorded} == fields
