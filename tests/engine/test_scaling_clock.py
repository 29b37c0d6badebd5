"""Readiness probes, scrapes and scaling to zero, on timelines worked out by hand: iterations of 5 ms."""
import pytest

from engine.test_scaling import STEADY, scripted, serve, settings
from simulator.domain import records
from simulator.domain.autoscaling import Delay, Metrics, Rate, Rates, Weights, Zero
from simulator.domain.failures import Failure, Health
from simulator.engine.plan import GatewayPlan
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scaling.base import Autoscaler

MS = 10**6


@pytest.mark.parametrize(("loading_ms", "up_ms"), [(0, 31), (1, 41), (9, 41), (10, 41), (11, 51)])
def test_a_replica_serves_from_a_probe_on(loading_ms, up_ms):
    # Decided at 10, machine at 21; 10 ms of warm-up. Probes at 31, 41, 51 ms.
    scaling = settings(provisioning_delay=Delay(mean_s=0.011), loading_delay=Delay(mean_s=loading_ms / 1e3),
                       warm_up_delay=Delay(mean_s=0.01), ready_probe_s=0.01)
    outcome = serve(STEADY, scripted(1), scaling)
    assert outcome.changes(1)[-1] == (up_ms, "up", "scaling")


def seen_by(scaling, requests=STEADY, **setup):
    """Return all observations of a policy that changes nothing."""
    seen = []
    serve(requests, scripted(seen=seen), scaling, **setup)
    return seen


def test_decisions_see_the_last_scrape():
    # One request, of 0 ms, runs 6 iterations to 30 ms. Scrapes at 8, 16, 24, 32 ms; decisions at 10, 20, 30, 40.
    metrics = Metrics(scrape_interval_s=0.008, offset="none")
    seen = seen_by(settings(metrics=metrics), [(0, 6), (60, 1)])
    assert [int(view.states()["running"][0]) for view in seen[:4]] == [1, 1, 1, 0]
    assert [int(view.accounts()["in_flight"][0]) for view in seen[:4]] == [1, 1, 1, 0]
    # A scrape at the instant of a decision comes first.
    at_once = seen_by(settings(metrics=Metrics(scrape_interval_s=0.01, offset="none")), [(9, 6), (60, 1)])
    assert [int(view.accounts()["in_flight"][0]) for view in at_once[:3]] == [1, 1, 1]
    late = seen_by(settings(metrics=Metrics(scrape_interval_s=0.015, offset="none")), [(0, 6), (60, 1)])
    assert [(int(view.states()["running"][0]), bool(view.known()[0])) for view in late[:3]] == [
        (0, False), (1, True), (1, True)]


def test_requests_that_left_are_seen_after_a_scrape():
    seen = []
    serve([(0, 1), (12, 1), (60, 1)], scripted(seen=seen, wants=True), settings(metrics=Metrics(
        scrape_interval_s=0.016, offset="none")))
    assert [len(view.finished) for view in seen[:4]] == [0, 1, 0, 1]        # of 5 ms, by 16; of 17 ms, by 32


def test_a_replica_that_does_not_answer_is_not_scraped():
    # Scrapes at 8, 16, ... ms; stopped at 20, marked at 1 s. The report of 16 is 24 ms old at 40 ms.
    metrics = Metrics(scrape_interval_s=0.008, offset="none", staleness_s=0.02)
    seen = seen_by(settings(metrics=metrics), replicas=2, failures=[
        Failure(kind="stop", which=1, at_s=0.02, duration_s=0.5)], health=Health(detection_delay_s=1.0))
    assert [view.known().tolist() for view in seen[:4]] == [[True, True]] * 3 + [[True, False]]


def test_times_to_first_token_of_the_window():
    class OfFirstTokens(Autoscaler):
        wants_ttft = True

        def decide(self, observation):
            found.append((observation.ttft_ns / MS).tolist())
            return {}
    found = []
    # 5 ms each; the request of 7 ms waits for the iteration that ends at 10: 8 ms.
    serve([(0, 2), (7, 1), (60, 1)], OfFirstTokens)
    assert found[:2] == [[5.0], [8.0]]
    found = []
    serve([(0, 2), (7, 1), (60, 1)], OfFirstTokens, settings(metrics=Metrics(
        scrape_interval_s=0.01, offset="none", window_s=0.02)))
    assert found[:3] == [[5.0], [5.0, 8.0], [8.0]]


