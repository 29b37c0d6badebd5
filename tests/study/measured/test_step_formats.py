"""Iterations as engines log them: exact rows, and what is left out with its reason."""
import gzip
import json

import pytest

from simulator import cli
from simulator.errors import InputErrors
from simulator.study.calibration.data import read_steps_of
from simulator.study.calibration.residual import version_of
from simulator.study.measured.formats import read
from simulator.study.measured.source import Source
from support.vllm_cpu import DATA


@pytest.fixture
def imported(tmp_path):
    """Return what writes a file and reads it as measurements."""
    def _imported(text, name="log.txt"):
        path = tmp_path / name
        path.write_text(text)
        return read(Source(str(path)))
    return _imported


def request(query, kv, drafts=0, chunked=False):
    return {"query_len": query, "kv_len": kv, "num_draft_tokens": drafts, "chunked": chunked}


def test_cases_of_vllm_bench_forward(imported):
    rank = {"num_tokens": 3, "latency_us": {"median": 900.0, "sample_spread_pct": 0.9, "samples_us": [900.0]}}
    cases = [
        {"case": "mix", "requests": [request(512, 512), request(100, 600, chunked=True), *[request(1, 4096)] * 2],
         "median_us": 5000.0, "ranks": []},
        {"case": "verify", "requests": [request(4, 1000, 3)], "median_us": 900.0, "ranks": [rank]}]
    (found,) = imported(json.dumps(cases, indent=2), "forward.json")

    assert found.steps == [
        {"duration_s": 0.005, "num_sequences": 4, "num_prefills": 2, "prefill_tokens": 612, "decode_tokens": 2,
         "context_tokens": 9304, "prefill_context_tokens": 500},
        {"duration_s": 0.0009, "num_sequences": 1, "num_prefills": 0, "prefill_tokens": 0, "decode_tokens": 4,
         "context_tokens": 1000, "prefill_context_tokens": 0}]
    assert 'scope = "forward"' in found.notes[0]
    assert "1 case with samples that spread by more than 0.5 %: verify" in found.notes[1]


def test_faults_of_a_forward_benchmark_have_their_case(imported):
    with pytest.raises(InputErrors) as raised:
        imported(json.dumps([{"case": "a", "requests": [request(8, 4)], "median_us": 5.0},
                             {"case": "b", "requests": [request(8, 8)], "median_us": 0.0},
                             {"case": "c", "requests": 3, "median_us": 1.0}]), "forward.json")
    assert len(raised.value.faults) == 3 and '[1]: case "b"' in str(raised.value)


def line(index, elapsed, more=", GPU KV cache usage: 12.5%", kind=""):
    return (f"(EngineCore pid=7) INFO 11-20 12:00:01 [loggers.py:200] Engine 000: Iteration({index}): 1 context "
            f"requests, 64 context tokens, 3 generation requests, 3 generation tokens, iteration elapsed time: "
            f"{elapsed} ms{kind}{more}")


def test_vllms_lines_have_the_used_share_of_the_cache(imported):
    (found,) = imported("\n".join([
        "INFO [core.py:90] Initializing a V1 LLM engine (v0.33.0) with config: ...", line(0, "12.50"),
        line(1, "9.00", ""),
        line(2, "1.00", kind=" (dummy)"), line(3, "80.00", ", GPU KV cache usage: 1.0%, encoder inputs: 2, encoder "
                                                          "output embeddings: 900"), line(4, "12.50")[:120]]))

    assert [row.get("kv_cache_usage") for row in found.steps] == [0.125, None]
    assert found.steps[0] == {"duration_s": 0.0125, "num_sequences": 4, "num_prefills": 1, "prefill_tokens": 64,
                              "decode_tokens": 3, "kv_cache_usage": 0.125}
    assert found.about == {"engine": "vLLM", "version": "0.33.0"}
    notes = " ".join(found.notes)
    assert "2 lines of dummy iterations or of encoders were left out" in notes
    assert '1 line with "Iteration(" could not be read' in notes


def test_lines_of_two_versions_are_refused(imported):
    begin = "Initializing a V1 LLM engine (v{}) with config"
    with pytest.raises(InputErrors, match=r"lines of several versions: 0.32.0, 0.33.0: split the file"):
        imported("\n".join([begin.format("0.32.0"), line(0, "1.00"), begin.format("0.33.0"), line(0, "1.00")]))
    with pytest.raises(InputErrors, match="no iteration is left of 1 line"):
        imported(line(2, "1.00", kind=" (dummy)"))


DECODE = ("[2026-11-20 10:00:{:02}] Decode batch, #running-req: {}, #token: {}, token usage: 0.10, cuda graph: True, "
          "gen throughput (token/s): {}, #queue-req: 0")
PREFILL = ("[2026-11-20 10:00:{:02}] Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: "
           "0.10, #running-req: 3, #queue-req: {}, cuda graph: False, input throughput (token/s): {}")


