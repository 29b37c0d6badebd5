"""One-sided risk of the predictions of a study: [study.statistics] model_confidence.

With a model confidence of 90 % a study simulates slower servers: iterations take as much longer than predicted as in
nine tenths of the points of deployments left out; the time to the first token, which has errors of its own, is
multiplied by the remaining factor after the run. So queues, throughput and the largest rate are those of the slower
server, and a bound that a run keeps is kept with that confidence. `latency.uncertainty.left_out` has the errors.
"""
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.config.experiment import Experiment, Slo
from simulator.config.load import changed
from simulator.latency.uncertainty.left_out import LEFT_OUT, TPOT, TTFT, Errors

KEY = "study.statistics.model_confidence"
TIME_FACTOR = "latency.time_factor"
BACKEND = "latency.backend"
SERVED = ("vllm", "sglang", "tensorrt_llm")     # engines of the deployments
PREFIX = f"{TTFT}."


class Risk(NamedTuple):
    """The risk that a study takes.

    confidence : share of the predictions that the slower server covers, 0.5 .. 1. backend : of the predictions.
    time_factor : on iterations. first_token_factor : on TTFT, in place of `time_factor`.
    """

    confidence: float
    backend: str
    time_factor: float
    first_token_factor: float

    @property
    def errors(self) -> dict[str, Errors]:
        """The errors of the backend, by metric."""
        return LEFT_OUT[self.backend]

    @property
    def sentence(self) -> str:
        """The risk in words, for the diagnosis of each run."""
        most = max(len(each.deployments) for each in self.errors.values())
        text = (f"{self._share} of confidence over the model: iterations take {self.time_factor:.3g} times as long as "
                f"`{self.backend}` predicts and TTFT {self.first_token_factor:.3g} times, as in {self._share} of the "
                f"points of {len(self.errors[TPOT].deployments)} deployments left out (TPOT) and "
                f"{len(self.errors[TTFT].deployments)} (TTFT); each bound by itself, percentiles as means")
        if self.confidence > most / (most + 1):
            text += f"; {most} deployments show no more than {most / (most + 1):.0%}: beyond, one of them decides"
        return text

    @property
    def remaining_factor(self) -> float:
        """The factor on the TTFT of a slower server."""
        return self.first_token_factor / self.time_factor

    @property
    def _share(self) -> str:
        return f"{100 * self.confidence:.10g} %"

    def content(self) -> dict[str, Any]:
        """Return the risk as the JSON of studies has it."""
        return {"confidence": self.confidence, "backend": self.backend, "time_factor": self.time_factor,
                "first_token_factor": self.first_token_factor,
                "deployments": {metric: list(each.deployments) for metric, each in self.errors.items()}}

    def slowed(self, experiment: Experiment) -> Experiment:
        """Return the experiment of a slower server.

        Bounds of [slo] on TTFT are as much stricter as the run lacks of its factor: good requests count accordingly.
        """
        def slower(owner):
            return replace(owner, latency=replace(owner.latency, time_factor=self.time_factor))

        return changed(experiment, latency=slower(experiment).latency, pools=tuple(map(slower, experiment.pools)),
                       slo=self._stricter(experiment.slo))

    def _stricter(self, slo: Slo) -> Slo:
        def stricter(owner):
            return owner if owner.ttft_ms is None else replace(owner, ttft_ms=owner.ttft_ms / self.remaining_factor)

        return stricter(replace(slo, classes=tuple(map(stricter, slo.classes))))

    def applied(self, numbers: dict[str, float | None]) -> dict[str, float | None]:
        """Return numbers of a slower server, TTFT times its remaining factor.

        numbers : by dotted names.
        """
        return {key: value * self.remaining_factor if value is not None and key.startswith(PREFIX) else value
                for key, value in numbers.items()}


def risk_of(confidence: float, experiment: Experiment) -> Risk:
    """Return the risk at a confidence; `faults_of` finds none for the experiment.

    TTFT is not shorter than its iterations: its factor is at least theirs.
    """
    backend = experiment.all_pools()[0].latency.backend
    own = LEFT_OUT[backend]
    time_factor = own[TPOT].factor(confidence)
    return Risk(confidence, backend, time_factor, max(own[TTFT].factor(confidence), time_factor))


def faults_of(experiment: Experiment, keys: Iterable[str]) -> Iterator[str]:
    """Yield why no confidence over the model is known for an experiment.

    keys : that points of the study assign.
    """
    pools = experiment.all_pools()
    backends, engines = (list(dict.fromkeys(found)) for found in (
        [pool.latency.backend for pool in pools], [pool.engine.scheduler for pool in pools]))
    known = " or ".join(f'"{each}"' for each in LEFT_OUT)
    if len(backends) > 1 or any(key.endswith(BACKEND) for key in keys):
        yield f"{KEY}: expected one latency.backend in all pools and points: each has errors of its own"
    elif backends[0] not in LEFT_OUT:
        yield (f'{KEY}: no errors of `{backends[0]}` on deployments left out are known; expected latency.backend = '
               f"{known}, or no confidence over the model")
    if strange := [each for each in engines if each not in SERVED]:
        yield (f'{KEY}: no deployment of engine.scheduler = "{strange[0]}" was left out; expected one of '
               f"{', '.join(SERVED)}")
    if any(pool.latency.time_factor is not None for pool in pools) or any(key.endswith(TIME_FACTOR) for key in keys):
        yield f"{KEY}: expected no {TIME_FACTOR} beside it, which it sets"
