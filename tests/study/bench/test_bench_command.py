"""`bench latency | throughput | serve`: vLLM's flags, JSON and rules, on engines whose times are worked by hand."""
import json

import pytest

from simulator import __version__, cli
from simulator.study.bench.client import Seen, counts, peaks, samples, statistics_ms
from support.goldens import GOLDENS

SAID = {"diagnosis": [], "accuracy": [
    {"backend": "linear", "checked": "by hand", "score": None, "source": "tests/latency"}]}
RECORDED = GOLDENS.parent / "data/measured_vllm_cpu"
# Iterations of 1 ms, whatever they hold.
SERVER = """
[engine]
max_model_len = 4096
num_gpu_blocks = 4000
[latency]
backend = "linear"
base_us = 1000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "nothing that anybody reads"
"""


@pytest.fixture
def server(tmp_path):
    """Return the experiment that stands for the server."""
    (tmp_path / "server.toml").write_text(SERVER)
    return tmp_path / "server.toml"


@pytest.fixture
def bench(server, tmp_path, capsys):
    """Return a function that runs a benchmark, and returns its JSON and what it printed."""
    def ran(name, *flags, status=0):
        file = tmp_path / f"{name}.json"
        save = ["--save-result", "--result-filename", str(file)] if name == "serve" else ["--output-json", str(file)]
        assert cli.main(["bench", name, str(server), *save, *map(str, flags)]) == status
        printed = capsys.readouterr()
        return json.loads(file.read_text()) if file.exists() else None, printed
    return ran


def faults(printed):
    return printed.err.splitlines()


def test_worked_example_of_latency(bench):
    # 8 x 32 prompt tokens in one iteration, then 127 more
    found, printed = bench("latency")

    assert found == {
        "avg_latency": 0.128, "std_latency": 0.0, "latencies": [0.128] * 30,
        "percentiles": dict.fromkeys(("10", "25", "50", "75", "90", "99"), 0.128), "model_id": "server",
        "simulated": True, "simulator_version": __version__, **SAID}
    assert printed.out.splitlines()[:3] == [
        "Avg latency: 0.128 seconds", "Std latency: 0.0 seconds", "10% percentile latency: 0.128 seconds"]
    assert printed.err == ("note: every batch takes the same, as nothing in the engine is drawn: --num-iters 1 tells "
                           "as much\n"
                           "accuracy of linear: not compared with real servers; checked: by hand\n"
                           "  (tests/latency)\n")


def test_batches_wait_for_each_other_however_long_they_take(bench):
    # 128 x 20 ms
    found, _ = bench("latency", "--set", "latency.base_us=20000", "--num-iters", 3, "--num-iters-warmup", 0)

    assert found["latencies"] == [2.56] * 3


def test_flags_of_the_engine_win_over_the_experiment(bench):
    # 4 of 8 at once: the others wait for 128 iterations
    found, _ = bench("latency", "--max-num-seqs", 4, "--no-async-scheduling", "--num-iters", 2, "--dtype", "auto")

    assert found["latencies"] == [0.256] * 2


def test_prompts_are_computed_again_unless_prefix_caching_is_on(bench):
    # 0.1 ms a prompt token, 8 x 32 of them; one block of 16 of each is found again
    flags = ("--set", "latency.per_prefill_token_us=100", "--num-iters", 2, "--num-iters-warmup", 1)

    off, on = (bench("latency", *flags, *more)[0] for more in ((), ("--enable-prefix-caching",)))

    assert off["avg_latency"] == pytest.approx(0.128 + 0.0256)
    assert on["avg_latency"] == pytest.approx(0.128 + 0.0128)


def test_an_output_that_is_cut_is_refused(bench):
    _, printed = bench("latency", "--max-model-len", 100, status=2)

    assert faults(printed) == [
        "bench latency: 320 of 320 outputs end before --output-len = 128: engine.max_model_len is below prompt and "
        "output together"]


@pytest.mark.parametrize(("name", "flags", "faults_found"), [
    ("throughput", ("--num-prompts", 5, "--input-len", 5000), [
        "server: 5 of 5 requests did not complete, and an offline engine serves all",
        "of 5 requests none was served: 5 rejected, of up to 5,000 prompt tokens, which are longer than "
        "max_model_len = 4,096 allows"]),
    ("latency", ("--input-len", 5000, "--num-iters", 1, "--num-iters-warmup", 0), [
        "server: 8 of 8 requests did not complete, and an offline engine serves all",
        "of 8 requests none was served: 8 rejected, of up to 5,000 prompt tokens, which are longer than "
        "max_model_len = 4,096 allows"]),
    ("throughput", ("--num-prompts", 5, "--input-len", 50, "--set", "horizon_s=0.0005"), [
        "server: 5 of 5 requests did not complete, and an offline engine serves all; without horizon_s it may",
        "horizon_s cut the run at 0.0005 s: of 5 requests 5 ran, 0 waited and 0 had not come; none is complete, so "
        "that latencies are blank and rates 0"])])
