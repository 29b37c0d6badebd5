"""`mix`: the cheapest numbers of replicas of several kinds for the requests of the last minutes, AIBrix's optimizer.

Source: vllm-project/aibrix@e3e10f9e, python/aibrix/aibrix/gpu_optimizer, its rules restated; T. Griggs et al.,
"Melange: Cost Efficient Large Language Model Serving by Exploiting GPU Heterogeneity", arXiv 2404.14527.
"""
import collections
import importlib.util
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.scaling.base import Autoscaler

NEVER_LOAD = 1e6            # replicas that a slice needs where a kind cannot serve it

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
RequestsPerS = Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "1/s"})]
Rows = Annotated[tuple[Annotated[tuple[RequestsPerS, ...], Meta(min_length=1)], ...], Meta(min_length=1)]


class MixProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that one replica of a pool sustains within the objectives."""

    pool: Annotated[str, Meta(min_length=1, description="name of the pool")]
    requests_per_s: Annotated[Rows, Meta(description=(
        "requests per second of each cell: rows by input_tokens, columns by output_tokens; 0: the pool cannot serve "
        "them"))]


class MixParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Profiles of the pools, and the window of the demand."""

    input_tokens: Annotated[Annotated[tuple[Tokens, ...], Meta(min_length=1)], Meta(description=(
        "lengths of prompts of the cells, ascending; a request belongs to the nearest one, by its logarithm"))]
    output_tokens: Annotated[Annotated[tuple[Tokens, ...], Meta(min_length=1)], Meta(description=(
        "lengths of answers of the cells, ascending"))]
    profiles: Annotated[Annotated[tuple[MixProfile, ...], Meta(min_length=1)], Meta(description=(
        "one of each pool"))]
    slice_factor: Annotated[Annotated[int, Meta(ge=1, le=1024, extra={"unit": "slices"})], Meta(description=(
        "equal slices of the demand of a cell; each goes whole to one pool"))] = 4
    window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "time whose completed requests are the demand; their rate is that of the window, or of the last interval if "
        "that is higher"))] = 240.0

    def __post_init__(self):
        for name in ("input_tokens", "output_tokens"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name}: expected ascending lengths, found {list(getattr(self, name))}")
        shape = len(self.input_tokens), len(self.output_tokens)
        for profile in self.profiles:
            if (len(profile.requests_per_s), *{len(row) for row in profile.requests_per_s}) != shape:
                raise ValueError(f'profiles: expected {shape[0]} rows of {shape[1]} rates for pool "{profile.pool}"')
        names = [profile.pool for profile in self.profiles]
        if len(set(names)) < len(names):
            raise ValueError("profiles: give each pool once")
        if not np.max([profile.requests_per_s for profile in self.profiles], axis=0).all():
            raise ValueError("profiles: some cell has no pool that can serve it")
        if importlib.util.find_spec("scipy") is None:
            raise ValueError('policy: "mix" needs SciPy, which is not installed: pip install "simulator[fit]"')


class Mix(Autoscaler):
    """Numbers of replicas by an integer program, see `cheapest`.

    AIBrix clusters the requests by density before it assigns clusters to cells; here each request goes to its cell.
    A pool without a price costs its accelerators.
    """

    Parameters = MixParameters
    wants_finished = True
    why_no_roles = "a profile is measured on replicas that serve whole requests"

    def __init__(self, parameters):
        super().__init__(parameters)
        self._done = collections.deque()            # (time of the decision that saw it, row and column of its cell)
        self._begin_ns = None

    @classmethod
    def faults(cls, parameters, interval_s, pools):
        """See Autoscaler."""
        names, given = [pool.name for pool in pools] or ["default"], [each.pool for each in parameters.profiles]
        yield from (("profiles", f'missing for pool "{name}"') for name in names if name not in given)
        yield from (("profiles", f'there is no pool "{name}"') for name in given if name not in names)

    @classmethod
    def notes(cls, parameters):
        """See Autoscaler."""
        return ("autoscaling: each request goes to its nearest cell; AIBrix clusters requests by density first",)

    def decide(self, observation):
        """See Autoscaler."""
        now_ns, given = observation.now_ns, self.parameters
        fresh = self._cells(observation.finished)
        self._done.extend((now_ns, cell) for cell in fresh)
        while self._done and self._done[0][0] <= now_ns - given.window_s * 1e9:
            self._done.popleft()
        before_ns = 0 if self._begin_ns is None else self._begin_ns
        self._begin_ns = now_ns
        if now_ns <= before_ns:
            return {}
        span_s = min(given.window_s, now_ns / 1e9)
        rate = max(len(self._done) / span_s, len(fresh) / ((now_ns - before_ns) / 1e9))
        demand = np.zeros((len(given.input_tokens), len(given.output_tokens)))
        for _, cell in self._done:
            demand[cell] += rate / len(self._done)
        served = {profile.pool: profile.requests_per_s for profile in given.profiles}
        counts = cheapest([variant.cost_per_hour or variant.accelerators for variant in observation.variants],
                          [served[variant.name] for variant in observation.variants], demand, given.slice_factor)
        changes = {variant.index: count - variant.serving - variant.starting
                   for variant, count in zip(observation.variants, counts, strict=True)}
        return {index: change for index, change in changes.items() if change}

    def _cells(self, finished) -> list[tuple[int, int]]:
        done = finished[finished["status"] == records.COMPLETED]
        rows, columns = (np.abs(np.log2(np.maximum(done[name], 1))[:, None] - np.log2(centres)).argmin(axis=1)
                         for name, centres in (("prompt_tokens", self.parameters.input_tokens),
                                               ("output_tokens", self.parameters.output_tokens)))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))


def cheapest(costs: Sequence[float], requests_per_s: Sequence, demand_per_s: np.ndarray,
             slice_factor: int) -> list[int]:
    """Return the cheapest numbers of replicas of each kind that serve a demand.

    minimise sum_g cost_g y_g, with sum_c n_cg load_cg <= y_g and sum_g n_cg = slices, all integer; load_cg is the rate
    of a slice of cell c over the rate that a replica of kind g sustains.

    costs : of a replica of each kind. requests_per_s : of a replica of each kind, by cell; 0: it cannot.
    demand_per_s : requests of each cell.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # an extra, and half a second of imports

    demand = np.asarray(demand_per_s, float).ravel()
    used = np.flatnonzero(demand > 0)
    kinds, cells = len(costs), len(used)
    if cells == 0:
        return [0] * kinds
    served = np.array([np.ravel(rates)[used] for rates in requests_per_s], float)
    loads = np.divide(demand[used] / slice_factor, served, out=np.full_like(served, NEVER_LOAD), where=served > 0)
    assigned, within = np.zeros((cells, kinds * (cells + 1))), np.zeros((kinds, kinds * (cells + 1)))
    for kind in range(kinds):                                   # variables: the replicas, then n_cg, kind by kind
        columns = kinds + kind * cells + np.arange(cells)
        assigned[np.arange(cells), columns] = 1
        within[kind, columns], within[kind, kind] = loads[kind], -1
    found = milp(np.concatenate([costs, np.zeros(kinds * cells)]), integrality=np.ones(kinds * (cells + 1)),
                 bounds=Bounds(0, np.concatenate([np.full(kinds, np.inf), np.full(kinds * cells, slice_factor)])),
                 constraints=[LinearConstraint(assigned, slice_factor, slice_factor),
                              LinearConstraint(within, -np.inf, 0)], options={"mip_rel_gap": 0.0})
    return [round(count) for count in found.x[:kinds]]
