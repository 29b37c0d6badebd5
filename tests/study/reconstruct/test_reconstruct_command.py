"""The command on hidden truths that the simulator made."""
import json

import pytest
import tomli_w

from simulator import cli
from simulator.config.load import load_experiment
from support.hidden_truths import CHANGES, access_log, drawn_truth, held, prometheus, run_truth


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return a folder with the metrics and the log of a truth with a restart, and its experiment."""
    folder = tmp_path_factory.mktemp("told")
    truth = drawn_truth(5, scrapes=14, has_restart=True)
    result = run_truth(truth)
    (folder / "metrics.json").write_text(prometheus(truth, result))
    (folder / "log.csv").write_text(access_log(truth, result))
    servers = {key: value for key, value in truth.table.items() if key != "failures"}
    (folder / "servers.toml").write_text(tomli_w.dumps(servers))
    (folder / "changes.toml").write_text(tomli_w.dumps({"variants": CHANGES[:1]}))
    return folder, truth


def reconstruct(folder, *options):
    return cli.main(["reconstruct", str(folder / "servers.toml"), "--metrics", str(folder / "metrics.json"), "--quiet",
                     "--out", str(folder / "out"), *options])


def test_restarts_clocks_and_intervals_are_reported_and_written(told, capsys):
    folder, truth = told
    status = reconstruct(folder, "--log", str(folder / "log.csv"), "--what-if", str(folder / "changes.toml"), "--draws",
                         "2")
    text, (failure,) = capsys.readouterr().out, truth.table["failures"]
    content = json.loads((folder / "out" / "reconstruction.json").read_text())
    restart, = content["restarts"]
    first_s = 1.8e9 - max(truth.lags_s)

    assert status == 0
    assert restart["after_s"] <= first_s + failure["at_s"] + 15 and restart["instance"] == "10.0.0.0:8000"
    assert restart["before_s"] >= first_s + failure["at_s"] + failure["duration_s"]
    assert content["clock_skew_s"]["value"] == pytest.approx(truth.skew_s, abs=15)
    assert set(content["what_if"]) == {"as_it_was", "two_more"}
    assert all(line in text for line in ("TTFT mean, ms", "restart: 10.0.0.0:8000", "clocks: the log", "two_more"))
    assert all(len(line) <= 80 for line in text.splitlines()[:-1])        # the last has a path
    experiment = load_experiment(folder / "out" / "experiment_02.toml")
    assert experiment.workload.parameters.path.endswith("trace_02.csv")
    assert experiment.failures[0].kind == "stop"
    assert cli.main(["compare", str(folder / "out" / "what_if.toml"), "--quiet"]) == 0


def test_an_answer_is_not_replaced_unasked_and_faults_come_together(told, capsys):
    folder, _ = told
    (folder / "bad.toml").write_text("variant = 1")
    assert reconstruct(folder, "--what-if", str(folder / "bad.toml"), "--log", str(folder / "none.csv")) == 2
    errors = capsys.readouterr().err

    assert "none.csv" in errors and "variant: unknown key" in errors and "expected tables [[variants]]" in errors
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "reconstruction.json").touch()
    assert reconstruct(folder) == 2
    assert "--overwrite replaces them" in capsys.readouterr().err


def test_results_of_another_command_are_left_alone(told, capsys):
    folder, _ = told
    place = folder / "mine"
    place.mkdir()
    (place / "summary.json").write_text("{}")
    assert reconstruct(folder, "--out", str(place), "--overwrite") == 2
    assert "holds summary.json, which no `reconstruct` writes" in capsys.readouterr().err
    assert [each.name for each in place.iterdir()] == ["summary.json"]


def test_an_earlier_reconstruction_stays_until_the_new_one_is_whole(told, capsys):
    folder, _ = told
    place = folder / "earlier"
    place.mkdir()
    (place / "reconstruction.json").write_text("{}")
    (folder / "wrong.toml").write_text('variants = [{name = "a", engine.max_num_seq = 3}]')
    assert reconstruct(folder, "--out", str(place), "--overwrite", "--draws", "1", "--what-if",
                       str(folder / "wrong.toml")) == 2
    assert capsys.readouterr().err == (
        f"{folder / 'wrong.toml'}: variant a: engine.max_num_seq: unknown key; did you mean max_num_seqs?\n")
    assert [each.name for each in place.iterdir()] == ["reconstruction.json"]
    assert not list(folder.glob(".*partial*"))


def test_draws_of_an_earlier_reconstruction_are_gone(told):
    folder, _ = told
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "experiment_77.toml").touch()
    assert reconstruct(folder, "--overwrite") == 0
    assert not (folder / "out" / "experiment_77.toml").exists()


def test_metrics_without_counts_of_requests_are_refused_without_a_log(told, capsys):
    folder, _ = told
    series = json.loads((folder / "metrics.json").read_text())["data"]["result"]
    kept = [each for each in series if "success" not in each["metric"]["__name__"]]
    (folder / "few.json").write_text(json.dumps({"data": {"result": kept}}))

    assert cli.main(["reconstruct", str(folder / "servers.toml"), "--metrics", str(folder / "few.json"), "--out",
                     str(folder / "few")]) == 2
    assert "no series request_success_total" in capsys.readouterr().err


def test_lines_of_statistics_are_laid_on_the_log_by_their_tokens(told, capsys):
    folder, _ = told
    rows = "".join(f"{1.8e9 + 5 * i + 0.5},{100 + 37 * i % 400},20\n" for i in range(60))
    (folder / "rows.csv").write_text("time,isl,osl\n" + rows)
    lines, prompts = "", [100 + 37 * i % 400 for i in range(60)]
    for i in range(31):         # the server's clock shows another zone, two hours later
        seen, tokens = divmod(10 * i, 60), sum(prompts[2 * i - 2:2 * i]) if i else 0
        lines += (f"INFO 01-15 10:{seen[0]:02d}:{seen[1]:02d} [loggers.py] Engine 000: Avg prompt throughput: "
                  f"{tokens / 10} tokens/s, Avg generation throughput: 4.0 tokens/s, Running: 1 reqs, Waiting: 0 "
                  "reqs\n")
    (folder / "server.log").write_text(lines)

    assert cli.main(["reconstruct", str(folder / "servers.toml"), "--metrics", str(folder / "server.log"), "--log",
                     str(folder / "rows.csv"), "--draws", "1", "--out", str(folder / "lines"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["clock_skew_s"]["value"] == pytest.approx(-7200, abs=5)
    assert {row["name"]: row["simulated"] for row in content["series"]}["prompt tokens/s"] == pytest.approx(
        sum(prompts) / 300, rel=0.05)
    assert "the metrics of 1 instance are those of 2 replicas" in content["assumptions"][0]
    assert cli.main(["reconstruct", str(folder / "servers.toml"), "--metrics", str(folder / "server.log"), "--metrics",
                     str(folder / "metrics.json"), "--log", str(folder / "rows.csv")]) == 2
    assert "found both" in capsys.readouterr().err


@pytest.mark.parametrize("has_log", [False, True])
def test_intervals_hold_hidden_truths(has_log):
    holds, of_all = held(drawn_truth(12, scrapes=10), has_log, CHANGES[2:3], 3)

    assert sum(holds.values()) >= 0.9 * sum(of_all.values())