def test_requests_that_do_not_complete_are_refused_for_their_own_reason(bench, name, flags, faults_found):
    _, printed = bench(name, *flags, status=2)

    assert faults(printed) == faults_found


def test_throughput_of_requests_that_are_all_there(bench):
    # 50 x 100 prompt tokens fit one iteration; 20 tokens each take 20
    found, printed = bench("throughput", "--num-prompts", 50, "--input-len", 100, "--output-len", 20, "--model", "m",
                           "--max-num-batched-tokens", 8192)

    assert found == {"elapsed_time": 0.02, "num_requests": 50, "total_num_tokens": 6000, "requests_per_second": 2500.0,
                     "tokens_per_second": 300_000.0, "model_id": "m", "simulated": True,
                     "simulator_version": __version__, **SAID}
    assert printed.out.splitlines()[0] == (
        "Throughput: 2500.00 requests/s, 300000.00 total tokens/s, 50000.00 output tokens/s")


def test_a_client_sends_as_that_of_vllm(bench):
    # the last request leaves at N / rate, the first after its own gap; alone, each takes 20 iterations
    found, _ = bench("serve", "--num-prompts", 50, "--request-rate", 10, "--random-input-len", 100,
                     "--random-output-len", 20, "--save-detailed", "--percentile-metrics", "ttft,e2el",
                     "--metric-percentiles", "50,99.9", "--goodput", "ttft:1.5", "e2el:1000")

    assert found["start_times"][-1] == 5.0
    assert 0 < found["start_times"][0] < 1
    assert found["duration"] == pytest.approx(5.02, abs=1e-3)
    assert found["request_throughput"] == 50 / found["duration"]
    assert (found["input_lens"], found["output_lens"]) == ([100] * 50, [20] * 50)
    assert found["generated_texts"] == found["errors"] == [""] * 50
    assert {len(gaps) for gaps in found["itls"]} == {19}
    good = sum(ttft <= 0.0015 for ttft in found["ttfts"])
    assert 0 < good < 50
    assert found["request_goodput"] == good / found["duration"]
    assert {key for key in found if key.endswith("_ms")} == {
        f"{part}_{name}_ms" for part in ("mean", "median", "std", "p50", "p99.9") for name in ("ttft", "e2el")}


def test_slots_make_requests_wait_at_the_client(bench):
    # 3 slots, all at once: the fourth request is sent when the first three are answered, after 20 ms
    found, _ = bench("serve", "--num-prompts", 6, "--max-concurrency", 3, "--random-input-len", 10,
                     "--random-output-len", 20, "--save-detailed", "--percentile-metrics", "client_queue_time")

    assert found["start_times"][:3] == [0.0] * 3
    assert found["queue_times"] == found["start_times"]
    assert found["start_times"][3] == pytest.approx(0.02, abs=2e-6)
    assert found["max_concurrent_requests"] == 6       # all touch the first second
    assert found["mean_client_queue_time_ms"] == pytest.approx(10, abs=2e-3)


def test_warm_ups_are_no_part_of_it(bench):
    flags = ("--num-prompts", 5, "--request-rate", 10, "--random-input-len", 10, "--random-output-len", 20,
             "--save-detailed")

    cold, warm = (bench("serve", *flags, "--num-warmups", count)[0] for count in (0, 3))

    assert warm["completed"] == 5
    assert warm["start_times"] == pytest.approx(cold["start_times"], abs=2e-6)
    assert warm["duration"] == pytest.approx(cold["duration"], abs=1e-3)


