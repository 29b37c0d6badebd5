"""Files of Vidur and SimAI are theirs, column by column, and say only what is known."""
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
