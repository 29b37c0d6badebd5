"""A real browser, without a network, shows pages of studies as they should be: no text covers another."""
import pytest

from results.reports.browser import needs_browser, shown
from simulator import cli
from simulator.study.reports.of_directory import page_of
from simulator.study.reports.page import html_of
from study.capacity.servers import SERVER, STUDY, asked, written
from study.reports.made import sweep
from study.reports.test_search_reports import EXPERIMENT, TUNE

RATE, SEQS, ROUTER = "workload.arrival.rate_per_s", "engine.max_num_seqs", "cluster.routing.policy"
ROUTERS = ("round_robin", "least_loaded", "cache_aware", "a_policy_of_my_own_with_a_long_name:ItsClass")


def leaves(rate, seqs, more):
    found = {f"{name}.{part}": 40.0 * rate * rate / seqs + more for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms",
                                                                            "queue_ms")
             for part in ("mean", "p50", "p99")}
    return found | {"request_throughput": rate, "output_throughput": 1000 * rate, "in_system.mean": rate * rate,
                    "request_goodput": 10.0 / rate, "requests.rejected": rate,
                    "backlog": "growing" if rate > 30 * seqs else "stable"}


@pytest.fixture(scope="module", params=["sweep", "against", "capacity", "tune"])
def written_page(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("study")
    if request.param == "capacity":
        asked(written(tmp_path, SERVER + STUDY), tmp_path / "a")
        return html_of(page_of(tmp_path / "a"))
    if request.param == "tune":
        (tmp_path / "tune.toml").write_text(EXPERIMENT + TUNE)
        cli.main(["tune", str(tmp_path / "tune.toml"), "--out", str(tmp_path / "a"), "--jobs", "1", "--quiet"])
        return html_of(page_of(tmp_path / "a"))
    points = [({RATE: rate, SEQS: seqs, ROUTER: router}, (leaves(rate, seqs, place), leaves(rate, seqs, 2.0 * place)))
              for rate in (1.0, 10.0, 100.0, 1000.0) for seqs in (1, 256) for place, router in enumerate(ROUTERS)]
    metrics = ("ttft_ms.p99", "request_throughput")
    folders = [sweep(tmp_path / name, points, metrics=metrics, name=name, slo={"ttft_ms": 400.0})
               for name in ("a", "another_study_with_a_rather_long_name")]
    return html_of(page_of(*(folders if request.param == "against" else folders[:1])))


@pytest.mark.ci
@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("preference", "paper"), [(1, "rgb(255, 255, 254)"), (0, "rgb(21, 24, 28)")])
@pytest.mark.parametrize("width", [1200, 500])      # 500: the narrowest window of Chromium
def test_both_themes_fit_their_window_and_no_text_covers_another(written_page, tmp_path, preference, paper, width):
    pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")

    assert shown(written_page, tmp_path, preference, width) == [paper, 0, True, True, []]
