"""Load of experts over the iterations of a replica: popularity drifts, vLLM's balancer follows.

Popularity is redrawn after each `drift_steps` iterations. The balancer rearranges after `step_interval // 4`
iterations, at least one, and from then on after each `step_interval`: its counter begins at three quarters (vLLM,
vllm/distributed/eplb/eplb_state.py). It uses the loads of the last `window_size` iterations, here those expected from
the popularity of that time, each iteration alike: it does not see the actual choices of tokens. Groups of
experts are the model's (`num_groups`), nodes those over which the replica is spread (vLLM's get_node_count); without
[topology] node it is one. Dummies of ranks in lock step count as iterations.

All of it is a function of the number of iterations alone: equal for all replicas, independent of their requests.
"""
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.experts import eplb, placement
from simulator.experts.imbalance import ExpertLoad, expert_load
from simulator.experts.popularity import chosen_frac, loads_of
from simulator.experts.traffic import moved_expert_bytes

MOST_KEPT = 32          # draws and placements that are not worked out again


class Arrangement(NamedTuple):
    """The draw of popularity, and how often experts were rearranged."""

    draw: int = 0
    rearrangements: int = 0


class ExpertTimeline:
    """The loads of a deployment over its iterations.

    deployment : with experts, and none of the faults of faults.py.
    """

    def __init__(self, deployment: Deployment):
        self.experts, self.deployment = deployment.experts, deployment
        self.moe, self.ranks = deployment.model.moe, deployment.parallelism.expert_parallel
        self.num_layers = deployment.model.num_moe_layers
        self.num_slots = self.moe.num_experts + self.experts.num_redundant
        kept = lru_cache(maxsize=MOST_KEPT)
        self.fracs_of, self.slots_after = kept(self._fracs_of), kept(self._slots_after)

    # ---- when

    def next_change(self, step: int) -> int | None:
        """Return the next iteration, numbered from 0, that begins with another one."""
        return min(filter(None, (self._next_drift(step), self._next_rearrangement(step))), default=None)

    def arrangement(self, step: int) -> Arrangement:
        """Return the arrangement that iteration `step` begins with, if moves take no time."""
        drift, balancer = self.experts.popularity.drift_steps, self.experts.eplb
        rearrangements = 0
        if balancer and step >= self._first_rearrangement():
            rearrangements = (step - self._first_rearrangement()) // balancer.step_interval + 1
        return Arrangement(step // drift if drift else 0, rearrangements)

    def _next_drift(self, step: int) -> int | None:
        drift = self.experts.popularity.drift_steps
        return drift and (step // drift + 1) * drift

    def _next_rearrangement(self, step: int) -> int | None:
        if self.experts.eplb is None:
            return None
        return self._step_of(self.arrangement(step).rearrangements + 1)

    def _first_rearrangement(self) -> int:
        return max(self.experts.eplb.step_interval // 4, 1)

    def _step_of(self, rearrangement: int) -> int:
        return self._first_rearrangement() + (rearrangement - 1) * self.experts.eplb.step_interval

    # ---- what

    def _fracs_of(self, draw: int) -> np.ndarray:
        """Return the share of tokens that choose each expert, (layers, experts)."""
        loads = loads_of(self.experts.popularity, self.moe.num_experts, self.num_layers, draw)
        return chosen_frac(loads, self.moe.experts_per_token)

    def _slots_after(self, rearrangements: int) -> np.ndarray:
        """Return the placement after `rearrangements` rearrangements, (layers, slots)."""
        if rearrangements == 0:
            return placement.initial(self.experts.placement, self.moe.num_experts, self.experts.num_redundant,
                                     self.ranks, self.num_layers)
        return eplb.rebalance(self._window(self._step_of(rearrangements)), self.num_slots, self.ranks,
                              self.moe.num_groups, placement.num_nodes(self.deployment))

    def _window(self, end: int) -> np.ndarray:
        """Return the loads of the iterations that the balancer has recorded before `end`."""
        drift, start = self.experts.popularity.drift_steps, max(0, end - self.experts.eplb.window_size)
        if not drift:
            return self.fracs_of(0)
        draws = range(start // drift, (end - 1) // drift + 1)
        return sum(self.fracs_of(draw) * (min(end, (draw + 1) * drift) - max(start, draw * drift)) for draw in draws)

    def load_of(self, arrangement: Arrangement) -> ExpertLoad:
        """Return the load of the busiest rank."""
        slots, fracs = self.slots_after(arrangement.rearrangements), self.fracs_of(arrangement.draw)
        each = placement.of_slots(slots, fracs).reshape(len(slots), self.ranks, -1)
        return expert_load(each.sum(axis=2) / self.moe.experts_per_token, each, self.moe.experts_per_token)

    def moved_bytes(self, rearrangement: int) -> float:
        """Return the bytes that a rearrangement moves to the rank that gets most."""
        moved = placement.num_moved(self.slots_after(rearrangement - 1), self.slots_after(rearrangement), self.ranks)
        ways, expert = self.deployment.parallelism, self.moe.expert
        width = ways.expert_ranks // self.ranks
        return float(moved.max()) * moved_expert_bytes(
            self.deployment.model.hidden_size, expert.intermediate_size, self.deployment.expert_bytes,
            expert.num_matrices) / width
