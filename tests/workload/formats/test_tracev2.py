"""BLIS's traces, read and written."""
import csv
from itertools import pairwise

import numpy as np
import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, Prompts, in_arrival_order
from simulator.workload.formats.tracev2 import COLUMNS, TraceV2, TraceV2Parameters
from simulator.workload.formats.tracev2_writer import write_tracev2
from simulator.workload.limits import MISSING
from simulator.workload.load import load

NO_HEADER = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n"
GROWS = NO_HEADER + "session_context_growth: accumulate\n"


def text_of(*rows, extra=()):
    """Return a trace; a row gives what differs from a plain one of 10 + 3 tokens."""
    names = [*COLUMNS, *extra]
    plain = dict.fromkeys(names, "") | {"request_id": 0, "round_index": 0, "input_tokens": 10, "output_tokens": 3,
                                        "arrival_time_us": 0, "deadline_us": 0, "send_time_us": 0}
    filled = [plain | {"request_id": i} | row for i, row in enumerate(rows)]
    return "\n".join([",".join(names), *(",".join(str(row[name]) for name in names) for row in filled)]) + "\n"


def read(text, **keys):
    return TraceV2(TraceV2Parameters(**keys)).read("t.csv", text.encode())


@pytest.fixture
def header(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is in the blis extra")

    def write(text):
        (tmp_path / "t.yaml").write_text(text)
        return str(tmp_path / "t.yaml")
    return write


def test_times_lengths_and_labels_are_read():
    columns = read(text_of(
        {"arrival_time_us": 5, "slo_class": "batch", "tenant_id": "T", "deadline_us": 1005, "model": "m"},
        {"arrival_time_us": 7, "send_time_us": 9, "request_id": 42, "server_input_tokens": 33}))

    assert columns.arrival_ns.tolist() == [5000, 9000]          # when it was sent, where that is known
    assert columns.prompt_tokens.tolist() == [10, 33]           # as the server counted
    assert columns.output_tokens.tolist() == [3, 3]
    assert columns.request_ids == ["request_0", "request_42"]
    assert columns.timeout_ns.tolist() == [1_000_000, MISSING]
    assert columns.priority.tolist() == [5, 1]                  # 4 - (-1), 4 - 3: the lowest goes first
    assert [columns.labels[name][1] for name in ("slo_class", "tenant", "model")] == [["batch"], ["T"], ["m"]]
    assert columns.waits is None and columns.notes == ()


def test_a_prefix_is_as_long_as_the_first_row_of_its_group_says():
    columns = read(text_of({"prefix_group": "g", "prefix_length": 50}, {"prefix_group": "g", "prefix_length": 70}, {}))

    assert columns.prompt_tokens.tolist() == [60, 60, 10]
    assert columns.prompts.streams.tolist() == [
        named_stream(0), own_stream(0), named_stream(0), own_stream(1), own_stream(2)]


def test_priorities_may_be_given():
    assert read(text_of({"slo_class": "x"}, {}), priorities={"x": 7}).priority.tolist() == [-3, 1]
    assert read(text_of({"vllm_priority": 9}, {}, extra=["vllm_priority"])).priority.tolist() == [9, 0]


SESSION = ({"session_id": "S", "round_index": 0, "arrival_time_us": 1000},
           {"session_id": "S", "round_index": 2, "arrival_time_us": 9000, "deadline_us": 10_000},
           {"arrival_time_us": 2000}, {"session_id": "S", "round_index": 1, "arrival_time_us": 4000})


def test_turns_come_as_they_came_or_after_each_other(header):
    fixed, closed = (read(text_of(*SESSION), header=header(NO_HEADER), session_mode=each)
                     for each in ("fixed", "closed_loop"))

    assert fixed.waits is None and fixed.timeout_ns.tolist() == [MISSING, 1_000_000, MISSING, MISSING]
    assert closed.waits.plays.tolist() == [0, 0, 2, 0]
    assert list(zip(closed.waits.sources, closed.waits.targets, closed.waits.delays_ns, strict=True)) == [
        (0, 3, 3_000_000), (3, 1, 5_000_000)]                   # as far apart as their arrivals
    assert closed.timeout_ns.tolist() == [300e9, 1_000_000, MISSING, 300e9]
    assert closed.prompt_tokens.tolist() == [10, 10, 10, 10]


def test_times_to_think_are_those_of_the_column_else_of_the_arrivals_else_of_the_key():
    def delays_ns(rows, extra=()):
        return read(text_of(*rows, extra=extra), session_mode="closed_loop", think_time_s=0.25).waits.delays_ns.tolist()

    given = [row | {"think_time_us": 5 * i} for i, row in enumerate(SESSION)]
    together = [row | {"arrival_time_us": 0, "deadline_us": 0} for row in SESSION]
    assert delays_ns(given, ["think_time_us"]) == [15_000, 5_000]
    assert delays_ns(SESSION) == [3_000_000, 5_000_000]
    assert delays_ns(together) == [250_000_000] * 2


def test_the_prompt_of_a_turn_grows_by_all_that_came_before(header):
    columns = read(text_of(*SESSION), header=header(GROWS), session_mode="closed_loop")

    assert columns.prompt_tokens.tolist() == [10, 36, 10, 23]   # 10, 10 + 3 + 10, 23 + 3 + 10
    begins = np.cumsum(columns.prompts.num_segments) - columns.prompts.num_segments
    last = slice(begins[1], begins[1] + columns.prompts.num_segments[1])
    assert columns.prompts.streams[last].tolist() == [
        own_stream(0), output_stream(0), own_stream(3), output_stream(3), own_stream(1)]


def test_blis_forgets_the_last_token_of_each_turn(header):
    columns = read(text_of(*SESSION), header=header(GROWS), session_mode="closed_loop", upstream_compat=True)

    assert columns.prompt_tokens.tolist() == [10, 34, 10, 22] and columns.from_engine


def test_what_is_not_used_is_said(header):
    path = header(GROWS.replace("requests: 0", "requests: 5") + "kv_offload: {cpu_bytes_to_use: 1}\n")
    columns = read(text_of({"slo_target_us": 7}, extra=["slo_target_us"]), header=path)

    assert [note.split(" ")[0] for note in columns.notes] == [
        "slo_target_us", "warm_up_requests", "kv_offload", "session_context_growth"]


@pytest.mark.parametrize(("rows", "keys", "message"), [
    ([{"input_tokens": "x"}], {}, 't.csv:2: input_tokens: expected an integer'),
    ([{"input_tokens": 0}], {}, "t.csv:2: input_tokens: expected a prompt of 1 to"),
    ([{"session_id": "S", "round_index": 1}], {"session_mode": "closed_loop"},
     't.csv:2: round_index: expected 0, the next round of session "S", found "1"'),
    ([{"session_id": "S"}, {"session_id": "S"}], {"session_mode": "closed_loop"},
     't.csv:3: round_index: expected 1, the next round of session "S", found "0"')])
def test_what_is_wrong_with_a_row_is_told_by_line(rows, keys, message):
    with pytest.raises(InputErrors) as error:
        read(text_of(*rows), **keys)
    assert message in str(error.value)


def test_unknown_and_missing_columns_are_told():
    text = text_of({}).replace("streaming", "steaming")
    with pytest.raises(InputErrors) as error:
        read(text)
    assert 'unknown column "steaming"; did you mean streaming?' in str(error.value)
    assert 'column "streaming" is missing' in str(error.value)


@pytest.mark.parametrize(("text", "message"), [
    (NO_HEADER.replace("3", "2"), "trace_version"), (NO_HEADER + "frobnicate: 1\n", "unknown field `frobnicate`")])
def test_a_header_is_read_strictly(header, text, message):
    with pytest.raises(InputErrors, match=message):
        read(text_of({}), header=header(text))


def written(workload, tmp_path):
    count = write_tracev2(workload, tmp_path / "o.csv", tmp_path / "o.yaml")
    with open(tmp_path / "o.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count
    return rows, (tmp_path / "o.csv").read_text()


def test_what_was_written_is_read_again(tmp_path):
    text = text_of({"arrival_time_us": 5, "slo_class": "batch", "tenant_id": "T", "deadline_us": 1005, "model": "m"},
                   {"arrival_time_us": 7, "prefix_group": "g", "prefix_length": 20, "session_id": "S"},
                   {"arrival_time_us": 8, "prefix_group": "g", "session_id": "S", "round_index": 1, "output_tokens": 0},
                   {"arrival_time_us": 9, "adapter": "l"}, extra=["adapter"])
    first = read(text)
    again = read(written(build_workload(in_arrival_order(first)), tmp_path)[1])

    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "timeout_ns"):
        assert getattr(again, name).tolist() == getattr(first, name).tolist(), name
    for name in ("slo_class", "tenant", "session", "model", "adapter"):
        assert again.labels[name][0].tolist() == first.labels[name][0].tolist(), name
    assert again.prompts.num_tokens.tolist() == [10, 20, 10, 20, 10, 10]


def test_a_run_is_written_with_its_times(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is in the blis extra")
    (tmp_path / "t.csv").write_text(text_of(
        *(row | {"deadline_us": 0} for row in SESSION), {"arrival_time_us": 1, "output_tokens": 900}))
    (tmp_path / "e.toml").write_text(
        'engine = {num_gpu_blocks = 100, max_model_len = 400}\nlatency = {backend = "linear", base_us = 1000, '
        'per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}\nhorizon_s = 0.05\n'
        'workload = {type = "trace", format = "tracev2", path = "t.csv", session_mode = "closed_loop"}\n')
    experiment = load_experiment(tmp_path / "e.toml")
    workload = load(experiment.workload, 0)

    with pytest.raises(InputErrors, match=r"when requests .* come is not known yet; run the workload first"):
        write_tracev2(workload, tmp_path / "o.csv", tmp_path / "o.yaml")
    simulator.run(experiment, workload=workload)
    rows, _ = written(workload, tmp_path)

    session = sorted((row for row in rows if row["session_id"]), key=lambda row: int(row["arrival_time_us"]))
    assert [row["round_index"] for row in session] == ["0", "1", "2"]
    assert all(int(row["last_chunk_time_us"]) > int(row["first_chunk_time_us"]) > 0 for row in session)
    assert (tmp_path / "o.yaml").read_text().splitlines()[2] == "mode: replayed"
    for before, after in pairwise(session):
        assert int(after["arrival_time_us"]) > int(before["last_chunk_time_us"])


def test_prompts_that_such_a_trace_cannot_say_are_refused(tmp_path):
    columns = Columns(np.array([0, 1]), np.array([10, 10]), np.array([3, 3]), prompts=Prompts(
        np.array([1, 2]), np.array([named_stream(0), output_stream(0), own_stream(1)]), np.array([10, 3, 7])))

    with pytest.raises(InputErrors, match="the prompts of requests 1 are no prefix of a group"):
        write_tracev2(build_workload(in_arrival_order(columns)), tmp_path / "o.csv", tmp_path / "o.yaml")
