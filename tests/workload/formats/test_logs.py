"""Logs of servers read as native traces: other names, other times, JSON Lines, rows that are no requests."""
import json

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.formats.native_names import NativeParameters

LOG = "timestamp,input_tokens,output_tokens\n"
S = 10**9


def read(text, **keys):
    return NativeCsv(NativeParameters(**keys)).read("log", text.encode())


def refused(text, **keys):
    with pytest.raises(InputErrors) as caught:
        read(text, **keys)
    return list(caught.value.faults)


def times_s(columns):
    return ((columns.arrival_ns - columns.arrival_ns[0]) / S).tolist()


@pytest.mark.parametrize(("first", "second"), [
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z"),
    ("2026-01-01 00:00:00", "2026-01-01 00:00:01.500000"),
    ("2026-01-01T00:00:00+00:00", "2026-01-01T01:00:01.5+01:00"),
    ("2025-12-31T16:00:00-0800", "2026-01-01T00:00:01.5z"),
    ("2026-01-01 00:00:00 UTC", "2026-01-01 02:00:01.5 +02"),
    ("2026-01-01T00:00:00", '"2026-01-01T00:00:01,5"'),
    ("1767225600", "1767225601.5"), ("1767225600000", "1767225601500"), ("1767225600000000", "1767225601500000"),
    ("1767225600000000000", "1767225601500000000"), ("1.7672256e9", "1.7672256015e9"), ("0", "1.5"), ("12", "13.5")])
def test_times_as_logs_write_them(first, second):
    columns = read(f"{LOG}{first},100,10\n{second},200,20\n")

    assert times_s(columns) == [0, 1.5]
    assert (columns.prompt_tokens.tolist(), columns.output_tokens.tolist()) == ([100, 200], [10, 20])
    assert columns.arrival_ns[0] in (0, 12 * S, 1_767_225_600 * S)


def test_a_unit_that_is_said_holds():
    assert times_s(read(f"{LOG}5,1,1\n1505,1,1\n", time_unit="ms")) == [0, 1.5]
    assert refused(f"{LOG}x,1,1\n", time_unit="us") == [
        'log:2: timestamp: expected a number of microseconds >= 0, found "x"']


@pytest.mark.parametrize("names", [
    "TIMESTAMP,ContextTokens,GeneratedTokens", "arrival_time,prompt_len,output_len",
    "created_at,prompt_tokens,completion_tokens",
    "ts,Request tokens,Response tokens", "start_time,input_length,output_length", "arrived_at,isl,osl"])
def test_usual_names_are_known(names):
    columns = read(f"{names}\n0,100,10\n1,100,10\n")

    assert times_s(columns) == [0, 1]
    assert f"{names.split(',')[1]} as num_prefill_tokens" in columns.notes[0]


def test_any_other_name_can_be_said():
    columns = read("when,in,out,who\n0,100,10,a\n1,100,10,b\n", columns={
        "arrived_at": "when", "num_prefill_tokens": "in", "num_decode_tokens": "out", "tenant": "who"})

    assert columns.labels["tenant"][1] == ["a", "b"]
    assert columns.notes == (
        "log: when as arrived_at, in as num_prefill_tokens, out as num_decode_tokens, who as tenant.",)


def test_columns_of_a_log_that_are_not_read_are_told():
    columns = read("timestamp,input_tokens,output_tokens,latency_ms,status\n0,1,1,7,200\n")

    assert columns.notes[0].endswith("; not looked at: latency_ms, status.")
    # with the names of a native trace an unknown one is likelier a slip
    assert refused("arrived_at,num_prefill_tokens,num_decode_tokens,tennant\n0,1,1,x\n") == [
        'log:1: unknown column "tennant"; did you mean tenant?']


@pytest.mark.parametrize(("text", "columns", "message"), [
    (LOG + "0,1,1\n", {"arrived": "timestamp"}, "workload.columns.arrived: no column of a native trace; did you mean "
                                                "arrived_at?"),
    (LOG + "0,1,1\n", {"arrived_at": "timestmp"},
     'workload.columns.arrived_at: log has no column "timestmp"; did you mean timestamp?'),
    ("time,timestamp,isl,osl\n0,0,1,1\n", {},
     'log:1: "time", "timestamp" may each be arrived_at; [workload] columns = {arrived_at = "time"} says which'),
    ("arived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n", {},
     'log:1: column "arrived_at" is missing; found "arived_at, num_prefill_tokens, num_decode_tokens"; did you mean '
     'arived_at?; [workload] columns = {arrived_at = "..."} says what it is called here'),
    ("timestamp,tokens\n0,1\n", {},
     'log:1: column "num_prefill_tokens" is missing; found "timestamp, tokens"; [workload] columns = '
     '{num_prefill_tokens = "..."} says what it is called here')])
