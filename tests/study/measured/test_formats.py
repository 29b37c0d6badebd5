"""Each format that is imported, by a small file."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.study.measured.formats import format_of
from simulator.study.measured.llmservingsim import Line, shift_of
from simulator.study.measured.source import Source


@pytest.fixture
def read(tmp_path):
    """Return what reads a file of some content: the name of its format, and its data sets."""
    def _read(content, name="file"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        source = Source(str(path))
        chosen = format_of(source)
        return chosen.name, chosen.read(source)
    return _read


def vllm(**keys):
    return {"num_prompts": 3, "completed": 2, "request_throughput": 1.0, "date": "20261120", "input_lens": [5, 6, 7],
            "output_lens": [3, 1, 0], "ttfts": [0.1, 0.2, 0.0], "itls": [[0.25, 0.5], [], []],
            "latencies": [0.85, 0.2, 0.0], "start_times": [100.5, 101.0, 101.25], "errors": ["", "", "refused"]} | keys


def test_vllm_bench_has_no_date_and_marks_failures_with_a_ttft_of_0(read):
    name, (found,) = read(vllm())

    assert name == "vllm bench serve"
    assert [row["sent_s"] for row in found.requests] == [0.0, 0.5, 0.75]
    assert [row["ttft_s"] for row in found.requests] == [0.1, 0.2, None]        # never 0
    assert [row["e2el_s"] for row in found.requests] == [0.85, 0.2, None]
    assert [row["status"] for row in found.requests] == ["ok", "ok", "failed"]
    assert [row["messages"] for row in found.requests] == [3, 1, None]
    assert found.requests[2]["error"] == "refused"
    assert found.notes[0].startswith("start_times count from no known date")
    assert "1 of 3 requests were not answered: 1 failed." in found.notes


def test_vllm_bench_is_checked_against_its_own_means(read):
    means = {"mean_ttft_ms": 150.0, "mean_tpot_ms": 375.0, "mean_itl_ms": 375.0, "mean_e2el_ms": 525.0}

    assert not any("in the file" in note for note in read(vllm(**means))[1][0].notes)
    other = read(vllm(**means | {"mean_itl_ms": 374.0}))[1][0]
    assert "mean_itl_ms = 374 in the file, 375 from its requests." in other.notes


def test_vllm_bench_says_where_latency_and_gaps_or_tokens_and_messages_disagree(read):
    notes = read(vllm(latencies=[0.95, 0.2, 0.0], output_lens=[6, 1, 0]))[1][0].notes

    assert "of 1 request TTFT and the sum of gaps are not the latency." in notes
    assert "1 request had messages of more than one token: gaps are of messages, not of tokens." in notes


def test_vllm_bench_without_details_is_refused(read):
    with pytest.raises(InputErrors, match="input_lens, output_lens, ttfts, itls: missing; without --save-detailed"):
        read({"num_prompts": 1, "completed": 1, "request_throughput": 1.0, "latencies": [1.0]})


def test_vllm_bench_of_other_lengths_is_refused_whole(read):
    with pytest.raises(InputErrors) as caught:
        read(vllm(itls=[[]], start_times=[1.0]))
    assert [fault.split(": ", 1)[1] for fault in caught.value.faults] == [
        "itls: expected 3, one for each of ttfts, found 1", "start_times: expected 3, one for each of ttfts, found 1"]


def test_vllm_bench_without_start_times_is_compared_but_not_replayed(read):
    content = vllm()
    del content["start_times"], content["latencies"]
    found = read(content)[1][0]

    assert found.requests[0]["sent_s"] is None
    assert found.requests[0]["e2el_s"] == pytest.approx(0.85)
    assert found.notes[0].startswith("start_times: missing") and found.notes[1].startswith("latencies: missing")


def guide(start, status="successful", tokens=3, **timings):
    times = {"targeted_start": start, "request_start": start + 0.5, "first_token_iteration": start + 1.0,
             "last_token_iteration": start + 2.0, "request_end": start + 2.5, "token_iterations": 3} | timings
    return {"request_id": f"r{start}", "prompt_tokens": 7, "output_tokens": tokens, "time_per_output_token_ms": 500.0,
            "info": {"timings": times, "error": None if status == "successful" else "boom"}}


def test_guidellm_has_a_data_set_for_each_strategy(read):
    name, found = read({"benchmarks": [
        {"config": {"strategy": {"type_": "synchronous"}}, "requests": {"successful": [guide(1000.0)]}},
        {"requests": {"successful": [guide(2001.0), guide(2000.0)], "errored": [guide(2002.0, "errored")],
                      "incomplete": [guide(2003.0, "incomplete", last_token_iteration=None)]}}]})

    assert name == "GuideLLM"
    assert [each.name for each in found] == ["file-0-synchronous", "file-1"]
    first = found[0].requests[0]
    assert (first["planned_s"], first["sent_s"], first["ttft_s"], first["e2el_s"]) == (0.0, 0.5, 0.5, 1.5)
    assert [row["status"] for row in found[1].requests] == ["ok", "ok", "failed", "incomplete"]
    assert [row["planned_s"] for row in found[1].requests] == [0.0, 1.0, 2.0, 3.0]
    assert "2 of 4 requests were not answered: 1 failed, 1 incomplete." in found[1].notes


def test_guidellm_of_whole_answers_has_no_ttft(read):
    whole = guide(10.0, first_token_iteration=None, last_token_iteration=None)
    del whole["prompt_tokens"]
    whole["input_metrics"] = {"total_tokens": 9}
    found = read({"benchmarks": [{"requests": {"successful": [whole]}}]})[1][0]

    (row,) = found.requests
    assert (row["ttft_s"], row["e2el_s"], row["input_tokens"]) == (None, 2.0, 9)
    assert found.notes[0].startswith("1 request came in one piece: no TTFT is known")


def test_guidellm_faults_name_benchmark_and_request(read):
    with pytest.raises(InputErrors) as caught:
        read({"benchmarks": [{"requests": {"successful": [{"info": {}}, guide(1.0), {"info": {"timings": 3}}]}}, {}]})
    places = [fault.split(": ")[1] for fault in caught.value.faults]
    assert places == ["benchmarks[0].requests.successful[0]", "benchmarks[0].requests.successful[2]", "benchmarks[1]"]


def aiperf(start_ns, metrics=None, error=None, **metadata):
    told = {"time_to_first_token": (250.0, "ms"), "request_latency": (1.5, "sec"),
            "input_sequence_length": (50, "tokens"), "output_sequence_length": (4, "tokens"),
            "inter_token_latency": (416.7, "ms"),
            "inter_chunk_latency": ([400, 400, 450], "ms")} if metrics is None else metrics
    return json.dumps({
        "metadata": {"x_request_id": f"r{start_ns}", "request_start_ns": start_ns, "turn_index": 0,
                     "x_correlation_id": "c", "benchmark_phase": "profiling", "was_cancelled": False} | metadata,
        "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in told.items()}, "error": error})


def test_aiperf_has_a_unit_for_each_value(read):
    lines = [aiperf(3_000_000_000), aiperf(1_000_000_000), aiperf(500_000_000, benchmark_phase="warmup"),
             aiperf(4_000_000_000, {"error_isl": (50, "tokens")}, {"code": 499, "type": "RequestCancellationError",
                                                                    "message": "late"}, was_cancelled=True),
             aiperf(5_000_000_000, {}, {"code": 500, "type": "ServerError", "message": "boom"})]
    name, (found,) = read("\n".join(lines))

    assert name == "AIPerf profile_export.jsonl"
    assert [row["sent_s"] for row in found.requests] == [0.0, 2.0, 3.0, 4.0]
    first = found.requests[0]
    assert (first["ttft_s"], first["e2el_s"], first["output_tokens"], first["messages"]) == (0.25, 1.5, 4, 4)
    assert [row["status"] for row in found.requests] == ["ok", "ok", "cancelled", "ServerError"]
    assert found.requests[2]["input_tokens"] == 50
    assert first["session"] is None         # there are no turns
    assert found.notes[0] == '1 request of other phases than "profiling" were left out.'


def test_aiperf_tells_in_later_versions_when_a_request_was_planned(read):
    found = read(aiperf(3_000_000_000, credit_issued_ns=2_500_000_000))[1][0]

    assert (found.requests[0]["planned_s"], found.requests[0]["sent_s"]) == (0.0, 0.5)
    assert not any("planned" in note for note in found.notes)


def test_aiperf_faults_are_told_by_line(read):
    lines = [aiperf(1), aiperf(2, {"time_to_first_token": (1.0, "furlongs")}), '{"metadata": {}, "metrics": {}}',
             aiperf(3, {"request_latency": ([1], "ms")})]
    with pytest.raises(InputErrors) as caught:
        read("\n".join(lines))
    assert [fault.split("file:")[1].split(":")[0] for fault in caught.value.faults] == ["2", "3", "4"]
    assert 'metrics.time_to_first_token.unit: expected one of ns, ' in caught.value.faults[0]
    assert 'found "furlongs"' in caught.value.faults[0]


def lifecycle(start, info=None, error=None):
    return {"start_time": start, "end_time": start + 3.0, "request": "{}", "response": "",
            "info": info or {"input_tokens": 8, "output_tokens": 2, "output_token_times": [start + 1.0, start + 2.0]},
            "error": error}


def test_inference_perf_in_both_its_forms(read):
    later = {"request_metrics": {}, "input_tokens": 8, "response_metrics": {
        "output_tokens": 3, "output_token_times": [21.0, 22.0], "chunk_times": [21.0, 22.0],
        "server_usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}}}
    name, (found,) = read([lifecycle(20.5, later), lifecycle(10.0),
                           lifecycle(30.0, {"input_tokens": 8, "output_tokens": 0}, {
                               "error_type": "504 - Gateway Timeout", "error_msg": "late"})])

    assert name.startswith("inference-perf")
    assert [(row["sent_s"], row["ttft_s"], row["e2el_s"]) for row in found.requests] == [
        (0.0, 1.0, 2.0), (10.5, 0.5, 1.5), (20.0, None, None)]
    assert [(row["input_tokens"], row["output_tokens"], row["cached_tokens"]) for row in found.requests[:2]] == [
        (8, 2, None), (9, 4, 2)]
    assert found.requests[2]["status"] == "504 - Gateway Timeout"
    assert "of 1 request the server counted other output tokens than the client" in found.notes[1]


def test_llmservingsim_has_two_clocks(read):
    def line(name, arrival, queued):
        return json.dumps({"request_id": name, "input_toks": 5, "output_toks": 3, "arrival_time": arrival,
                           "queued_ts": queued, "scheduled_ts": queued, "first_token_ts": queued + 1.0,
                           "last_token_ts": queued + 3.0})

    name, (found,) = read("\n".join([line("a", 1000.0, 50.25), line("b", 1002.0, 52.0)]))

    # a was queued 0.25 s later after its arrival than b, of whom nothing is known: it waited 0 s at least
    assert name == "LLMServingSim requests.jsonl"
    assert [row["sent_s"] for row in found.requests] == [0.0, 2.0]
    assert [row["ttft_s"] for row in found.requests] == [1.25, 1.0]
    assert [row["e2el_s"] for row in found.requests] == [3.25, 3.0]
    assert found.notes[0].startswith("two clocks: arrival_time was shifted by -950.000000 s")


def test_llmservingsims_least_shift_is_the_largest_difference():
    # the page says min(arrival - queued); with it, all others are queued before they arrive
    lines = [Line("a", 5, 3, 1000.0, 50.25, 51.0, 52.0), Line("b", 5, 3, 1002.0, 52.0, 53.0, 54.0)]

    assert shift_of(lines) == 950.0
    assert all(line.queued_ts >= line.arrival_time - shift_of(lines) for line in lines)
    least = min(line.arrival_time - line.queued_ts for line in lines)
    assert [line.queued_ts >= line.arrival_time - least for line in lines] == [True, False]


TRACEV2 = ("request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"
           "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,"
           "server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"
           "error_message,finish_reason")


def tracev2(number, group, times, status="ok"):
    return f"{number},,,,,0,{group},160,true,20,4,20,0,0,0,0,,0,0,{','.join(map(str, times))},4,{status},,length"


def test_tracev2_has_the_suffix_of_a_prompt_and_0_for_what_is_not_known(read):
    content = "\n".join([TRACEV2, tracev2(0, "g", (1_000_000, 1_500_000, 1_750_000, 2_500_000)),
                         tracev2(1, "", (2_000_000, 2_000_000, 0, 0), "timeout")])
    name, (found,) = read(content, "t.csv")

    assert name == "BLIS TraceV2"
    first, second = found.requests
    assert (first["input_tokens"], first["prompt"], first["output_tokens"]) == (180, "g:160/:20", 4)
    assert (first["planned_s"], first["sent_s"], first["ttft_s"], first["e2el_s"]) == (0.0, 0.5, 0.25, 1.0)
    assert (second["status"], second["ttft_s"], second["prompt"]) == ("timeout", None, None)
    assert "input_tokens of 1 request are those after their prefix" in found.notes[1]


def test_tracev2_that_nobody_measured_is_refused(read, tmp_path):
    pytest.importorskip("yaml")
    content = "\n".join([TRACEV2, tracev2(0, "", (1_000_000, 0, 0, 0))])
    with pytest.raises(InputErrors, match="first_chunk_time_us: 0 in all rows: nothing was measured"):
        read(content, "t.csv")
    (tmp_path / "t.yaml").write_text("trace_version: 3\ntime_unit: microseconds\nmode: generated\n")
    with pytest.raises(InputErrors, match='mode: "generated": nothing was measured'):
        read(content, "t.csv")


REQUESTS = """# t0_unix=1000.0 args={}
id,group,prefix_len,prompt_len,output_len,t_planned,t_send,ttft,e2e,n_chunks,n_tokens,finish
0,2,16,40,3,0.5,0.75,0.25,1.0,3,3,length
1,-1,0,20,2,1.0,1.5,0.5,1.0,2,2,length
"""
STEPS = "k,t_sched,sched_ms,n_reqs,n_prefill_reqs,prefill_tokens,decode_tokens,ctx_tokens,running,waiting,t_out"


def test_requests_csv_counts_from_the_first_planned_request(read):
    name, (found,) = read(REQUESTS, "x.requests.csv")

    assert (name, found.steps) == ("*.requests.csv", [])
    first = found.requests[0]
    assert (first["planned_s"], first["sent_s"], first["ttft_s"], first["e2el_s"]) == (0.0, 0.25, 0.25, 1.0)
    assert (first["prompt"], found.requests[1]["prompt"]) == ("group2:16/:24", None)


def test_requests_csv_takes_side_files_by_its_stem(read, tmp_path):
    (tmp_path / "x.tokens.csv").write_text(
        "id,chunk,t,tokens\n0,0,1.0,1\n0,1,1.0,1\n0,2,1.75,1\n1,0,2.0,1\n1,1,2.6,1\n")
    (tmp_path / "x.steps.csv").write_text(
        f"{STEPS}\n0,999.0,0,1,1,9,0,9,1,0,999.1\n1,1000.8,0,1,1,24,0,40,1,0,1000.95\n")
    (tmp_path / "x.info.txt").write_text("warmup_end_unix 999.5\n")
    (tmp_path / "x.steps.csv.req").write_text("req_id,prompt_len,cached_tokens\nw,9,0\na,40,16\nb,20,0\n")
    found = read(REQUESTS, "x.requests.csv")[1][0]

    assert [row["cached_tokens"] for row in found.requests] == [16, 0]
    assert [row["batched"] for row in found.requests] == [1, 0]
    (step,) = found.steps
    assert (step["start_s"], step["duration_s"], step["context_tokens"]) == (0.3, 0.15, 40)     # 1000.8 - 1000.5
    assert found.notes[0].startswith("of 1 request TTFT or E2EL are not the times of their messages")   # 2.6, not 2.5
    assert "1 iteration of warming up were dropped, 1 are left." in found.notes
    (tmp_path / "x.steps.csv.req").write_text("req_id,prompt_len,cached_tokens\na,41,16\nb,20,0\n")
    assert any("cached_tokens are not known" in note for note in read(REQUESTS, "x.requests.csv")[1][0].notes)


def test_faults_of_rows_are_told_by_line(read):
    wrong = REQUESTS.replace("0,2,16,40,3,0.5", "0,2,16,forty,3,soon")
    with pytest.raises(InputErrors) as caught:
        read(wrong, "x.requests.csv")
    assert [fault.split("x.requests.csv:")[1] for fault in caught.value.faults] == [
        '3: prompt_len: expected a whole number, found "forty"', '3: t_planned: expected a number, found "soon"']


def test_a_step_that_ends_before_it_begins_is_refused(read):
    with pytest.raises(InputErrors, match=r"s\.steps\.csv:2: t_out: expected a time after t_sched = 5, found 5"):
        read(f"{STEPS}\n0,5,0,1,1,9,0,9,1,0,5\n", "s.steps.csv")


def test_what_vllm_prints_has_no_times(read):
    line = ("INFO 11-20 05:30 [core.py] Iteration({}): 1 context requests, 34 context tokens, 2 generation requests, 2 "
            "generation tokens, iteration elapsed time: 34.03 ms, CPU KV cache usage: 0.2%")
    name, (found,) = read("\n".join(["something else", line.format(0), line.format(1), "Iteration(2): cut"]))

    assert name == "vLLM's iteration log"
    assert found.steps[0] == {"duration_s": 0.03403, "num_sequences": 3, "num_prefills": 1, "prefill_tokens": 34,
                              "decode_tokens": 2, "kv_cache_usage": 0.002}
    assert len(found.steps) == 2
    assert found.notes[1] == '1 line with "Iteration(" could not be read, and were left out.'


def test_what_is_no_format_is_refused(read):
    with pytest.raises(InputErrors, match="no format that is known: neither vllm bench serve, GuideLLM"):
        read({"avg_latency": 1.0})
