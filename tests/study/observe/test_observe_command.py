"""Whole measurements. The server is a stand-in: parser, clocks, omission and failures are tested, and nothing else."""
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from simulator.study.observe import summary
from simulator.workload.formats.observed_columns import COLUMNS
from support.observing import arrivals
from support.sse_server import SERVED, StandIn

CONFIGS = Path(__file__).parents[3] / "configs"


def test_every_request_of_the_workload_is_a_row(experiment, observe):
    with StandIn(ttft_s=0.01, tpot_s=0.005) as server:
        found = observe(experiment(arrivals(0.5, 0.52, 0.54, prompt=10, output=4)), server)

    assert found.status == 0
    assert list(found.rows[0]) == list(COLUMNS)
    assert [row["request_id"] for row in found.rows] == ["0", "1", "2"]
    assert [float(row["planned_s"]) for row in found.rows] == [0.0, 0.02, 0.04]
    for row in found.rows:
        counts = [row[name] for name in ("input_tokens", "output_tokens", "cached_tokens", "messages")]
        assert counts == ["10", "4", "3", "4"]
        assert (row["status"], row["error"], row["finish_reason"]) == ("ok", "", "length")
        assert float(row["sent_s"]) >= float(row["planned_s"])
        assert float(row["ttft_s"]) >= 0.01 and float(row["e2el_s"]) >= 0.01 + 3 * 0.005
        assert float(row["first_message_s"]) == float(row["ttft_s"])


