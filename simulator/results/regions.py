"""Regions in summary.json: requests that are served at home and away, and the latencies that their clients see."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.summary_keys import DISTRIBUTION, below, keys_of

SUMMARY_KEYS = below("regions.NAME", {
    **keys_of("requests", requests="that come from here", served="sent to replicas of this region, from all regions",
              away="that come from here and are sent to another region",
              guests="that come from another region and are sent here"),
    **keys_of("ms", ttft_ms=DISTRIBUTION + "arrival to first token at the client, of completed requests that come from "
              "here",
              e2el_ms=DISTRIBUTION + "arrival to last token at the client, of completed requests that come from here",
              network_ms="time on the way between regions and back, mean of the requests that come from here; 0 at "
              "home")})


def metrics_of(run: Run, names: tuple[str, ...], latency_ns: np.ndarray) -> dict[str, dict]:
    """Return the part of the summary about regions, of measured requests.

    The part has the keys of SUMMARY_KEYS.

    latency_ns : int64 (regions, regions), one way.
    """
    requests, homes, regions = run.workload.requests, run.columns["home_region"], run.columns["region"]
    chosen = records.has_come(requests["status"])
    if run.workload.measured is not None:
        chosen &= run.workload.measured
    network_ns, found = latency_ns[homes, regions] + latency_ns[regions, homes], {}
    for i, name in enumerate(names):
        here, away = chosen & (homes == i), homes != regions
        done = here & (requests["status"] == records.COMPLETED)
        begun = done & (requests["first_token_ns"] >= 0)
        found[name] = {
            "requests": int(here.sum()), "served": int((chosen & (regions == i)).sum()),
            "away": int((here & away).sum()), "guests": int((chosen & (regions == i) & away).sum()),
            "ttft_ms": distribution((requests["first_token_ns"] - requests["arrival_ns"])[begun] / 1e6),
            "e2el_ms": distribution((requests["completed_ns"] - requests["arrival_ns"])[done] / 1e6),
            "network_ms": float(network_ns[here].mean() / 1e6) if here.any() else 0.0}
    return found


def notes_of(found: dict[str, dict]) -> list[str]:
    """Return a note on the requests of each region that are served away from home."""
    return [f"[cluster.regions] {each['away']:,} of the {each['requests']:,} requests from {name} are served away from "
            f"home ({each['away'] / each['requests']:.1%}); their way takes {each['network_ms']:,.1f} ms in the mean "
            "of all requests from there" for name, each in found.items() if each["away"]]


def notes_of_hopeless(run: Run, latency_ns: np.ndarray) -> list[str]:
    """Return a note on forwarded requests that could not be answered in time."""
    requests, homes, regions = run.workload.requests, run.columns["home_region"], run.columns["region"]
    sent_ns = run.columns.get("client_sent_ns", requests["arrival_ns"])
    way_ns = latency_ns[homes, regions] + latency_ns[regions, homes]
    is_hopeless = (homes != regions) & (requests["status"] == records.TIMED_OUT) & (
        way_ns >= run.workload.demands["deadline_ns"] - sent_ns)
    count = int(is_hopeless.sum())
    return [f"[cluster.regions] the choice of a region heeds no deadlines: clients of {count:,} forwarded requests "
            "gave up within the time of the way there and back; more replicas in another region can attract more of "
            "such requests, and complete fewer"] if count else []
