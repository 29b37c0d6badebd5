"""Measured iterations as batches, and the time that a latency model gives them.

A log has sums over the sequences of an iteration. Its batch divides them evenly: equal chunks of prompts, equal
contexts of decodes. Prompts had no tokens in KV before, unless the log has their number, or nothing decodes. A
log without tokens in KV, but with the used share of the KV cache, has that share of the experiment's blocks.
"""
from typing import NamedTuple

import numpy as np

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.errors import InputErrors
from simulator.study.calibration.blocks import blocks_of
from simulator.study.calibration.data import US_PER_S, Steps

US = 1e6


class Priced(NamedTuple):
    """Iterations with the times of a latency model, the prior.

    duration_us, prior_us : float64 (n,). counts : float64 (n, 3), of step_table.AXES. blocks : int64 (n,), of 10 s.
    is_held : bool (n,). notes : a sentence each.
    """

    path: str
    duration_us: np.ndarray
    prior_us: np.ndarray
    counts: np.ndarray
    blocks: np.ndarray
    is_held: np.ndarray
    notes: tuple[str, ...]

    def rows(self, chosen: np.ndarray) -> "Priced":
        """Return some of the iterations."""
        return self._replace(**{name: getattr(self, name)[chosen] for name in (
            "duration_us", "prior_us", "counts", "blocks", "is_held")})


def priced(steps: Steps, experiment) -> Priced:
    """Return iterations with the times of an experiment's latency model.

    Raises
    ------
    InputErrors
        The experiment has several pools; tokens in KV or other counts were not measured.
    """
    pools = experiment.all_pools()
    if len(pools) != 1:
        raise InputErrors([f"{steps.path}: {len(pools)} pools: iterations are those of one server; expected an "
                           "experiment without [[pools]]"])
    site, columns, notes = Site(pools[0]), steps.columns, []
    model = latency_model(site)
    prefill, sequences = _known(steps, "prefill_tokens"), _known(steps, "num_sequences")
    prefills = _prefills(columns, prefill, sequences)
    kv = _kv_tokens(steps, site, notes)
    cached = np.nan_to_num(columns["prefill_context_tokens"], nan=-1.0)
    slots = np.maximum(np.round(_divided(np.nan_to_num(columns["decode_tokens"]), sequences - prefills)), 1.0)
    rows = np.column_stack([prefills, prefill, sequences - prefills, kv, cached, slots]).astype(np.int64)
    unique, place = np.unique(rows, axis=0, return_inverse=True)
    times = np.array([_prior_us(model, *row) for row in unique.tolist()])
    starts = np.where(np.isfinite(columns["start_s"]), columns["start_s"],
                      np.cumsum(steps.duration_us) / US_PER_S)
    return Priced(steps.path, steps.duration_us, times[place.ravel()], np.column_stack([prefill, sequences, kv]),
                  blocks_of(starts), steps.is_held, tuple(notes))


def batch_of(prefills: int, prefill_tokens: int, decodes: int, kv_tokens: int,
             cached_tokens: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return chunks (tokens, context) and contexts of decodes, divided evenly.

    cached_tokens : in KV before the chunks; -1: not known.
    """
    before = max(kv_tokens - prefill_tokens, 0)
    if cached_tokens < 0:
        cached_tokens = 0 if decodes else before
    chunks = list(zip(_even(prefill_tokens, prefills), _even(cached_tokens, prefills), strict=True))
    return chunks, [max(each, 1) for each in _even(max(before - cached_tokens, 0), decodes)]


def _prior_us(model, prefills: int, prefill_tokens: int, decodes: int, kv_tokens: int, cached_tokens: int,
              slots: int) -> float:
    return US * model.predict(*batch_of(prefills, prefill_tokens, decodes, kv_tokens, cached_tokens), slots)


def _even(total: int, count: int) -> list[int]:
    share, rest = divmod(total, count) if count else (0, 0)
    return [share + (i < rest) for i in range(count)]


def _known(steps: Steps, name: str) -> np.ndarray:
    values = steps.columns[name]
    if np.isnan(values).any():
        raise InputErrors([f"{steps.path}: {name}: not measured of {int(np.isnan(values).sum())} of {steps.num_steps} "
                           "iterations"])
    return values


def _prefills(columns, prefill: np.ndarray, sequences: np.ndarray) -> np.ndarray:
    """Return the number of sequences that compute prompts; where it was not measured, those that decode no token."""
    derived = np.clip(sequences - np.nan_to_num(columns["decode_tokens"]), prefill > 0, sequences)
    found = np.where(np.isnan(columns["num_prefills"]), derived, columns["num_prefills"])
    return np.where(prefill > 0, np.clip(found, 1.0, np.minimum(sequences, prefill)), 0.0)


def _kv_tokens(steps: Steps, site: Site, notes: list[str]) -> np.ndarray:
    columns = steps.columns
    kv, usage = columns["context_tokens"].copy(), columns["kv_cache_usage"]
    is_lacking = np.isnan(kv)
    if is_lacking.any():
        if np.isnan(usage[is_lacking]).any():
            raise InputErrors([f"{steps.path}: context_tokens: not measured, nor the used share of the KV cache: "
                               "tokens in KV are a part of every time"])
        capacity = site.num_gpu_blocks * site.block_tokens
        kv[is_lacking] = usage[is_lacking] * capacity
        notes.append(f"{steps.path}: tokens in KV are the used share of {capacity:,} tokens, the KV cache of the "
                     "experiment: rounded up to blocks, and to the digits of the log.")
    least = columns["prefill_tokens"] + np.nan_to_num(columns["decode_tokens"])
    return np.maximum(np.round(kv), least)


def _divided(tokens: np.ndarray, decodes: np.ndarray) -> np.ndarray:
    return np.divide(tokens, decodes, out=np.ones(len(tokens)), where=decodes > 0)