def test_what_is_sent_asks_for_so_many_tokens_and_no_more(experiment, observe):
    with StandIn() as server:
        observe(experiment(arrivals(0, prompt=10, output=4)), server)

    [asked] = server.asked
    assert asked.path == "/v1/completions"
    prompt = asked.body.pop("prompt")
    assert len(prompt) == 10 and all(1000 <= token < 32_000 for token in prompt)
    assert asked.body == {
        "max_tokens": 4, "min_tokens": 4, "ignore_eos": True, "temperature": 0.0, "stream": True, "model": SERVED,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def test_requests_go_out_when_they_are_planned_whatever_is_outstanding(experiment, observe):
    # The server takes 100 ms for each, one after the other; five come 10 ms apart. The fifth is answered after 500 ms:
    # 460 ms after it was sent. Who waited for answers before sending would have seen 100.
    with StandIn(ttft_s=0.1, one_at_a_time=True) as server:
        found = observe(experiment(arrivals(0, 0.01, 0.02, 0.03, 0.04, output=1)), server)

    assert float(found.rows[4]["ttft_s"]) > 0.25
    assert found.server["summary"]["ttft_from_planned_ms"]["max"] >= 460
    assert found.server["summary"]["client_queue_ms"]["max"] == 0


def test_who_waits_for_a_place_in_flight_waits_at_the_client(experiment, observe):
    # The same, one at a time from here: the fifth is sent after 400 ms, and waits 360 of them.
    with StandIn(ttft_s=0.1) as server:
        found = observe(experiment(arrivals(0, 0.01, 0.02, 0.03, 0.04, output=1)), server, "--max-in-flight", 1)

    assert float(found.rows[4]["sent_s"]) >= 0.4
    with h5py.File(found.directory / "token_times.h5") as file:
        assert file["client_queue_ns"][4] >= 359_000_000
        assert file["client_queue_ns"][0] == 0
    assert found.server["summary"]["client_queue_ms"]["max"] >= 359
    assert found.server["sent"]["max_in_flight"] == 1


def test_a_lag_beyond_bounds_is_client_bound(experiment, observe, monkeypatch):
    monkeypatch.setattr(summary, "LAG_MS", 0.0)
    monkeypatch.setattr(summary, "LAG_SHARE", 0.0)
    with StandIn() as server:
        found = observe(experiment(arrivals(0)), server)

    assert found.server["summary"]["verdict"]["client_bound"]
    assert "client-bound" in found.out
    assert "warning: client-bound: p99 of the lag is" in found.err


def test_times_of_each_message_are_kept(experiment, observe):
    with StandIn(tpot_s=0.02, events_per_read=2) as server:
        found = observe(experiment(arrivals(0, 0.01, output=4)), server)

    assert [(row["messages"], row["batched"]) for row in found.rows] == [("4", "2")] * 2
    with h5py.File(found.directory / "token_times.h5") as file:
        times = file["token_times"]
        assert times["offsets"][:].tolist() == [0, 4, 8]
        assert times["tokens"][:].tolist() == [1] * 8
        assert times["batched"][:].tolist() == [0, 1, 0, 1] * 2
        gaps_ns = np.diff(times["times_ns"][:4])
        assert gaps_ns[0] == gaps_ns[2] == 0 and gaps_ns[1] >= 20_000_000   # two tokens later
        assert file["request_id"][:].tolist() == [b"0", b"1"]


@pytest.mark.parametrize("manners", [
    {"line_end": "\r\n"}, {"line_end": "\r"}, {"cut_bytes": 7, "text": "süß€😀"}, {"usage": "final"},
    {"events_per_read": 100}], ids=["crlf", "cr", "cut", "final_usage", "one_read"])
def test_the_form_of_a_stream_changes_nothing(experiment, observe, manners):
    with StandIn(**manners) as server:
        found = observe(experiment(arrivals(0, output=5)), server)

    [row] = found.rows
    assert (row["status"], row["messages"], row["output_tokens"], row["finish_reason"]) == ("ok", "5", "5", "length")


def test_a_server_that_tells_no_usage_leaves_cells_empty(experiment, observe):
    with StandIn(usage="none") as server:
        found = observe(experiment(arrivals(0, prompt=10, output=5)), server)

    [row] = found.rows
    assert (row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == ("10", "", "")    # the prompt is ours
    assert "does not tell the tokens of 1 answers" in found.err


def test_chat_sends_words_that_a_probe_counts(experiment, observe):
    # 1.5 tokens a word, 10 around: 100 tokens are 60 words
    with StandIn(tokens_per_word=1.5, fixed_tokens=10, ttft_s=0.2) as server:
        found = observe(experiment(arrivals(0, prompt=100, output=3)), server, "--api", "chat")

    one, many, asked = server.asked
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions"] * 3
    assert [len(each.body["messages"][0]["content"].split()) for each in (one, many, asked)] == [1, 256, 60]
    [row] = found.rows
    assert (row["input_tokens"], row["messages"]) == ("100", "3")
    assert found.server["words"] == pytest.approx({"tokens_per_word": 1.5, "fixed_tokens": 10.0}, abs=0.51)
    assert float(row["first_message_s"]) < float(row["ttft_s"])     # whose turn it is comes at once


def test_without_a_stream_there_is_the_end_alone(experiment, observe):
    with StandIn(ttft_s=0.02) as server:
        found = observe(experiment(arrivals(0, output=5)), server, "--no-stream")

    assert server.asked[0].body["stream"] is False and "stream_options" not in server.asked[0].body
    [row] = found.rows
    assert (row["ttft_s"], row["messages"], row["output_tokens"], row["status"]) == ("", "", "5", "ok")
    assert float(row["e2el_s"]) >= 0.02


def test_an_answer_that_does_not_stream_is_taken_whole(experiment, observe):
    with StandIn(is_streaming=False) as server:
        found = observe(experiment(arrivals(0, output=5)), server)

    assert [(row["status"], row["ttft_s"], row["output_tokens"]) for row in found.rows] == [("ok", "", "5")]


FAILURES = {"500": ("http_500", "the engine is dead"), "redirect": ("http_307", "{}"), "drop": ("connection", ""),
            "broken": ("broken", ""), "ends_early": ("broken", "the stream ended before the answer did"),
            "error_event": ("error_event", "out of blocks"), "garbage": ("malformed", ""),
            "hang": ("timeout", "no end within 0.8 s")}


@pytest.mark.slow
def test_failures_are_rows_and_no_retries(experiment, observe):
    kinds = list(FAILURES)
    count = len(kinds) + 1
    with StandIn(fails=dict(enumerate(kinds, 10))) as server:
        found = observe(experiment(arrivals(*(0.02 * number for number in range(count)), prompt=range(10, 10 + count))),
                        server, "--timeout", "0.8")

    assert found.status == 0                    # one is ok
    assert len(server.asked) == len(kinds) + 1
    for row, (status, error) in zip(found.rows, FAILURES.values()):
        assert row["status"] == status
        assert error in row["error"] and row["error"] and "\n" not in row["error"]
        assert row["e2el_s"] == ""
    assert found.rows[-1]["status"] == "ok"
    assert found.server["summary"]["requests"]["failed"]["broken"] == 2
    assert found.server["summary"]["verdict"]["too_many_failed"]
    assert "88.9% of the requests failed, more than 5%" in found.err       # 8 of 9


def test_tokens_that_came_before_a_failure_are_kept(experiment, observe):
    with StandIn(fails={10: "broken"}) as server:
        found = observe(experiment(arrivals(0, output=4)), server)

    assert found.status == 1                    # none is ok
    assert found.rows[0]["messages"] == "2" and float(found.rows[0]["ttft_s"]) > 0


def test_short_answers_are_told(experiment, observe):
    with StandIn(short_by=1) as server:
        found = observe(experiment(arrivals(0, 0.01, output=4)), server)

    assert found.server["summary"]["verdict"]["too_many_short"]
    assert "100.0% of the answers have fewer tokens than asked for, more than 1%" in found.err


def test_a_client_of_the_workload_gives_up_by_itself(experiment, observe):
    with StandIn(ttft_s=5.0) as server:
        found = observe(experiment(arrivals(0, deadline_s=[0.1])), server)

    assert found.rows[0]["status"] == "gave_up"


def test_nobody_answers(experiment, observe):
    found = observe(experiment(arrivals(0)), "http://127.0.0.1:9")

    assert found.status == 2
    assert "--url http://127.0.0.1:9: nobody answers" in found.err
    assert not found.directory.exists()


def test_a_model_that_is_not_served_is_refused_before_anything_is_sent(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(0)), server, model="stand-on")

    assert found.status == 2
    assert f"--model stand-on: {server.url} does not serve it, but stand-in; did you mean stand-in?" in found.err
    assert not server.asked and not found.directory.exists()


def test_texts_longer_than_the_server_takes_are_told_before(experiment, observe):
    with StandIn(models={SERVED: 12}) as server:
        found = observe(experiment(arrivals(0, prompt=10, output=4)), server)

    assert ("1 of 1 requests are longer than the server's max_model_len of 12 tokens, the longest 14" in found.err)
    assert found.server["max_model_len"] == 12


def test_the_key_is_sent_and_never_written(experiment, observe, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with StandIn(key="sk-very-secret", fails={10: "500"}) as server:
        found = observe(experiment(arrivals(0, 0.01, prompt=[10, 11])), server)

    assert [row["status"] for row in found.rows] == ["http_500", "ok"]
    for path in found.directory.iterdir():
        assert b"sk-very-secret" not in path.read_bytes()
    assert "sk-very-secret" not in found.out + found.err


def test_a_server_that_repeats_the_key_does_not_put_it_into_files(experiment, observe, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    with StandIn(key="sk-very-secret") as server:
        found = observe(experiment(arrivals(0)), server)

    assert found.status == 2 and "OPENAI_API_KEY" in found.err and "sk-wrong" not in found.err


def test_the_page_of_metrics_elsewhere_gets_no_key(experiment, observe, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with StandIn(key="sk-very-secret") as server, StandIn(key="sk-other") as other:
        found = observe(experiment(arrivals(0)), server, "--metrics-url", f"{other.url}/metrics")

    assert found.server["metrics"] == {"before": "not told: status 401", "after": "not told: status 401"}
    assert "/metrics" not in server.pages


def test_what_the_server_says_of_itself_is_written(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(0)), server)

    assert found.server["version"] == "0.0.stand-in"
    assert found.server["flags"] == {"block_size": "16", "enable_prefix_caching": "True"}
    came = f'requests_total{{model_name="{SERVED}"}}'
    assert [found.server["metrics"][when][came] for when in ("before", "after")] == [0.0, 1.0]
    assert sorted(set(server.pages)) == ["/metrics", "/v1/models", "/version"]


def test_a_later_turn_waits_for_the_answer_and_repeats_it(experiment, observe):
    # turns of 5 new and 4 output tokens, 50 ms to think: prompts of 5, 5 + 4 + 5, 14 + 4 + 5
    sessions = {"rounds": {"distribution": "constant", "value": 3},
                "new_tokens": {"distribution": "constant", "value": 5},
                "output_tokens": {"distribution": "constant", "value": 4},
                "think_time_s": {"distribution": "constant", "value": 0.05}}
    workload = {"type": "sessions", "num_sessions": 1, "sessions": sessions,
                "arrival": {"process": "poisson", "rate_per_s": 10.0}}
    with StandIn(ttft_s=0.03) as server:
        found = observe(experiment(workload=workload), server)

    assert [row["input_tokens"] for row in found.rows] == ["5", "14", "23"]
    assert [row["round"] for row in found.rows] == ["0", "1", "2"]
    assert len({row["session"] for row in found.rows}) == 1 and found.rows[0]["session"]
    first, second, third = (asked.body["prompt"] for asked in server.asked)
    assert second[:9] == [*first, 7001, 7002, 7003, 7004]       # the ids of the stand-in's answer
    assert third[:14] == second
    ends = [float(row["sent_s"]) + float(row["e2el_s"]) for row in found.rows]
    assert all(float(row["planned_s"]) >= end + 0.05 - 1e-6 for row, end in zip(found.rows[1:], ends))


def test_turns_after_a_failure_are_rows_that_were_not_sent(experiment, observe):
    trace = arrivals(0, 0.01, session=["a", "a"], round=[0, 1])
    with StandIn(fails={10: "drop"}) as server:
        found = observe(experiment(trace), server)

    assert [row["status"] for row in found.rows] == ["connection", "not_sent"]
    assert (found.rows[1]["planned_s"], found.rows[1]["session"], found.rows[1]["round"]) == ("", "a", "1")
    assert len(server.asked) == 1
    assert found.server["summary"]["requests"]["not_sent"] == 1


def test_a_closed_loop_keeps_so_many_in_flight(experiment, observe):
    # two clients, four requests of 200 ms each: two at once, then two more, each when another has ended
    workload = {"type": "synthetic", "num_requests": 4, "prompt_tokens": {"distribution": "constant", "value": 8},
                "output_tokens": {"distribution": "constant", "value": 1},
                "load": {"mode": "concurrency", "concurrency": 2}}
    with StandIn(ttft_s=0.2) as server:
        found = observe(experiment(workload=workload), server)

    sent, ends = ([float(row["sent_s"]) + own * float(row["e2el_s"]) for row in found.rows] for own in (0, 1))
    assert max(sent[:2]) < min(ends[:2])
    assert sent[2] >= min(ends[:2]) and sent[3] >= max(ends[:2])


def test_places_of_the_workload_make_requests_wait_at_the_client(experiment, observe):
    # [workload.load] max_in_flight = 1, 100 ms each, 10 ms apart: the third is planned at 20 ms and sent after 200
    path = experiment(arrivals(0, 0.01, 0.02, output=1))
    with StandIn(ttft_s=0.1) as server:
        found = observe(path, server, "--set", "workload.load={mode='timestamps', max_in_flight=1}")

    assert [float(row["planned_s"]) for row in found.rows] == [0.0, 0.01, 0.02]
    assert float(found.rows[2]["sent_s"]) >= 0.2
    assert found.server["summary"]["client_queue_ms"]["max"] >= 180


def test_warm_ups_of_the_workload_are_sent_and_left_out(experiment, observe):
    workload = loop_for(0.2) | {"num_requests": 3}
    del workload["duration_s"]
    with StandIn() as server:
        found = observe(experiment(workload=workload | {"warmup": {"copies_of_first": 2}}), server)

    assert len(server.asked) == 5 and len(found.rows) == 3
    assert found.server["warm_ups"] == 2
    assert min(float(row["planned_s"]) for row in found.rows) == 0


def test_a_conversation_in_chat_repeats_the_text_of_answers(experiment, observe):
    sessions = {"rounds": {"distribution": "constant", "value": 2},
                "new_tokens": {"distribution": "constant", "value": 40},
                "output_tokens": {"distribution": "constant", "value": 4},
                "think_time_s": {"distribution": "constant", "value": 0.01}}
    workload = {"type": "sessions", "num_sessions": 1, "sessions": sessions,
                "arrival": {"process": "poisson", "rate_per_s": 10.0}}
    with StandIn(text=" süß") as server:
        found = observe(experiment(workload=workload), server, "--api", "chat")

    first, second = (asked.body["messages"] for asked in server.asked[2:])
    assert [row["status"] for row in found.rows] == ["ok", "ok"]
    assert second[0] == first[0]
    assert second[1] == {"role": "assistant", "content": " süß süß süß süß"}
    assert second[2]["role"] == "user"


def loop_for(duration_s):
    """Return the workload of two clients that send one request after the other for so long."""
    return {"type": "synthetic", "duration_s": duration_s, "prompt_tokens": {"distribution": "constant", "value": 8},
            "output_tokens": {"distribution": "constant", "value": 1},
            "load": {"mode": "concurrency", "concurrency": 2}}


def test_a_closed_loop_ends_with_its_duration(experiment, observe):
    with StandIn(ttft_s=0.04) as server:
        found = observe(experiment(workload=loop_for(0.3)), server)

    # each client sends one each 40 ms, or later: eight at most before 0.3 s
    assert found.status == 0 and 2 <= len(found.rows) == len(server.asked) <= 16
    assert all(float(row["planned_s"]) < 0.3 for row in found.rows)
    assert {row["status"] for row in found.rows} == {"ok"} and "ran dry" not in found.err
    assert not (found.directory / "trace.csv").exists()


def test_a_closed_loop_that_had_too_few_requests_says_so(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(workload=loop_for(30.0)), server, "--plays-per-slot", 3)

    assert len(found.rows) == 6
    assert "the load ran dry: more than 3 requests, or sessions, a slot are needed" in found.err


def test_shared_streams_are_equal_prefixes_on_the_wire(experiment, observe):
    with StandIn() as server:
        observe(experiment(arrivals(0, 0.01, prompt=20, **{"prompt ": ["system:12/:8"] * 2}).replace(" ", "")), server)

    one, other = (asked.body["prompt"] for asked in server.asked)
    assert one[:12] == other[:12] and one[12:] != other[12:]


def test_the_native_trace_beside_is_the_workload(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(0.5, 0.7, prompt=10, output=4)), server)

    lines = (found.directory / "trace.csv").read_text().splitlines()
    assert lines == ["request_id,arrived_at,num_prefill_tokens,num_decode_tokens", "0,0,10,4", "1,0.2,10,4"]


def test_a_trace_v2_of_what_was_measured(experiment, observe):
    with StandIn(ttft_s=0.02, fails={11: "500"}) as server:
        found = observe(experiment(arrivals(0, 0.05, prompt=[10, 11], output=4)), server, "--trace-v2")

    header, one, other = (line.split(",") for line in (found.directory / "trace_v2.csv").read_text().splitlines())
    assert "mode: replayed" in (found.directory / "trace_v2.yaml").read_text()
    assert [one[header.index(name)] for name in ("input_tokens", "output_tokens", "status")] == ["10", "4", "ok"]
    ttft_us = int(one[header.index("first_chunk_time_us")]) - int(one[header.index("arrival_time_us")])
    assert abs(ttft_us - 1e6 * float(found.rows[0]["ttft_s"])) <= 1
    assert other[header.index("status")] == "error"


def test_prewarming_sends_other_texts_before(experiment, observe):
    with StandIn(ttft_s=0.05) as server:
        found = observe(experiment(arrivals(0, prompt=10)), server, "--prewarm", "0.12")

    prewarm = found.server["prewarm"]
    assert prewarm["requests"] == len(server.asked) - 1 >= 8 and prewarm["failed"] == 0
    assert server.asked[0].body["prompt"] != server.asked[-1].body["prompt"]
    assert len(found.rows) == 1


@pytest.mark.slow
def test_rows_are_dealt_to_processes(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(*(0.01 * number for number in range(7)))), server, "--processes", 2)

    assert [row["request_id"] for row in found.rows] == list("0123456")
    assert [float(row["planned_s"]) for row in found.rows] == pytest.approx([0.01 * number for number in range(7)])
    assert not list(found.directory.glob("*part*"))
    assert found.server["processes"] == 2


REFUSED = {
    "processes": ({"trace": arrivals(0, 0, session=["a", "a"], round=[0, 1])}, ["--processes", "2"],
                  "--processes 2: expected 1: here requests come when others have ended"),
    "trace_v2": ({"workload": {"type": "sessions", "num_sessions": 1, "sessions": {
        "rounds": {"distribution": "constant", "value": 2}, "new_tokens": {"distribution": "constant", "value": 5},
        "output_tokens": {"distribution": "constant", "value": 4},
        "think_time_s": {"distribution": "constant", "value": 0.1}},
        "arrival": {"process": "poisson", "rate_per_s": 1.0}}}, ["--trace-v2"],
        "are no prefix of a group, equally long in all of it, and a rest of their own; TraceV2 has no others"),
    "models": ({"trace": arrivals(0, 0, model=["a", "b"])}, [], "requests name 2 models (a, b)"),
    "processes and places": ({"trace": arrivals(0)}, ["--processes", "2", "--max-in-flight", "3"],
                             "--max-in-flight 3: expected none with --processes 2"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_sent_is_refused_with_the_reason(experiment, observe, case):
    tables, options, reason = REFUSED[case]
    with StandIn() as server:
        found = observe(experiment(**tables), server, *options)

    assert found.status == 2
    assert reason in found.err
    assert not server.asked and not server.pages


def test_a_horizon_ends_the_load(experiment, observe):
    path = experiment(arrivals(0, 0.01, 50.0), horizon_s=2.5)       # time enough to send two on a busy machine
    with StandIn(fails={10: "hang"}) as server:
        found = observe(path, server)

    assert len(server.asked) == 2
    assert [row["status"] for row in found.rows] == ["interrupted"] * 2
    assert found.server["summary"]["complete"] is False


def test_ids_are_those_of_the_model(experiment, observe):
    with StandIn() as server:
        observe(experiment(arrivals(0, prompt=50)), server, "--token-ids", "5:9")
    assert set(server.asked[0].body["prompt"]) == {5, 6, 7, 8}


@pytest.mark.parametrize(("name", "reason"), [
    ("multimodal", "workload: prompts hold images, and what is sent is token ids or words"),
    ("structured_outputs", "workload: answers keep to grammars, of which only names and sizes are known")])
def test_what_no_text_says_is_refused(observe, name, reason):
    with StandIn() as server:
        found = observe(CONFIGS / f"{name}.toml", server)

    assert found.status == 2 and reason in found.err and not server.asked


def test_adapters_that_are_not_served_are_told_together(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(*range(7), adapter=list("abcdefg"))), server)

    assert f"workload: adapter a, b, c, d, e, ...: {server.url} does not serve them, but stand-in" in found.err


@pytest.mark.parametrize(("option", "value", "reason"), [
    ("--url", "localhost:8000", "expected http://host:port"),
    ("--url", "http://me:word@localhost", "a key is read from OPENAI_API_KEY"),
    ("--token-ids", "9:9", "expected LOW:HIGH with LOW < HIGH"),
    ("--max-in-flight", "0", "expected a whole number of at least 1"),
    ("--timeout", "soon", "expected a duration")])
def test_options_are_checked(experiment, observe, capsys, option, value, reason):
    with pytest.raises(SystemExit) as error:
        observe(experiment(arrivals(0)), "http://127.0.0.1:9", option, value)

    assert error.value.code == 2 and reason in capsys.readouterr().err


def test_earlier_results_are_replaced_when_asked(experiment, observe):
    path = experiment(arrivals(0))
    with StandIn() as server:
        observe(path, server)
        again = observe(path, server)
        replaced = observe(path, server, "--overwrite")

    assert again.status == 2 and "--overwrite replaces them" in again.err
    assert replaced.status == 0


def test_the_url_may_end_in_v1(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(0)), f"{server.url}/v1/")

    assert found.status == 0 and found.server["url"] == server.url


def test_an_adapter_is_the_model_of_its_request(experiment, observe):
    path = experiment(arrivals(0, 0.01, adapter=["", "blue"]))
    with StandIn() as server:
        refused = observe(path, server)
        server.manners = server.manners._replace(models={SERVED: 100, "blue": 100})
        found = observe(path, server)

    assert refused.status == 2 and "workload: adapter blue:" in refused.err
    assert found.status == 0 and [asked.body["model"] for asked in server.asked] == [SERVED, "blue"]


def test_the_client_measures_itself(experiment, observe):
    with StandIn() as server:
        found = observe(experiment(arrivals(0)), server, "--self-test", "0.2")

    test = found.server["self_test"]
    assert test["messages_per_s"] > 0 and test["lag_ms"]["p99"] >= test["lag_ms"]["p50"] >= 0


def test_the_summary_is_that_of_run(experiment, observe):
    with StandIn(ttft_s=0.01) as server:
        found = observe(experiment(arrivals(0, 0.01, output=4)), server)

    lines = found.out.splitlines()
    assert lines[0] == f"measured at {server.url}, {SERVED}"
    assert lines[2] == "requests     2 of 2 sent are ok"
    assert json.dumps(found.server["summary"]["requests"]) == '{"sent": 2, "ok": 2, "not_sent": 0, "failed": {}}'
    assert [line.split()[0] for line in lines if line[:4] in ("TTFT", "TPOT", "ITL ", "E2EL", "lag ")] == [
        "TTFT", "TPOT", "ITL", "E2EL", "lag"]
