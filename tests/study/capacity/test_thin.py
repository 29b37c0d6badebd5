"""Values with too few requests for their percentiles: neither a pass nor a fail, and searched past, up and down."""
import json

import pytest

from simulator import cli
from simulator.study.capacity.bounds import Bound, Bounds
from simulator.study.capacity.search import Search, Span
from simulator.study.capacity.thin import is_missed_for_sure, requests_for, thin_of
from simulator.study.capacity.verdict import Observation, Rules, weigh
from simulator.study.reports.capacity import capacity_page
from study.capacity.servers import SERVER, asked, words, written

P99 = Bounds((Bound("ttft_ms.p99", 10.0, True),))
BOTH = Bounds((Bound("ttft_ms.p99", 10.0, True), Bound("tpot_ms.mean", 5.0, True)))


def seen(p99=1.0, thin=("ttft_ms.p99",), tpot=1.0, seeds=3, **more):
    return [Observation(seed, {"ttft_ms.p99": p99, "tpot_ms.mean": tpot}, thin=thin, num_sent=100, num_measured=100,
                        **more) for seed in range(seeds)]


@pytest.mark.parametrize("p99", [1.0, 99.0])
def test_a_thin_percentile_decides_nothing_whatever_it_is(p99):
    verdict = weigh(5.0, seen(p99), Rules(P99))

    assert (verdict.word, verdict.passes, verdict.is_thin, verdict.is_undecided) == ("thin", False, True, False)
    assert verdict.miss_text == "is thin: too few requests for ttft_ms.p99"
    assert verdict.margin != verdict.margin


def test_another_bound_that_is_missed_decides_all_the_same():
    assert weigh(5.0, seen(tpot=9.0), Rules(BOTH)).word == "fail"
    assert weigh(5.0, seen(tpot=1.0), Rules(BOTH)).word == "thin"
    assert weigh(5.0, seen(faults=("requests did not end",)), Rules(P99)).word == "fail"


def test_one_run_of_some_with_too_few_requests_is_thin():
    runs = [*seen(seeds=2), *seen(seeds=3, thin=())[2:]]

    assert weigh(5.0, runs, Rules(P99)).reasons == ("thin: too few requests for ttft_ms.p99 (2 of 3 runs)",)


def test_a_percentile_is_missed_for_sure_where_a_lower_one_is():
    # of 600 requests 60 are beyond p90 and 6 beyond p99; 50 are asked for
    summary = {"requests.completed": 600, "ttft_ms.p50": 2.0, "ttft_ms.p90": 12.0, "ttft_ms.p95": 20.0}

    assert is_missed_for_sure("ttft_ms.p99", 10.0, summary, 50.0)
    assert not is_missed_for_sure("ttft_ms.p99", 15.0, summary, 50.0)           # p95 has 30 beyond it
    assert not is_missed_for_sure("ttft_ms.p99", 10.0, summary | {"requests.completed": 100}, 50.0)
    assert not is_missed_for_sure("ttft_ms.p90", 10.0, summary, 50.0)


@pytest.mark.parametrize(("metrics", "warmup", "requests"), [
    (["ttft_ms.p99"], None, 5000), (["ttft_ms.p99", "itl_ms.p50"], "none", 5000), (["ttft_ms.p90"], "mser5", 1000),
    (["ttft_ms.p95"], {"requests": 70}, 1070), (["ttft_ms.mean"], "mser5", 0)])
def test_how_many_requests_percentiles_need(metrics, warmup, requests):
    assert requests_for(metrics, 50.0, warmup) == requests


def test_what_a_window_leaves_of_requests_is_reckoned_with():
    # of 200 requests 100 are measured: p99 needs 5,000 of these, 10,000 in all
    found = [weigh(5.0, [each._replace(num_sent=200) for each in seen()], Rules(P99))]

    assert thin_of(found, 50.0, {"seconds": 3.0}, None).needed == 10_000


