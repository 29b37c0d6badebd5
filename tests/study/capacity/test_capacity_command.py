"""`simulator capacity` on servers whose capacity follows from theory."""
import csv
import json

import pytest

from simulator import cli
from study.capacity.servers import SERVER, STUDY, asked, words, written

ROUGH = ("--set", "study.rel_tol=0.1")
SHORT = ("--set", "study.statistics.max_requests=4000")


@pytest.fixture
def study(tmp_path):
    return written(tmp_path, SERVER + STUDY)


def test_c3_a_finite_run_passes_beyond_what_the_server_can_do(study, tmp_path):
    # Request i waits i (1 - 1000 / r) ms, so p99 of 1,000 is 1 + 989.01 (1 - 1000 / r): 10 at r = 1009.18
    status, content = asked(study, tmp_path / "out", "--set", "study.slo.backlog=any", "--set", "study.rel_tol=1e-6")

    assert status == 0
    assert content["lo"] <= 1000 / (1 - 9 / 989.01) < content["hi"] <= content["lo"] * (1 + 1e-6)
    assert content["binding"] == "ttft_ms.p99" and content["monotone"] and content["at_bound"] is None
    assert content["repeated_with_new_seeds"] is False         # runs four times as long tell


def test_c3_what_has_no_steady_state_does_not_pass(study, tmp_path):
    status, content = asked(study, tmp_path / "out", "--set", "study.rel_tol=1e-5")

    assert status == 0 and content["binding"] == "backlog"
    assert 1000 <= content["lo"] <= 1001.2
    assert content["interval"] is None          # the times to the first token did not decide


def test_c3_p99_at_two_rates(study, tmp_path):
    for rate, p99_ms in ((1009.0, 9.8217), (1009.2, 10.0159)):
        bounds = ("--set", f"study.from={rate}", "--set", f"study.to={rate}", "--set", "study.slo.backlog=any")
        _, content = asked(study, tmp_path / f"{rate}", *bounds)
        assert content["curve"][0]["ttft_ms.p99"] == pytest.approx(p99_ms, abs=1e-4)
        assert content["at_bound"] == "from"


def test_c5_nothing_passes_and_the_answer_says_by_how_much(study, tmp_path, capsys):
    status, content = asked(study, tmp_path / "out", "--set", "study.slo={\"ttft_ms.p99\" = {max = 0.5}}")

    assert status == 3
    assert (content["answer"], content["gpus"], content["at_bound"]) == (None, None, "from")
    assert "even workload.arrival.rate_per_s = 10 misses ttft_ms.p99: 1 > 0.5" in words(capsys.readouterr().out)


def test_c5_everything_passes_and_the_answer_is_no_optimum(study, tmp_path, capsys):
    status, content = asked(study, tmp_path / "out", "--set", "study.to=900.0")

    assert status == 0
    assert (content["answer"], content["at_bound"], content["hi"]) == (900.0, "to", None)
    assert "the answer is the bound study.to: no optimum" in capsys.readouterr().out


@pytest.mark.slow
def test_c4_a_mean_of_two_milliseconds_is_where_theory_has_it(study, tmp_path):
    # M/D/1, 1 ms: mean time in the system 1 + rho / (2 (1 - rho)) ms is 2 at rho = 2/3
    status, content = asked(study, tmp_path / "out", "--set", 'workload.arrival.process="poisson"', "--set",
                            "workload.num_requests=20000", "--set", 'study.slo={"ttft_ms.mean" = {max = 2.0}}')

    low, high = content["interval"]
    assert status == 0 and low <= 666.67 <= high and high - low < 30 and low <= content["answer"] <= high
    assert content["repeated_with_new_seeds"]


def test_without_a_study_the_options_ask(tmp_path, capsys):
    file = written(tmp_path, SERVER)
    options = ("--slo", "ttft_ms.mean=3", "--set", "latency.base_us=2000.0")
    status, content = asked(file, tmp_path / "out", *options, *ROUGH)

    assert status == 0 and content["vary"] == "workload.arrival.rate_per_s"
    assert 450 < content["answer"] <= content["lo"] <= 500.5 < content["hi"]         # 2 ms each
    assert content["per_gpu"] == content["answer"] / content["gpus"] == content["answer"]
    assert content["cost_per_million_output_tokens"] is None


