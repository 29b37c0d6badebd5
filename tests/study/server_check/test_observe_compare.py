"""`observe --compare`: files, a watched server, a measured one, refusals."""
import json
from functools import partial
from itertools import count

import pytest
import tomli_w

from simulator import cli
from simulator.study import observe_compare
from simulator.study.server_check import causes, check
from support.observing import ENGINE, arrivals
from support.sse_server import SERVED, StandIn

RUNNING = "vllm:num_requests_running"


@pytest.fixture
def experiment(tmp_path):
    """Write an experiment of ten short requests a second; return its path."""
    (tmp_path / "trace.csv").write_text(arrivals(*(number / 10 for number in range(60)), prompt=10, output=4))
    path = tmp_path / "server.toml"
    path.write_text(tomli_w.dumps(ENGINE | {"workload": {"type": "trace", "path": str(tmp_path / "trace.csv")}}))
    return path


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    """Rank two causes, by few runs."""
    monkeypatch.setattr(observe_compare, "check", partial(
        check.check, causes=[each for each in causes.CAUSES if each.name in ("eager", "prefix_caching")]))
    monkeypatch.setattr(check, "SEEDS", 4)
    monkeypatch.setattr(check, "CAUSE_SEEDS", 3)


@pytest.fixture
def observe(experiment, tmp_path, capsys):
    """Compare; return status, stdout, stderr and compare.json."""
    def run(*options):
        status = cli.main(["observe", str(experiment), "--compare", *map(str, options)])
        out, err = capsys.readouterr()
        answer = tmp_path / "out" / "compare.json"
        return status, out, err, json.loads(answer.read_text()) if answer.exists() else None
    return run


def pages():
    """Return pages of a server that ends one request from page to page."""
    number = count()

    def page():
        ended = next(number)
        return (f'{RUNNING}{{engine="0"}} 0.0\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'
                f'vllm:request_success_total{{engine="0",finished_reason="length"}} {ended}.0\n'
                f'vllm:request_prompt_tokens_count{{engine="0"}} {ended}.0\n'
                f'vllm:request_prompt_tokens_sum{{engine="0"}} {10 * ended}.0\n'
                'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1.0\n')
    return page


def test_a_file_is_compared_in_80_columns_and_as_json(observe, tmp_path):
    page = pages()
    for number in range(13):                    # a request each 0.1 s, as planned, but half of the KV cache
        (tmp_path / f"{1_700_000_000 + number / 10}.prom").write_text(page().replace('"1000"', '"500"'))

    status, out, err, answer = observe("--metrics", *sorted(tmp_path.glob("*.prom")), "--out", tmp_path / "out")

    assert status in (0, 1) and not err
    assert max(map(len, out.splitlines()[1:])) <= 80
    assert "does not behave as the experiment says" in out or "behaves as the experiment says" in out
    rows = {row["name"]: row for row in answer["features"]}
    assert rows["kv_tokens"]["measured"] == 8000 and rows["kv_tokens"]["expected"] == pytest.approx(16_000)
    assert not rows["kv_tokens"]["is_inside"] and rows["arrivals_per_s"]["measured"] == pytest.approx(10.0)
    assert answer["arrivals"] == 12 and [each["name"] for each in answer["causes"]]


def test_a_server_is_watched_and_its_pages_are_kept(observe, tmp_path):
    with StandIn(page=pages()) as server:
        status, out, _, answer = observe("--url", server.url, "--watch", "1s", "--every", "0.1s", "--out",
                                         tmp_path / "out")

    kept = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert len(kept) >= 3 and not server.asked
    assert all(f'{RUNNING}{{engine="0"}}' in page["samples"] for page in kept)
    assert answer["readings"] == len(kept) and status in (0, 1)
    assert f"server at {server.url}: " in out.replace("\n  ", " ")


def test_a_load_that_is_sent_is_compared(observe, tmp_path):
    with StandIn(page=pages()) as server:
        _, _, err, answer = observe("--url", server.url, "--model", SERVED, "--every", "0.5s", "--out",
                                    tmp_path / "out", "--self-test", "0", "--quiet", "--set", "horizon_s=2.0")

    assert answer is not None, err
    assert (tmp_path / "out" / "observed.csv").exists() and answer["readings"] >= 3


def test_a_server_without_the_metrics_is_refused_before_a_load(observe, tmp_path):
    with StandIn() as server:
        status, _, err, _ = observe("--url", server.url, "--model", SERVED, "--out", tmp_path / "out")

    assert status == 2 and not server.asked
    assert f"--compare: expected vLLM's metrics at {server.url}: no {RUNNING}; --metrics-url names another page" in err


@pytest.mark.parametrize(("options", "said"), [
    (["--metrics", "a.prom", "--url", "http://a:1"], ["--url: expected none with --metrics"]),
    (["--watch", "60s"], ["--url: expected the address of a server"]),
    (["--url", "http://a:1", "--watch", "10s"], ["--watch: expected more than two times of --every, 5 s, found 10 s"]),
    ([], ["--url: expected the address of a server", "--model: expected the name of the model"])])
def test_options_that_do_not_go_together_are_refused(observe, options, said):
    status, _, err, _ = observe(*options)

    assert status == 2
    assert all(each in err for each in said)


def test_options_of_the_comparison_need_it(experiment, capsys):
    status = cli.main(["observe", str(experiment), "--watch", "60s", "--price-error", "0.1"])

    err = capsys.readouterr().err
    assert status == 2 and "--watch: needs --compare" in err and "--price-error: needs --compare" in err


def test_pools_are_refused(observe, experiment, tmp_path):
    pool = '[[pools]]\nname = "a"\nreplicas = 1\n'
    experiment.write_text(experiment.read_text() + pool)

    status, _, err, _ = observe("--metrics", tmp_path / "any.prom")

    assert status == 2 and "pools: expected none for a comparison with a server" in err
