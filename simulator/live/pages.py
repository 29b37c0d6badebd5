"""The page /metrics of each engine, and the counts behind it."""
from simulator.domain.serving import FAST, Serve
from simulator.live import metrics, sglang_metrics
from simulator.live.service import Service

PAGES = {"vllm": metrics.page, "sglang": sglang_metrics.page}
HISTOGRAMS = {"vllm": metrics.HISTOGRAMS, "sglang": sglang_metrics.OBSERVED}


def tally_of(service: Service, serve: Serve) -> metrics.Tally:
    """Return the counts of news that the page of an engine shows."""
    clock = service.clock

    def speed() -> float:
        return 1.0 if serve.metrics_clock == "simulated" or clock.speed == FAST else clock.speed

    return metrics.Tally(service.fleet, HISTOGRAMS[serve.like], speed)