def test_more_requests_are_drawn_where_a_percentile_needs_them(tmp_path):
    _, content = asked(written(tmp_path, SERVER), tmp_path / "out", "--slo", "ttft_ms.p99=5", *ROUGH)

    assert {probe["requests"] for probe in content["probes"]} == {10_000}       # 5,000 where half of them is cut


@pytest.mark.parametrize(("warmup", "requests"), [
    ('"none"', 5000), ("{requests = 700}", 5700), ("{seconds = 1}", 10_000)])
def test_what_is_cut_is_drawn_on_top(tmp_path, warmup, requests):
    # at 500/s, 500 requests come in the first second: of 5,000 too few are left, so that twice as many are drawn
    _, content = asked(written(tmp_path, SERVER), tmp_path / "out", "--slo", "ttft_ms.p99=5", *ROUGH, "--set",
                       f"study.statistics.warmup={warmup}", "--set", "study.start=500.0")

    assert {probe["requests"] for probe in content["probes"]} == {requests}


def test_a_percentile_of_too_few_requests_is_thin_and_no_fail(tmp_path, capsys):
    status, content = asked(written(tmp_path, SERVER), tmp_path / "out", "--slo", "ttft_ms.p99=5", "--set",
                            "study.statistics.max_requests=1000")

    assert status == 4 and content["verdict"] == "thin" and content["answer"] is None
    # 50 beyond p99 are 5,000 requests, of 10,000 where half may be cut; p90 has 50 beyond it from 500 on
    assert content["thin"] == {"metrics": ["ttft_ms.p99"], "from": 0.1, "to": 1000.0, "requests": 1000,
                               "requests_needed": 10_000, "min_tail": 50.0, "max_requests": 1000}
    assert content["probes"][0]["reasons"] == ["thin: too few requests for ttft_ms.p99"]
    told = words(capsys.readouterr().out)
    assert ("nothing can be told: workload.arrival.rate_per_s = 0.1 to 1000 is thin: too few requests for ttft_ms.p99: "
            "study.statistics.min_tail = 50 asks for so many requests beyond a percentile; 10,000 requests would do, a "
            "run has 1,000 (study.statistics.max_requests = 1,000 allows no more; ttft_ms.p90 can be told of 1,000; "
            "with min_tail = 5 it is told, less surely)") in told


def test_a_search_goes_on_where_it_stopped(study, tmp_path, monkeypatch):
    out = tmp_path / "out"
    _, first = asked(study, out)
    ran = []
    monkeypatch.setattr("simulator.study.sweep.bench.Bench.run", lambda self, trial, stop=None: ran.append(trial))
    (out / "capacity.json").unlink()
    _, again = asked(study, out)

    assert not ran and again == first


@pytest.mark.slow
def test_the_answer_is_the_same_by_processes(study, tmp_path):
    assert asked(study, tmp_path / "one") == asked(study, tmp_path / "two", "--jobs", "2")


def test_runs_that_were_looked_at_otherwise_are_not_taken(study, tmp_path, capsys):
    asked(study, tmp_path / "out")

    assert asked(study, tmp_path / "out", "--set", "study.statistics.min_tail=1")[0] == 2
    assert "looked at for other bounds, or with other [study.statistics]" in capsys.readouterr().err


