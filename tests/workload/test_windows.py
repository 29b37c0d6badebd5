"""Where the time of a trace begins, and parts of it; all numbers by hand."""
import json

import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4000}
[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "trace"
"""
EPOCH_S = 1_767_225_600             # 2026-01-01
HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"


@pytest.fixture
def serve(tmp_path):
    """Serve a trace in some format with keys of [workload]; return arrivals in s and what is told."""
    def serve(text, **keys):
        (tmp_path / "trace").write_text(text)
        (tmp_path / "experiment.toml").write_text(EXPERIMENT)
        keys = {f"workload.{key}": value for key, value in ({"path": str(tmp_path / "trace")} | keys).items()}
        result = simulator.run(tmp_path / "experiment.toml", keys)
        return (result.requests["arrival_ns"] / 1e9).tolist(), result.summary["diagnosis"]
    return serve


def native(*times_s, more=""):
    return "\n".join([HEADER + more, *(f"{time_s},100,10" for time_s in times_s)]) + "\n"


def mooncake(*times):
    return "\n".join(json.dumps({"timestamp": time, "input_length": 100, "output_length": 10}) for time in times)


def azure(*seconds):
    return "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:15:{second:09.6f},100,10\n" for second in seconds)


def burstgpt(*times_s):
    return "Timestamp,Model,Request tokens,Response tokens\n" + "".join(f"{time},GPT-4,100,10\n" for time in times_s)


def llmservingsim(*times_s):
    return "\n".join(json.dumps({"arrival_time_ns": time * 10**9, "input_toks": 100, "output_toks": 10})
                     for time in times_s)


def timed_trace(*times_s):
    return "\n".join(json.dumps({"timestamp": time, "input_length": 16, "output_length": 10, "hash_ids": [1]})
                     for time in times_s)


FORMATS = [("csv", native), ("mooncake", lambda *times: mooncake(*(1000 * time for time in times))), ("azure", azure),
           ("burstgpt", burstgpt), ("llmservingsim", llmservingsim), ("timed_trace", timed_trace)]


@pytest.mark.parametrize(("name", "write"), FORMATS, ids=[name for name, _ in FORMATS])
def test_time_begins_at_the_first_arrival(serve, name, write):
    assert serve(write(20, 22, 25), format=name)[0] == [0, 2, 5]


@pytest.mark.parametrize(("name", "write"), [("csv", native), ("mooncake", mooncake)])
@pytest.mark.parametrize(("unit", "called"), [(1, "s"), (1000, "ms"), (10**6, "us"), (10**9, "ns")])
def test_epoch_times_in_any_unit(serve, name, write, unit, called):
    arrivals, told = serve(write(EPOCH_S * unit, (EPOCH_S + 2) * unit, (EPOCH_S + 5) * unit), format=name)

    assert arrivals == [0, 2, 5]
    column, usual = ("arrived_at", "s") if name == "csv" else ("timestamp", "ms")
    units = [line for line in told if "counts from 1970" in line]
    assert [line.partition(": ")[2] for line in units] == [
        f"{column} counts from 1970 in {called}, not in {usual}."] * (called != usual)
    assert any("first request comes at 1767225600 s, more than 1,000 times the median gap of 2.5 s; time begins there."
               in line for line in told)


def test_a_fraction_of_an_epoch_second_is_exact(serve):
    assert serve(native(f"{EPOCH_S}.000000001", f"{EPOCH_S}.5"))[0] == [0, 0.499999999]
    assert serve(native(f"{EPOCH_S}000.001", f"{EPOCH_S}500"))[0] == [0, 0.499999]


def test_a_key_keeps_what_is_before(serve):
    arrivals, told = serve(native(6000, 6002, 6005), time_origin="trace")

    assert arrivals == [6000, 6002, 6005]
    assert "no request comes in the first 6000 s, more than 1,000 times the median gap of 2.5 s" in told[0]
    assert serve(native(2, 4, 7), time_origin="trace") == ([2, 4, 7], [])
    with pytest.raises(InputErrors, match=r"workload\.time_origin: .* this trace counts from 1970"):
        serve(native(EPOCH_S, EPOCH_S + 1), time_origin="trace")


def test_a_first_request_that_is_far_from_all_others_is_told(serve):
    arrivals, told = serve(native(0, 9000, 9001, 9002, 9003))

    assert arrivals[1] == 9000
    assert "after its first request none comes for 9000 s, more than 1,000 times the median gap of 1 s" in told[0]
    assert not serve(native(0, 900, 901, 902, 903))[1]


@pytest.mark.parametrize(("name", "write"), FORMATS, ids=[name for name, _ in FORMATS])
def test_a_part_of_a_trace_in_any_format(serve, name, write):
    first_s = 20.0 if name == "azure" else 0.0          # of a calendar, seconds since the first arrival
    arrivals, told = serve(write(20, 21, 25, 30, 31, 40), format=name, start_s=25 - first_s, end_s=40 - first_s)

    assert arrivals == [0, 5, 6]
    assert ": of 6 requests 2 are before and 1 after that, and were left out." in told[0]


def test_arrivals_count_from_the_start_that_was_asked_for(serve):
    assert serve(native(20, 21, 25, 30), start_s=24.0)[0] == [1, 6]
    assert serve(native(20, 21, 25, 30), end_s=22.0)[0] == [0, 1]
    assert serve(native(20, 21, 25, 30), end_s=22.0, time_origin="trace")[0] == [20, 21]
    assert serve(native(30, 20, 25, 21), start_s=21.0, end_s=30.0)[0] == [0, 4]


def test_a_calendar_takes_both_its_times_and_seconds_since_its_first(serve):
    text = native(*(EPOCH_S + time for time in (0, 10, 20)))

    assert serve(text, start_s=5.0)[0] == [5, 15]
    assert serve(text, start_s=EPOCH_S + 5.0, end_s=EPOCH_S + 20.0)[0] == [5]


def test_it_goes_with_the_other_keys(serve):
    text = native(0, 100, 104, 110, 120, 200)

    # from 98 s on: 2, 6, 12, 22, 102; half of that; before 10; the first two of them
    assert serve(text, start_s=98.0, time_scale=0.5)[0] == [1, 3, 6, 11, 51]
    assert serve(text, start_s=98.0, time_scale=0.5, duration_s=10.0)[0] == [1, 3, 6]
    assert serve(text, start_s=98.0, time_scale=0.5, duration_s=10.0, max_requests=2)[0] == [1, 3]
    assert len(serve(text, start_s=98.0, load={"mode": "concurrency", "concurrency": 1})[0]) == 5


SESSIONS = ("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round\n"
            "a0,0,10,1,a,0\na1,50,20,1,a,1\na2,90,30,1,a,2\nb0,60,10,1,b,0\n")


def test_sessions_begin_where_the_window_does(serve):
    # a1 waits for no other any more and comes at its own time, a2 40 s after its end; without a window all follow a0
    arrivals, told = serve(SESSIONS, start_s=40.0, sessions={"gap": "recorded"})

    assert sorted(round(time, 2) for time in arrivals) == pytest.approx([10, 20, 50], abs=0.1)
    assert any("of 4 requests 1 are before and 0 after that" in line for line in told)


@pytest.mark.parametrize(("keys", "message"), [
    ({"start_s": 50.0}, r"workload\.start_s: with start_s = 50 no request of .* is left; they come from 20 to 40 s"),
    ({"end_s": 20.0}, r"workload\.end_s: with end_s = 20 no request"),
    ({"start_s": 5.0, "end_s": 5.0}, r"end_s = 5: expected more than start_s = 5"),
    ({"start_s": 5.0, "time_origin": "trace"}, "time_origin: time begins at start_s")])
def test_windows_that_cannot_be_are_refused(serve, keys, message):
    with pytest.raises(InputErrors, match=message):
        serve(native(20, 40), **keys)


APPLIED = {"num_turns": 0, "input_prompt_length": 100, "assistant_response_length": [], "tool_call_output_length": [],
           "tool_call_latency": [], "final_assistant_response_length": 5}


def test_a_trace_without_times_has_no_windows(serve):
    with pytest.raises(InputErrors, match=r"workload\.start_s: a trace of format = \"applied_compute\" has no times"):
        serve(json.dumps(APPLIED), format="applied_compute", start_s=1.0, load={"mode": "lanes", "lanes": 1})
