"""The duration of one iteration under the latency model of an experiment, operator by operator."""
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.assembly.kernel_notes import kernel_notes
from simulator.assembly.latency import latency_model, operator_errors
from simulator.assembly.operator_bounds import Bound, bounds_of, sources_of
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment, Pool
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, KeyFault, did_you_mean, faults_of

PROMPTS_ALONE = ("sglang",)     # schedulers that count the tokens of prompts alone against the limit of a batch


@dataclass(frozen=True)
class Prediction:
    """The duration of one iteration.

    seconds : on the accelerator, unrounded.
    iteration_seconds : as the engine sees it: with [latency.host], rounded to nanoseconds or [latency] resolution_us.
    breakdown : seconds of each operator, with the sum `seconds`; empty where the backend has no breakdown.
    errors : error of each operator, root mean square of ln(predicted / measured), with [latency] uncertainty;
        None: not known.
    bounds : the least time of each operator, by FLOPs over the peak or bytes over the bandwidth; empty without [model].
    sources : of the price of each operator, as far as the backend knows it.
    warnings : warnings about the prices, a sentence each, as in the `diagnosis` of a run.
    """

    seconds: float
    iteration_seconds: float
    breakdown: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    bounds: dict[str, Bound] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def error_frac(self) -> float:
        """The error of `seconds`, if the errors of operators are independent.

        Operators of unknown error are left out.
        """
        terms = [seconds * (self.errors.get(name) or 0.0) for name, seconds in self.breakdown.items()]
        return math.sqrt(sum(term * term for term in terms)) / self.seconds if self.seconds else 0.0


def predict(experiment: str | os.PathLike | Experiment, prefill: Iterable[int | tuple[int, int]] = (),
            decode: Iterable[int] = (), *, pool: str | None = None,
            overrides: Mapping[str, Any] | Iterable[str] | str | None = None) -> Prediction:
    """Predict the duration of the iteration of one batch.

    Parameters
    ----------
    experiment : a TOML file, or the result of `simulator.config.load.load_experiment`; no workload is read.
    prefill : prompt chunks: tokens computed, or (tokens computed, tokens of that prompt in the KV cache before).
    decode : for each decoding sequence its context: tokens in the KV cache after the iteration.
    pool : name of the pool; needed where there are several.
    overrides : as in `simulator.run`.

    Raises
    ------
    InputErrors
        Faults of the experiment.
    ValueError
        There is no sequence, or one that no engine could schedule.
    """
    file = getattr(experiment, "name", experiment)
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides)
    elif overrides:
        raise ValueError("overrides apply to a file; this experiment is already resolved")
    chunks = [(each, 0) if hasattr(each, "__index__") else tuple(each) for each in prefill]
    with faults_of(file):
        return predict_batch(one_pool(experiment, pool), chunks, list(decode))


def one_pool(experiment: Experiment, name: str | None) -> Pool:
    """Return a pool of an experiment; None: the only one.

    Raises
    ------
    InputErrors
        No pool has this name, or none is named where there are several.
    """
    pools = {pool.name: pool for pool in experiment.all_pools()}
    if name is None and len(pools) == 1:
        return next(iter(pools.values()))
    known = " or ".join(f'"{each}"' for each in pools)
    if name is None:
        raise InputErrors([KeyFault(f"pools: {len(pools)} pools, each with its own iterations: expected one of them, "
                                    f"--pool NAME, with the name {known}")])
    if name not in pools:
        raise InputErrors([KeyFault(f'pools: there is no pool "{name}"{did_you_mean(name, pools)}; expected {known}')])
    return pools[name]


def predict_batch(experiment: Pool, chunks: list[tuple[int, int]], contexts: list[int]) -> Prediction:
    """Predict as `predict` does, for a pool; faults do not name the file."""
    site = Site(experiment).check()
    model, speculative = latency_model(site), site.scheduler_facts.speculative
    batch = (chunks, contexts, 1 + (speculative.num_tokens if speculative else 0))      # drafts are verified
    breakdown = model.breakdown(*batch) if hasattr(model, "breakdown") else {}
    errors = {}
    if experiment.latency.uncertainty:
        errors = {name: error.error_frac for name, error in operator_errors(site).items()}
    seconds, iteration_ns = model.predict(*batch), model.predict_iteration_ns(*batch)
    notes = (*impossible(site, *batch), *model.warnings(), *kernel_notes(site))
    return Prediction(seconds, iteration_ns / 1e9, breakdown, errors, notes, bounds_of(site, batch), sources_of(site))


def impossible(site: Site, chunks: list[tuple[int, int]], contexts: list[int], slots: int = 1) -> list[str]:
    """Say why the engine never has such a batch, one sentence for each limit.

    Parameters
    ----------
    slots : tokens that a decoding sequence takes of the batch.
    """
    engine, facts, found = site.pool.engine, site.scheduler_facts, []
    lengths, prompts = [tokens + before for tokens, before in chunks] + contexts, sum(tokens for tokens, _ in chunks)
    tokens = prompts if engine.scheduler in PROMPTS_ALONE else prompts + slots * len(contexts)
    blocks = sum(-(-length // site.block_tokens) for length in lengths)
    num_blocks = site.num_gpu_blocks - facts.blocks_held_back
    if max(lengths) > site.max_model_len:
        found.append(f"a sequence has {max(lengths):,} tokens, max_model_len is {site.max_model_len:,}")
    if facts.max_running is not None and len(lengths) > facts.max_running:
        found.append(f"there are {len(lengths):,} sequences, {facts.max_running:,} run at once at most")
    if facts.max_batched_tokens and tokens > facts.max_batched_tokens:
        found.append(f"there are {tokens:,} tokens to compute, an iteration takes {facts.max_batched_tokens:,} at most")
    if site.layer_groups is None and blocks > num_blocks:
        found.append(f"it takes {blocks:,} KV blocks if no prefix is shared, there are {num_blocks:,}")
    return [f"{engine.scheduler} never forms this batch: {each}" for each in found]