def test_a_folder_with_something_else_is_left_alone(study, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")

    assert asked(study, tmp_path / "out") == (2, None)
    assert "holds something else than a capacity study (mine.txt)" in capsys.readouterr().err


def test_an_axis_gives_a_capacity_for_each_of_its_values(study, tmp_path):
    axes = '{"latency.base_us" = [1000.0, 500.0]}'
    status, content = asked(study, tmp_path / "out", "--set", f"study.axes={axes}", *ROUGH)

    slow, fast = content["points"]
    assert status == 0 and slow["point"] == {"latency.base_us": 1000.0}
    assert slow["lo"] <= 1010 < slow["hi"] and fast["lo"] <= 2020 < fast["hi"]
    assert fast["probes"][0]["value"] == slow["answer"]         # begins where its neighbour ended
    with open(tmp_path / "out" / "curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["latency.base_us"] for row in rows} == {"1000.0", "500.0"}
    assert len(rows) == len(slow["probes"]) + len(fast["probes"])


def test_an_axis_may_say_how_many_requests_there_are(study, tmp_path):
    axes = '{"workload.num_requests" = [400, 800]}'
    _, content = asked(study, tmp_path / "out", "--set", f"study.axes={axes}", *ROUGH)

    assert [{probe["requests"] for probe in each["probes"]} for each in content["points"]] == [{400}, {800}]


def test_the_number_of_requests_may_be_varied(study, tmp_path):
    # At 1,009.2/s p99 of n requests is about 1 + 0.99 n 0.0092 / 1.0092 ms: it grows with them
    status, content = asked(study, tmp_path / "out", "--set", "study.vary=workload.num_requests", "--set",
                            "study.from=100", "--set", "study.start=100", "--set",
                            "workload.arrival.rate_per_s=1009.2", "--set",
                            "study.slo.backlog=any")

    assert status == 0 and content["hi"] == content["lo"] + 1
    assert content["lo"] == pytest.approx(998, abs=3)
    assert all(probe["requests"] == probe["value"] for probe in content["probes"])


def test_the_fewest_replicas_for_a_load(study, tmp_path, capsys):
    # 2,500 requests/s of 1 ms: two servers cannot, three can
    status, content = asked(study, tmp_path / "out", "--set", "workload.arrival.rate_per_s=2500.0", "--set",
                            'study.vary="topology.replicas"', "--set", 'study.goal="min"', "--set", "study.from=1",
                            "--set", "study.to=16", "--set", "study.start=1")

    assert status == 0 and (content["answer"], content["lo"], content["hi"]) == (3, 2, 3)
    assert (content["gpus"], content["monotone"]) == (3, True)
    assert content["per_gpu"] == pytest.approx(2500 / 3, rel=0.01)
    told = capsys.readouterr().out
    assert "least topology.replicas: 3; the bounds are met at 2." in told and "\n2 misses ttft_ms.p99: " in told


def test_a_search_begins_at_what_a_full_batch_would_take(tmp_path):
    # one request of 3 tokens at a time, 1 ms an iteration: 333.3/s
    text = SERVER.replace('output_tokens = {distribution = "constant", value = 1}',
                          'output_tokens = {distribution = "constant", value = 3}')
    _, content = asked(written(tmp_path, text), tmp_path / "out", "--slo", "ttft_ms.mean=9", *ROUGH)

    first = next(probe for probe in content["probes"])
    assert first["value"] == pytest.approx(1000 / 3)


def test_seeds_are_as_many_as_asked_for(study, tmp_path):
    _, content = asked(study, tmp_path / "out", "--set", "study.min_seeds=2", "--set", "seed=40", *ROUGH)

    assert all(probe["seeds"] == [40, 41] for probe in content["probes"])
    assert all(probe["seeds"] == [72, 73] for probe in content["repeats"])      # none of the 32 of the search


def test_a_run_that_takes_too_long_does_not_pass(study, tmp_path, capsys):
    status, _ = asked(study, tmp_path / "out", "--set", "study.run.timeout_s=1e-9", "--set",
                        "workload.num_requests=200000", "--set", "study.start=10")

    assert status == 3
    assert "fails: timeout: it took longer than 1e-09 s" in words(capsys.readouterr().out)


def test_a_trace_is_played_faster(tmp_path):
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{i * 0.004},1,1\n" for i in range(400)))
    text = SERVER[:SERVER.index("[workload]")] + '[workload]\ntype = "trace"\npath = "trace.csv"\n'
    status, content = asked(written(tmp_path, text), tmp_path / "out", "--slo", "ttft_ms.mean=1.5", "--slo",
                            "backlog=any")

    # 250 requests/s as recorded; at 1,000 each is served as it comes
    assert status == 0 and content["vary"] == "workload.rate_scale"
    assert content["lo"] == pytest.approx(4.01, abs=0.05)
    assert content["probes"][0]["value"] == 1.0


@pytest.mark.ci
def test_a_hole_is_told(tmp_path, capsys):
    # 1,000/s is what the server can do; 0.7 times that falls into the hole
    (tmp_path / "holed.py").write_text("""
from simulator.admission.python_admission import PythonAdmission


class Holed(PythonAdmission):
    # nobody may come 1.39 to 1.61 ms after the last one: at 621 to 719/s

    last_ns = 0

    def lets_pass(self, request, now_ns):
        gap_ns, self.last_ns = now_ns - self.last_ns, now_ns
        return not 1_390_000 < gap_ns < 1_610_000
""")
    text = SERVER + '[cluster.admission]\npolicy = "holed:Holed"\n[slo]\nttft_ms = 100.0\n'
    status, content = asked(written(tmp_path, text), tmp_path / "out", "--slo", "goodput_share=0.9", "--set",
                            "study.start=800.0", *ROUGH, *SHORT)

    assert status == 0 and not content["monotone"]
    assert content["answer"] <= 621.2 < content["before"]
    assert "not monotone: " in capsys.readouterr().out


def test_vidurs_search_probes_as_vidur_does(tmp_path):
    text = SERVER.replace('"constant", rate', '"poisson", rate') + """
[study]
kind = "capacity"
compat = "vidur"
start = 600.0
slo = {"queue_ms.p99" = {max = 5.0}}
"""
    status, content = asked(written(tmp_path, text), tmp_path / "out")

    assert status == 0 and content["repeated_with_new_seeds"] is None
    assert {probe["requests"] for probe in content["probes"]} == {1000}
    values = [probe["value"] for probe in content["probes"]]
    assert values[0] == 600.0 and all(probe["seeds"] == [0] for probe in content["probes"])
    assert content["answer"] == max(probe["value"] for probe in content["probes"] if probe["verdict"] == "pass")


@pytest.mark.parametrize(("given", "fault"), [
    ("study.vary=engine.scheduler", '"engine.scheduler" is no number'),
    ("study.vary=engine.max_seqs", 'no key "engine.max_seqs"; did you mean engine.max_num_seqs?'),
    ("study.vary=nonsense.key", 'no key "nonsense.key"; valid: autoscaling, carbon, cluster, '),
    ("study.vary=carbon.xyz", 'no key "carbon.xyz"; valid: carbon.g_per_kwh, carbon.starts_at_hour; '),
    ("study.vary=workload.arival.rate_per_s",
     'no key "workload.arival.rate_per_s"; did you mean workload.arrival.rate_per_s?'),
    ("study.goal=most", 'study.goal: expected one of "max", "min", found "most"'),
    ("study.to=5.0", "study.from: expected at most to = 5, found 10"),
    ("study.max_seeds=2", "study.min_seeds: expected at most max_seeds = 2, found 3"),
    ("study.seeds=5", "study.seeds: expected none: min_seeds and max_seeds say how many"),
    ("study.statistics.precision=0.1", "study.statistics.precision: expected 0"),
    ("study.slo.goodput_share={min = 0.9}", "the experiment has no [slo]"),
    ('study.slo={"ttft.p99" = {max = 1.0}}', 'summary.json has no number "ttft.p99"; did you mean ttft_ms.p99?'),
    ('study.mix=[{pool = "big", replicas = {from = 0, to = 2}}]', 'study.mix[0].pool: there is no pool "big"'),
    ("study.vary=engine.gpu_memory_utilization", "engine.gpu_memory_utilization: expected a number > 0 and <= 1"),
    ('study={compat = "vidur", start = 5.0, slo = {"ttft_ms.p99" = 3}}', 'study.slo."ttft_ms.p99": expected {max'),
    ("study.compat=vidur", "study.slo: expected"),
])
def test_what_cannot_be_asked_is_refused(study, tmp_path, capsys, given, fault):
    if given == "study.compat=vidur":
        given, fault = 'study={compat = "vidur", start = "estimate"}', "expected a number with compat"
    assert asked(study, tmp_path / "out", "--set", given) == (2, None)
    assert fault in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_all_faults_are_told_at_once(study, tmp_path, capsys):
    options = ("--set", "study.seeds=2", "--set", "study.vary=engine.scheduler", "--set", "study.slo.backlog=odd")

    assert asked(study, tmp_path / "out", *options) == (2, None)
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_an_experiment_without_bounds_is_no_study(tmp_path, capsys):
    assert asked(written(tmp_path, SERVER), tmp_path / "out") == (2, None)
    assert "--slo ttft_ms.p99=500" in capsys.readouterr().err


def test_a_study_says_its_bounds_itself(study, tmp_path, capsys):
    assert asked(study, tmp_path / "out", "--slo", "ttft_ms.p99=5") == (2, None)
    assert "is a study, whose [study] says it" in capsys.readouterr().err


def test_a_run_that_fails_ends_the_search_and_makes_no_verdict(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("""
from simulator.latency.python_model import PythonLatencyModel


class Broken(PythonLatencyModel):
    def batch_us(self, batch):
        raise RuntimeError("out of order")
""")
    start = SERVER.index("[latency]")
    text = SERVER[:start] + '[latency]\nbackend = "broken:Broken"\n' + SERVER[SERVER.index("[workload]"):] + STUDY
    status, content = asked(written(tmp_path, text), tmp_path / "out")

    assert (status, content) == (1, None)
    assert "seed 0: failed: " in capsys.readouterr().err


def test_the_answer_can_be_printed_as_json(study, tmp_path, capsys):
    _, content = asked(study, tmp_path / "out", "--json")

    assert json.loads(capsys.readouterr().out) == content


@pytest.mark.ci
def test_where_nobody_is_served_nothing_passes(study, tmp_path, capsys):
    status, _ = asked(study, tmp_path / "out", "--set", 'cluster.admission={policy = "reject_all"}', *SHORT)

    assert status == 3
    assert "fails: ttft_ms.p99: there is nothing to measure in 3 of 3 runs" in words(capsys.readouterr().out)


def test_what_is_not_served_is_told(study, tmp_path, capsys):
    # what a bucket of 500/s does not let in is rejected, so that the others are quick at any load
    bucket = '{policy = "token_bucket", capacity_tokens = 10.0, refill_tokens_per_s = 500.0}'
    status, content = asked(study, tmp_path / "out", "--set", f"cluster.admission={bucket}", "--set", "study.to=2000.0")

    assert (status, content["answer"]) == (0, 2000.0)
    assert content["unserved_share"] == pytest.approx(0.75, abs=0.01)
    assert "of the requests were not served; percentiles are those of the others: bound goodput_share" in (
        words(capsys.readouterr().out))


def test_each_probe_is_told_while_it_searches(study, tmp_path, capsys):
    cli.main(["capacity", study, "--out", str(tmp_path / "out"), *ROUGH])

    told = words(capsys.readouterr().err)
    assert told.startswith("workload.arrival.rate_per_s = 500: pass, ttft_ms.p99 1 +- 0 (3 seeds x 1,000 requests) ")


def test_prices_by_accelerator_are_what_the_answer_costs(tmp_path):
    # 2 accelerators a replica at 2.5 an hour each
    text = SERVER + '[hardware]\nname = "h100-sxm-80gb"\n[topology]\ntensor_parallel = 2\n' + (
        '[prices]\n"h100-sxm-80gb" = {per_gpu_hour = 2.5, currency = "USD", date = "2026-11-01", source = "a list"}\n')
    _, content = asked(written(tmp_path, text), tmp_path / "out", "--slo", "ttft_ms.mean=3", *ROUGH)

    assert content["cost_per_hour"] == 5.0
    assert content["cost_per_million_output_tokens"] == pytest.approx(
        5.0 * 1e6 / (3600 * content["output_tokens_per_s"]))