def test_samples_are_of_replicas_and_gateway():
    class OfSamples(Autoscaler):
        keeps_s = 0.025

        def decide(self, observation):
            found.append([(each.time_ns // MS, each.requests) for each in observation.samples])
            return {}
    found = []
    serve([(0, 5), (60, 1)], OfSamples)
    assert found[:4] == [[(10, 1.0)], [(10, 1.0), (20, 1.0)], [(10, 1.0), (20, 1.0), (30, 0.0)],
                         [(20, 1.0), (30, 0.0), (40, 0.0)]]


def test_rates_hold_in_a_run():
    scaling = settings(rates=Rates(up=(Rate(replicas=1, period_s=0.025),)))
    outcome = serve(STEADY, scripted(2, 2, 2, 2), scaling)
    assert [outcome.changes(replica)[0][0] for replica in (1, 2)] == [10, 40]       # not at 20 and 30


def test_idle_replicas_are_removed_and_the_first_is_started_for_a_request():
    # Polls each 20 ms. Active at 20 for the last time; the cooldown of 30 ms is over at 60. The request of 130 waits
    # until 140; 12 ms to load.
    scaling = settings(zero=Zero(poll_s=0.02, cooldown_s=0.03), loading_delay=Delay(mean_s=0.012))
    outcome = serve([(0, 5), (130, 1), (160, 3)], scripted(), scaling, replicas=2, front=GatewayPlan(
        RoundRobin, RoundRobinParameters(), retry_ns=MS, patience_ns=10**9))
    assert [change[:2] for change in outcome.changes(0)][:4] == [
        (60, "draining"), (60, "off"), (140, "loading"), (152, "up")]
    assert [change[:2] for change in outcome.changes(1)] == [(60, "draining"), (60, "off")]
    assert (outcome.requests["status"] == records.COMPLETED).all()
    assert outcome.requests["first_token_ns"][1] >= 157 * MS


def test_without_a_place_to_wait_the_first_requests_are_refused():
    scaling = settings(zero=Zero(poll_s=0.02, cooldown_s=0.03), loading_delay=Delay(mean_s=0.012))
    outcome = serve([(0, 5), (130, 1), (160, 3)], scripted(), scaling)
    assert outcome.requests["status"].tolist() == [records.COMPLETED, records.REJECTED, records.COMPLETED]
    assert records.CAUSE_NAMES[outcome.journeys["cause"][1]] == "no_replica"


def test_the_policy_leaves_one_replica_and_rests_at_zero():
    seen = []
    scaling = settings(zero=Zero(poll_s=0.02, cooldown_s=0.1), min_replicas=0)
    outcome = serve([(0, 5), (190, 1)], scripted(-2, seen=seen), scaling, replicas=2)
    assert [outcome.changes(replica)[0][:2] for replica in (1, 0)] == [(10, "draining"), (120, "draining")]
    times = [view.now_ns // MS for view in seen]
    assert 110 in times and not any(120 < time_ms < 190 for time_ms in times)


def test_simplifications_are_named():
    outcome = serve([(0, 5)], scripted(), settings(metrics=Metrics()))
    assert outcome.diagnosis == [
        "autoscaling.metrics: all replicas are scraped at one instant, and a scrape takes no time"]
    assert serve([(0, 5)], scripted()).diagnosis == []
    read = serve([(0, 5)], scripted(), settings(weights=Weights(gb_per_s=1.0)), weight_bytes=(1e9,))
    assert [note.partition(":")[0] for note in read.diagnosis] == ["autoscaling.weights"]


def test_images_and_weights_are_read_faster_again():
    # Image 10 ms and weights 12 MB at 1 GB/s; the second time no image, and 4 GB/s.
    scaling = settings(image_pull_delay=Delay(mean_s=0.01), weights=Weights(gb_per_s=1.0, warm_gb_per_s=4.0))
    outcome = serve(STEADY, scripted(1, 0, 0, -1, 0, 1), scaling, weight_bytes=(12e6,))
    changes = [change[:2] for change in outcome.changes(1)]
    assert changes[:3] == [(10, "provisioning"), (20, "loading"), (32, "up")]
    assert changes[-2:] == [(60, "loading"), (63, "up")]


def test_replicas_of_time_0_have_left_image_and_weights():
    scaling = settings(image_pull_delay=Delay(mean_s=0.01), weights=Weights(gb_per_s=1.0, warm_gb_per_s=4.0))
    outcome = serve(STEADY, scripted(-1, 0, 1), scaling, replicas=2, weight_bytes=(12e6,))
    assert [change[:2] for change in outcome.changes(1)][-2:] == [(30, "loading"), (33, "up")]