def test_names_that_do_not_fit(text, columns, message):
    assert refused(text, columns=columns)[0] == message


def lines(*objects):
    return "\n".join(json.dumps(each) for each in objects) + "\n"


def request(time, inputs=100, outputs=10, **more):
    return {"timestamp": time, "input_tokens": inputs, "output_tokens": outputs} | more


def test_json_lines_are_read_by_their_content():
    columns = read(lines(request("2026-01-01T00:00:00Z"),
                         request("2026-01-01T00:00:01.5Z", 200, session_id='a "b", c')))

    assert times_s(columns) == [0, 1.5]
    assert columns.labels["session"][1] == ['a "b", c']
    assert columns.labels["session"][0].tolist() == [-1, 0]
    assert times_s(read("\ufeff" + lines(request(1767225600123), request(1767225601623)))) == [0, 1.5]


def test_faults_of_json_lines_name_their_line():
    text = lines(request(0)) + "\n" + lines(request(1, 0), request("x"))

    assert refused(text) == ['log:3: input_tokens: expected an integer >= 1, found "0"',
                             'log:4: timestamp: expected a number of seconds >= 0, found "x"']
    assert refused(lines(request(0)) + "{]\n")[0].startswith("log:2: expected a JSON object with arrived_at")
    assert refused("[1]") == ["log:1: a JSON array; expected CSV, or JSON Lines: one object a line"]
    assert 'format = "mooncake" reads them' in refused(lines(request(0, hash_ids=[1])))[0]


def test_rows_that_are_no_requests_may_be_left_out():
    text = f"{LOG}0,1,1\nx,1,1\n2,0,1\n3,1\n4,1,1,9\n5,1,1\n"

    columns = read(text, on_bad_row="skip")
    assert times_s(columns) == [0, 5]
    assert columns.notes[1] == ('log: 4 rows of 6 cannot be read and were left out; the first: log:3: timestamp: '
                                'expected a number of seconds >= 0, found "x".')
    assert len(refused(text)) == 4
    assert refused(f"{LOG}x,1,1\n", on_bad_row="skip") == [
        'log: no row can be read; the first: log:2: timestamp: expected a number of seconds >= 0, found "x"']
    assert len(read(f"{LOG}0,1,1\n", on_bad_row="skip").notes) == 1


def test_objects_that_are_none_may_be_left_out():
    columns = read(lines(request(0)) + "{]\n" + lines(request(2, None), request(3)), on_bad_row="skip")

    assert times_s(columns) == [0, 3]
    assert "2 rows of 4 cannot be read and were left out; the first: log:2: expected a JSON object" in columns.notes[1]


def test_prompts_of_the_rows_that_stay_stay():
    columns = read("arrived_at,num_prefill_tokens,num_decode_tokens,request_id,prompt\n"
                   "0,10,1,a,p:4/:6\n1,10,1,b,p:4/:x\n2,10,1,a,p:4/:6\n3,9,1,c,p:4/:6\n4\n5,10,1,d,p:3/q:7\n",
                   on_bad_row="skip")

    # b is no prompt, the second a has an id that is taken, the prompt of c is a token too long
    assert columns.request_ids == ["a", "d"]
    assert columns.prompts.num_segments.tolist() == [2, 2]
    assert columns.prompts.num_tokens.tolist() == [4, 6, 3, 7]
    assert columns.prompts.streams[0] == columns.prompts.streams[2]
    assert "4 rows of 6" in columns.notes[0]


def test_a_native_trace_stays_as_it_is():
    columns = read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,1,1\n")

    assert columns.arrival_ns.tolist() == [S // 2]
    assert columns.notes == ()
    assert isinstance(columns.arrival_ns, np.ndarray)


def test_sessions_of_whole_prompts_say_that_they_share_nothing():
    text = ("arrived_at,num_prefill_tokens,num_decode_tokens,session,round\n"
            "0,10,1,a,0\n1,20,1,a,1\n2,30,1,a,2\n0,9,1,b,0\n")

    assert read(text).notes == (
        "log: 2 requests that follow others of their session share no token with them, and no cache finds any: "
        "there is no column prompt; give one, or tell what each adds with a column round and "
        "sessions = {accumulate = true}.",)
    assert read("arrived_at,num_prefill_tokens,num_decode_tokens,session\n0,10,1,a\n1,20,1,b\n2,20,1,\n").notes == ()