@pytest.mark.parametrize(("flags", "prompts"), [
    (("--random-range-ratio", "0.5"), (50, 150)),
    (("--random-range-ratio", '{"input": 0.1, "output": 0.0}'), (90, 111)),
    (("--random-prefix-len", 1000), (1100, 1100)), (("--input-len", 7), (7, 7)),
    (("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 30), (286, 286))])
def test_data_sets_have_the_lengths_of_vllm(bench, flags, prompts):
    random = () if "--dataset-name" in flags else ("--random-input-len", 100)
    found, _ = bench("serve", "--num-prompts", 40, *random, *flags, "--output-len", 4, "--save-detailed")

    lengths = found["input_lens"]
    low, high = prompts
    assert low <= min(lengths)
    assert max(lengths) <= high
    assert min(lengths) < max(lengths) or low == high
    # 4 and half as much more or less at most, where outputs have the ratio too
    assert {*found["output_lens"]} == ({2, 3, 4, 5, 6} if "0.5" in flags else {4})


def test_a_ramp(bench):
    found, _ = bench("serve", "--num-prompts", 30, "--ramp-up-strategy", "linear", "--ramp-up-start-rps", 1,
                     "--ramp-up-end-rps", 20, "--random-input-len", 10, "--random-output-len", 4, "--save-detailed")

    assert (found["ramp_up_strategy"], found["ramp_up_end_rps"], found["request_rate"]) == ("linear", 20, "inf")
    times = found["start_times"]
    assert times[14] - times[0] > times[29] - times[15]


def test_the_file_is_named_as_that_of_vllm_and_lists_stay_out(server, tmp_path, capsys):
    flags = ["bench", "serve", "--experiment", str(server), "--num-prompts", "4", "--save-result", "--result-dir",
             str(tmp_path / "out"), "--date", "20261126-160000", "--model", "org/m", "--label", "mine",
             "--request-rate", "8", "--max-concurrency", "2", "--metadata", "tp=1", "note=a=b"]

    written = []
    for _ in range(2):
        assert cli.main(flags) == 0
        (file,) = (tmp_path / "out").iterdir()
        written.append(file.read_bytes())

    assert file.name == "mine-8.0qps-concurrency2-m-20261126-160000.json"
    assert written[0] == written[1]
    found = json.loads(written[0])
    assert (found["model_id"], found["tokenizer_id"], found["tp"], found["note"]) == ("org/m", "org/m", "1", "a=b")
    assert "ttfts" not in found
    assert len(found["latencies"]) == len(found["queue_times"]) == 4


def test_results_are_appended_as_lines(bench, tmp_path):
    for rate in (5, 10):
        assert bench("serve", "--num-prompts", 2, "--request-rate", rate, "--result-filename", tmp_path / "all",
                     "--append-result")[0] is None

    assert [json.loads(line)["request_rate"] for line in (tmp_path / "all").read_text().splitlines()] == [5.0, 10.0]


def test_the_table_has_the_lines_of_vllm(bench):
    _, printed = bench("serve", "--num-prompts", 4, "--max-concurrency", 2, "--request-rate", 100, "--goodput",
                       "tpot:1", "--random-input-len", 10, "--random-output-len", 4)

    assert [line[:40].rstrip() for line in printed.out.splitlines()] == [
        "============ Serving Benchmark Result ==", "Successful requests:", "Failed requests:",
        "Maximum request concurrency:", "Request rate configured (RPS):", "Benchmark duration (s):",
        "Total input tokens:", "Total generated tokens:", "Request throughput (req/s):", "Request goodput (req/s):",
        "Output token throughput (tok/s):", "Peak output token throughput (tok/s):", "Peak concurrent requests:",
        "Total token throughput (tok/s):", "---------------Time to First Token------", "Mean TTFT (ms):",
        "Median TTFT (ms):", "P99 TTFT (ms):", "-----Time per Output Token (excl. 1st to", "Mean TPOT (ms):",
        "Median TPOT (ms):", "P99 TPOT (ms):", "---------------Inter-token Latency------", "Mean ITL (ms):",
        "Median ITL (ms):", "P99 ITL (ms):", "=" * 40]


def test_requests_that_fail_count_nowhere(bench):
    # the last leaves at 2 s, and the clock stops at 1 s
    found, _ = bench("serve", "--set", "horizon_s=1.0", "--num-prompts", 4, "--request-rate", 2, "--random-input-len",
                     10, "--random-output-len", 20, "--save-detailed")

    assert found["failed"] == 4 - found["completed"] > 0
    assert found["errors"].count("not completed") == found["failed"]
    assert found["total_output_tokens"] == 20 * found["completed"]


def test_flags_without_effect_are_told_once_each(bench):
    _, printed = bench("serve", "--num-prompts", 2, "--host", "a", "--port", 1, "--temperature", 0, "--disable-tqdm",
                       "--burstiness", 2)

    assert faults(printed)[:4] == [
        "note: --host, --port: without effect: there is no server to reach",
        "note: --disable-tqdm: without effect: there is no bar",
        "note: --temperature: without effect: which token comes next changes no time here; output lengths are given",
        "note: --burstiness: without effect where --request-rate is inf: there are no gaps"]


def test_flags_that_cannot_act_are_refused_with_the_reason(bench):
    _, printed = bench("serve", "--use-beam-search", "--lora-modules", "a", "b", status=2)
    assert faults(printed) == [
        "bench serve: --use-beam-search: refused: beams are not modelled",
        "bench serve: --lora-modules: refused: [workload.adapters] has them, and this [workload] is replaced"]

    _, printed = bench("latency", "--n", 2, "--batch-size", 0, status=2)
    assert faults(printed) == [
        "bench latency: --n: expected 1, found 2: several answers to a prompt are not modelled",
        "bench latency: --batch-size: expected a number >= 1, found 0"]


def test_all_faults_of_the_flags_come_at_once(bench):
    _, printed = bench("serve", "--num-prompts", 0, "--request-rate", -1, "--goodput", "itl:5", "ttft:-1",
                       "--percentile-metrics", "ttft,foo", "--metric-percentiles", "50,101,x", "--metadata", "k",
                       "--dataset-path", "a.csv", "--prefix-repetition-output-len", 3, "--max-concurrency", 0,
                       "--random-range-ratio", "1.5", "--ramp-up-end-rps", 3, status=2)

    assert [fault.removeprefix("bench serve: ").split(":")[0] for fault in faults(printed)] == [
        "--num-prompts", "--dataset-path", "--random-range-ratio", "--prefix-repetition-output-len",
        "--max-concurrency", "--request-rate", "--ramp-up-start-rps, --ramp-up-end-rps", "--goodput", "--goodput",
        "--percentile-metrics",
        "--metric-percentiles", "--metric-percentiles", "--metadata"]


def test_the_workload_is_the_flags_own(bench):
    _, printed = bench("serve", "--set", "workload.num_requests=3", status=2)

    assert faults(printed) == [
        "--set: workload.num_requests=3: bench replaces [workload]; its own flags say what is sent"]


def test_a_server_is_needed_once(server, capsys):
    assert cli.main(["bench", "latency"]) == 2
    assert cli.main(["bench", "latency", str(server), "--experiment", str(server)]) == 2

    assert capsys.readouterr().err.count("give the experiment that stands for the server, once") == 2


def test_an_unknown_flag_ends_with_2(server, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "serve", str(server), "--no-such-flag"])

    assert caught.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err


def recorded(name):
    if not (RECORDED / name).exists():
        pytest.skip("../shared is not there")
    return json.loads((RECORDED / name).read_text())


def test_metrics_of_recorded_requests_are_those_that_vllm_recorded():
    # vLLM 0.32 wrote the lists of each request and its own metrics of them
    record = recorded("bench_serve.json")
    seen = Seen([True] * record["completed"], *(record[name] for name in Seen._fields[1:]))

    found = counts(seen, record["duration"], {"ttft": 1000.0, "e2el": 5000.0}) | peaks(seen)
    for name, values in samples(seen, False, True).items():
        found |= {f"{part}_{name}_ms": value for part, value in statistics_ms(values, [50.0, 90.0, 95.0, 99.0]).items()}

    assert found == {key: pytest.approx(record[key], rel=1e-12) for key in found}
    assert len(found) == 10 + 4 * 7


def test_keys_are_those_that_vllm_writes(bench):
    found, _ = bench("serve", "--num-prompts", 4, "--save-detailed", "--percentile-metrics", "ttft,tpot,itl,e2el",
                     "--metric-percentiles", "50,90,95,99", "--backend", "vllm")

    record = recorded("bench_serve.json")
    assert list(found) == [*record, "simulated", "simulator_version", *SAID]
    own, _ = bench("latency", "--num-iters", 1)
    assert set(recorded("bench_latency.json")) | {"std_latency", "simulated", "simulator_version", *SAID} == set(own)
    own, _ = bench("throughput", "--num-prompts", 2)
    assert set(recorded("bench_throughput.json")) | {"simulated", "simulator_version", *SAID} == set(own)


def test_drafts_are_told_by_vllms_keys(bench):
    found, _ = bench("serve", "--num-prompts", 4, "--set", "engine.speculative.num_tokens=3", "--set",
                     "engine.speculative.num_lookahead_tokens=3", "--set",
                     "engine.speculative.acceptance.distribution=[0.3, 0.25, 0.2, 0.25]")

    assert found["spec_decode_acceptance_rate"] == pytest.approx(
        100 * found["spec_decode_accepted_tokens"] / found["spec_decode_draft_tokens"])
    assert len(found["spec_decode_per_position_acceptance_rates"]) == 3