def test_sglangs_lines_have_a_duration_where_nothing_ran_between_them(imported):
    (found,) = imported("\n".join([
        "server_args=ServerArgs(model_path='m', decode_log_interval=20)",
        PREFILL.format(1, 1, 900, 0, 2, "9000.00"),         # what ran before it is not known
        PREFILL.format(1, 2, 1000, 600, 0, "20000.00"),     # two requests waited: 1,000 / 20,000 s
        DECODE.format(2, 10, 5000, "1000.00"),              # a prompt before it
        DECODE.format(3, 10, 5200, "800.00"),               # 10 / 800 s, 20 iterations of 10 tokens each
        DECODE.format(4, 9, 5000, "790.00"),                # a request ended meanwhile
        PREFILL.format(5, 1, 500, 0, 1, "100.00"),          # decodes before it
        ""]))

    assert found.steps == [
        {"duration_s": 0.05, "num_sequences": 2, "num_prefills": 2, "prefill_tokens": 1000, "decode_tokens": 0,
         "context_tokens": 1600, "waiting": 0, "prefill_context_tokens": 600},
        {"duration_s": 0.0125, "num_sequences": 10, "num_prefills": 0, "prefill_tokens": 0, "decode_tokens": 10,
         "context_tokens": 5105, "waiting": 0, "prefill_context_tokens": 0}]
    assert "2 of 6 lines have a duration" in found.notes[0]
    assert found.notes[1] == "a line of decodes is the mean of 20 iterations."


def test_drafts_and_ranks_of_sglang(imported):
    text = ("[2026-11-20 10:00:00 DP{0} TP{0}] Decode batch [77], #running-req: 4, #full token: {1}, full token "
            "usage: 0.49, accept len: 2.50, accept rate: 0.69, cuda graph: True, gen throughput (token/s): 500.00, "
            "#queue-req: 0")
    found = imported("\n".join(text.format(rank, tokens) for tokens in (1000, 1400) for rank in (0, 1)))

    assert [each.name for each in found] == ["log-DP0", "log-DP1"]
    assert found[1].steps[0]["duration_s"] == pytest.approx(4 * 2.5 / 500)
    assert found[1].steps[0]["context_tokens"] == 1400 - 4 * 2.5 * 39 / 2
    assert "SGLang's default" in found[1].notes[1]


def test_a_log_of_sglang_without_durations_says_what_would_have_one(imported):
    with pytest.raises(InputErrors, match=r"no duration follows from its 2 lines of batches: two lines of decodes"):
        imported("\n".join([DECODE.format(1, 4, 900, "10.0"), DECODE.format(2, 3, 900, "10.0")]))


def metrics(wall_s, **more):
    return {"version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": 5, "wall_time": wall_s,
            "scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 128, "var_prefill_length": 0.0,
                                   "sum_prefill_kv_tokens": 256, "num_decode_requests": 3,
                                   "sum_decode_kv_tokens": 3000, "var_decode_kv_tokens": 4.0},
            "queued_requests": {"num_prefill_requests": 2, "num_decode_requests": 1}} | more


def test_forward_pass_metrics(imported):
    records = [{"namespace": "d", "component": "backend", "publisher_id": 1, "sequence": i,
                "published_at_ms": 1000 + 30 * i, "metrics": metrics(wall_s)}
               for i, wall_s in enumerate((0.0, 0.02, 0.02))]
    (found,) = imported("".join(json.dumps(each) + "\n" for each in records), "fpm.jsonl")

    assert found.steps == [
        {"duration_s": 0.02, "num_sequences": 4, "num_prefills": 1, "prefill_tokens": 128, "decode_tokens": 3,
         "context_tokens": 128 + 256 + 3000 + 3, "waiting": 3, "prefill_context_tokens": 256, "start_s": start_s}
        for start_s in (0.0, 0.03)]
    assert found.notes == ("1 heartbeat of an idle engine left out.",)

    two = imported("".join(json.dumps(metrics(0.02, dp_rank=rank)) + "\n" for rank in (0, 1)), "fpm.jsonl")
    assert [each.name for each in two] == ["fpm-w-0", "fpm-w-1"] and "start_s" not in two[0].steps[0]


def test_bad_forward_pass_metrics(imported):
    whole = json.dumps(metrics(0.02)) + "\n"
    (found,) = imported(whole + whole[:80], "fpm.jsonl")
    assert len(found.steps) == 1 and "its last line is cut, and was left out." in found.notes
    with pytest.raises(InputErrors, match=r"fpm.jsonl:2: "):
        imported(whole + whole[:80] + "\n" + whole, "fpm.jsonl")
    with pytest.raises(InputErrors, match=r"version: 9: expected one of"):
        imported(json.dumps(metrics(0.02, version=9)) + "\n", "fpm.jsonl")
    with pytest.raises(InputErrors, match="1 heartbeat of an idle engine, and no iteration"):
        imported(json.dumps(metrics(0.0)) + "\n", "fpm.jsonl")
    with pytest.raises(InputErrors, match="timing_scope: several"):
        imported(whole + json.dumps(metrics(0.02, timing_scope="execute_model_cuda")) + "\n", "fpm.jsonl")


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data/measured_vllm_cpu")
def test_a_real_log_of_iterations(tmp_path):
    with gzip.open(DATA / "w7_light_q.iteration_log.txt.gz", "rt") as file:
        (tmp_path / "log.txt").write_text(file.read())
    (found,) = read(Source(str(tmp_path / "log.txt")))

    assert len(found.steps) == 3028 and all("kv_cache_usage" in row for row in found.steps)


def test_the_version_of_a_log_lies_beside_its_iterations(tmp_path):
    (tmp_path / "log.txt").write_text(f"Initializing a V1 LLM engine (v0.33.0) with config\n{line(0, '12.50')}\n")
    assert cli.main(["import", str(tmp_path / "log.txt"), "--as", "measured", "--out", str(tmp_path / "out"),
                     "--quiet"]) == 0

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["steps.csv", "steps.toml"]
    assert version_of(tmp_path / "out/steps.csv") == "vLLM 0.33.0"
    assert read_steps_of(tmp_path / "out/steps.csv", False).columns["kv_cache_usage"].tolist() == [0.125]