class Thinned:
    """A judge of values: thin from one to another, else they pass up to a third."""

    def __init__(self, low, high, last):
        self.probes, self._low, self._high, self._last = [], low, high, last

    def __call__(self, value):
        self.probes.append(value)
        thin = ("ttft_ms.p99",) if self._low <= value <= self._high else ()
        return weigh(value, seen(1.0 if value <= self._last else 99.0, thin), Rules(P99))


def test_a_search_goes_up_past_values_that_are_thin():
    found = Search(judge := Thinned(0.0, 50.0, 300.0), Span(1.0, 1000.0)).run(8.0)

    assert 297 < found.answer <= 300 < found.bad.value <= 303
    assert min(judge.probes) == 1.0             # down first, where nothing can be told


def test_a_search_for_the_least_goes_down_past_them():
    def least(value):
        return weigh(value, seen(1.0 if value >= 7 else 99.0, ("ttft_ms.p99",) if value > 50 else ()), Rules(P99))

    found = Search(least, Span(1, 1000, is_whole=True, is_least=True)).run(100)

    assert (found.answer, found.bad.value) == (7, 6)


def test_past_thin_values_a_fail_ends_the_search():
    found = Search(judge := Thinned(0.0, 50.0, 0.0), Span(1.0, 1000.0)).run(8.0)

    assert found.answer is None and max(judge.probes) == 64.0


def test_thin_values_below_an_answer_do_not_overthrow_it():
    found = Search(Thinned(60.0, 95.0, 100.0), Span(1.0, 1000.0)).run(98.0)     # 0.9 and 0.7 of it are thin

    assert found.is_monotone and 99 < found.answer <= 100


# ---- through the command

TRACE = SERVER[:SERVER.index("[workload]")] + '[workload]\ntype = "trace"\npath = "trace.csv"\n'


@pytest.fixture
def trace(tmp_path):
    """Write a trace of so many requests, 250 a second, and its experiment."""
    def write(count, more=""):
        (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
            f"{i * 0.004},1,1\n" for i in range(count)))
        return written(tmp_path, TRACE + more)

    return write


@pytest.mark.parametrize(("options", "status", "verdict"), [
    (["--set", 'study.slo.backlog="any"'], 0, "pass"),
    (["--set", 'study.slo.backlog="stable"'], 4, "thin"), ([], 4, "thin")])
def test_set_says_what_becomes_of_a_backlog_beside_slo(trace, tmp_path, options, status, verdict):
    # ten requests: too few to tell whether the backlog grows
    found, content = asked(trace(10), tmp_path / "out", "--slo", "ttft_ms.mean=5", *options)
    assert (found, content["verdict"]) == (status, verdict)


def test_a_few_requests_say_how_many_would_tell_of_a_backlog(trace, tmp_path, capsys):
    content = asked(trace(10), tmp_path / "out", "--slo", "ttft_ms.mean=5")[1]
    told = words(capsys.readouterr().out)

    assert {row["verdict"] for row in content["curve"]} == {"thin", "fail"}
    assert ("too few requests for backlog: fewer than 40 requests do not show whether a queue grows; 40 requests would "
            'do, a run has 10 (a longer workload has them; study.slo.backlog = "any" does without)') in told
    assert content["thin"]["requests_needed"] == 40
    assert asked(trace(40), tmp_path / "more", "--slo", "ttft_ms.mean=5")[0] == 0


def test_a_raised_number_of_requests_is_told(tmp_path, capsys):
    file = written(tmp_path, SERVER)
    status, content = asked(file, tmp_path / "out", "--slo", "ttft_ms.p99=5", "--set", "workload.num_requests=1")

    told = ("workload.num_requests = 1 is raised to 10,000, for the bounds need as many (min_tail and max_requests of "
            "study.statistics)")
    assert status == 0 and told in content["notes"] and f"note: {told}" in words(capsys.readouterr().out)
    assert {probe["requests"] for probe in content["probes"]} == {10_000}
    content = asked(file, tmp_path / "long", "--slo", "ttft_ms.p50=5", "--set", "workload.num_requests=1000")[1]
    assert not any("raised" in note for note in content["notes"])


