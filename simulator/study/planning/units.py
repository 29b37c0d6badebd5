"""Units: layouts of one replica that fit, each with a prediction of the rate that it holds.

The prediction chooses which deployments are simulated, and where a search begins; no answer contains it. A batch of b
sequences makes a token of each in t(b), and each request also takes p, the time of its prompt: a replica that does both
serves 1 / (p + n t(b) / b) requests of n tokens a second, at b / (n rate) a token. The largest b that keeps the bound
of the time per token counts. A prefill replica serves 1 / p, a decode replica b / (n t(b)).
"""
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.domain.facts import load_accelerator, reach_of
from simulator.errors import InputErrors
from simulator.study.capacity.fit import Asked, Fit, fits
from simulator.study.planning.question import Question

SERVER = 8                      # accelerators; tensor-parallel groups of more take a scale-up fabric
WIDER = 8                       # times the smallest unit that fits: units larger than that are not tried
MOST_PROMPTS = 64               # of a batch
MOST_SEQUENCES = 256            # of a batch, where the scheduler sets no limit
LARGER = (16, 32, 64, 128, 256, 512)    # GPUs that are asked about a model that fits nowhere


class Unit(NamedTuple):
    """One replica's layout that fits.

    rates : predicted requests a second, by role: both, prefill, decode; 0: a bound is missed at any rate.
    """

    fit: Fit
    rates: dict[str, float]

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.fit.gpus

    @property
    def words(self) -> str:
        """The layout in short: TP4 PP2."""
        return words_of(self.fit.ways)


def words_of(ways: dict[str, int]) -> str:
    """Return degrees of parallelism above 1, and tensor parallelism: TP4 PP2."""
    short = {"tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "EP"}
    return " ".join(f"{short[name]}{degree}" for name, degree in ways.items()
                    if degree > 1 or name == "tensor_parallel")


def all_fits(asked: Asked, question: Question, allowed: tuple[int, ...] | None) -> list[Fit]:
    """Return the layouts of one replica, up to `WIDER` times the smallest that fits.

    allowed : tensor-parallel sizes; None: all.
    """
    widest = max(SERVER, reach_of(load_accelerator(question.card)))
    found, least = [], None
    for gpus in _sizes(question.gpus):
        if least is not None and gpus > max(SERVER, WIDER * least):
            break
        own = [each for each in fits(asked, (gpus,)) if each.ways["tensor_parallel"] <= widest
               and (allowed is None or each.ways["tensor_parallel"] in allowed)]
        found += own
        if least is None and any(each.refusal is None for each in own):
            least = gpus
    return found


def units_of(question: Question, found: list[Fit]) -> list[Unit]:
    """Return the layouts that fit, with predicted rates."""
    return [Unit(each, _rates(question, each)) for each in found if each.refusal is None]


def least_that_fits(asked: Asked, question: Question) -> Fit | None:
    """Return a layout on more GPUs than there are; None: none fits there either."""
    for gpus in (each for each in LARGER if each > question.gpus):
        for each in fits(asked, (gpus,)):
            if each.refusal is None:
                return each
    return None


def _sizes(gpus: int) -> list[int]:
    powers = [1 << power for power in range(gpus.bit_length())]
    return sorted({*powers, *(each for each in range(1, 2 * SERVER + 1) if gpus % each == 0)})


def _rates(question: Question, fit: Fit) -> dict[str, float]:
    site = fit.site
    model, requests = latency_model(site), question.requests
    try:
        alone_s = sum(model.predict([chunk], [], 1) for chunk in _chunks(site, requests.prompt))
        prompt_s = min(alone_s, _together_s(site, model, requests.prompt))
        batches = [(size, model.predict([], [requests.prompt + max(requests.output // 2, 1)] * size, 1))
                   for size in _batches(site, question)]
    except (ValueError, InputErrors):
        return {"both": 1.0, "prefill": 1.0, "decode": 1.0}         # a backend without such batches
    if alone_s > _limit_s(question, "ttft_ms"):
        return {"both": 0.0, "prefill": 0.0, "decode": 0.0}
    streams = fit.ways["pipeline_parallel"] * fit.ways["data_parallel"]     # batches in flight
    tokens, most_s = requests.output - 1, _limit_s(question, "tpot_ms")
    if not tokens:
        return {"both": streams / prompt_s, "prefill": streams / prompt_s, "decode": 0.0}
    ranks = fit.ways["data_parallel"]           # a prompt of one holds up all: they step together
    both = [(1 / (prompt_s + tokens * time_s / size / ranks), size * ranks) for size, time_s in batches]
    best = max([rate for rate, size in both if size / (tokens * rate) <= most_s], default=0.0)
    return {"both": streams / ranks * best,
            "prefill": streams / prompt_s,
            "decode": streams * max([size / (tokens * time_s) for size, time_s in batches if time_s <= most_s],
                                    default=0.0)}


def _together_s(site: Site, model: Any, prompt: int) -> float:
    """Return the seconds of a prompt in a batch of prompts; inf: none fits whole."""
    count = min((site.scheduler_facts.max_batched_tokens or prompt) // prompt, MOST_PROMPTS)
    return model.predict([(prompt, 0)] * count, [], 1) / count if count else math.inf


def _chunks(site: Site, prompt: int) -> Iterator[tuple[int, int]]:
    """Yield the chunks of a prompt: tokens, and tokens before."""
    most = site.scheduler_facts.max_batched_tokens or prompt
    for begin in range(0, prompt, most):
        yield min(most, prompt - begin), begin


def _batches(site: Site, question: Question) -> list[int]:
    """Return the sizes of batches that are looked at, about 20 % apart."""
    held = site.num_gpu_blocks * site.block_tokens // question.requests.length
    running = min(site.scheduler_facts.max_running or MOST_SEQUENCES, held)
    most = max(running // site.pool.topology.pipeline_parallel, 1)      # the batches of a pipeline share them
    sizes = {min(most, math.ceil(1.2**power)) for power in range(math.ceil(math.log(most, 1.2)) + 1)}
    return sorted(sizes)


def _limit_s(question: Question, name: str) -> float:
    """Return the least bound of a latency, in seconds; inf: none."""
    return min((each.limit / 1000 for each in question.bounds.bounds
                if each.is_most and each.key.startswith(f"{name}.")), default=math.inf)