def test_a_horizon_that_cuts_every_run_is_no_fail(tmp_path, capsys):
    file = written(tmp_path, "horizon_s = 0.0005\n" + SERVER)
    status, content = asked(file, tmp_path / "out", "--slo", "ttft_ms.mean=5")
    out, err = map(words, capsys.readouterr())

    assert (status, content["verdict"]) == (4, "thin")
    assert "a longer horizon_s has them: it cuts the runs" in out and "horizon_s cut the run at 0.0005 s" in err
    assert max(probe["requests"] for probe in content["probes"]) < 40


def test_a_small_trace_says_how_many_requests_would_do(trace, tmp_path, capsys):
    status, content = asked(trace(120), tmp_path / "out", "--slo", "ttft_ms.p99=5", "--slo", "backlog=any")
    told = words(capsys.readouterr().out)

    # p99 of 120 requests; p50 has 60 beyond it. Where even p50 is above 5 ms the bound is missed for sure
    assert status == 4 and content["verdict"] == "thin"
    assert {row["verdict"] for row in content["curve"]} == {"thin", "fail"}
    assert ("is thin: too few requests for ttft_ms.p99: study.statistics.min_tail = 50 asks for so many requests "
            "beyond a percentile; 5,000 requests would do, a run has 120 (a longer workload has them; ttft_ms.p50 can "
            "be told of 120; with min_tail = 1 it is told, less surely)") in told
    assert content["thin"]["requests_needed"] == 5000 and content["thin"]["max_requests"] is None


def test_what_is_advised_helps(trace, tmp_path):
    file = trace(120)
    for number, options in enumerate((["--slo", "ttft_ms.p50=5"],
                                      ["--slo", "ttft_ms.p99=5", "--set", "study.statistics.min_tail=1"])):
        status, content = asked(file, tmp_path / str(number), "--slo", "backlog=any", *options)
        assert (status, content["verdict"], content["thin"]) == (0, "pass", None)
    status, content = asked(trace(5000), tmp_path / "long", "--slo", "ttft_ms.p99=5", "--slo", "backlog=any", "--set",
                            "study.rel_tol=0.1")
    assert (status, content["verdict"]) == (0, "pass")


def test_nothing_passes_stays_a_verdict_of_its_own(trace, tmp_path, capsys):
    # each request takes 1 ms
    status, content = asked(trace(120), tmp_path / "out", "--slo", "ttft_ms.mean=0.5")

    assert (status, content["verdict"], content["thin"]) == (3, "fail", None)
    assert "nothing passes: even " in words(capsys.readouterr().out)


def test_the_report_of_a_thin_search_says_so(trace, tmp_path):
    asked(trace(120), tmp_path / "out", "--slo", "ttft_ms.p99=5")
    told = capacity_page(tmp_path / "out", None)

    assert told.says == "Nothing can be told: too few requests for ttft_ms.p99; 5,000 would do, a run has 120."
    assert not told.is_good


def test_a_report_reads_what_older_versions_wrote(tmp_path):
    out = tmp_path / "out"
    asked(written(tmp_path, SERVER), out, "--slo", "ttft_ms.mean=3", "--set", "study.rel_tol=0.2")
    content = json.loads((out / "capacity.json").read_text())
    content["verified"], content["verification"] = content.pop("repeated_with_new_seeds"), content.pop("repeats")
    for key in ("verdict", "thin", "diagnosis", "accuracy"):
        del content[key]
    (out / "capacity.json").write_text(json.dumps(content))

    assert capacity_page(out, None).says.endswith(", repeated with new seeds.")


def test_tune_names_thin_rates_as_such(trace, tmp_path, capsys):
    file = trace(120, """
[study]
kind = "tune"
load = "capacity"
slo = {"ttft_ms.p99" = {max = 5.0}, backlog = "any"}
[study.objectives]
rate = "max"
[study.axes]
"engine.max_num_seqs" = [1, 2]
""")

    assert cli.main(["tune", file, "--out", str(tmp_path / "out"), "--jobs", "1"]) == 3
    assert "is thin: too few requests for ttft_ms.p99: study.statistics.min_tail = 50" in words(capsys.readouterr().out)
