"""Linear policies: weights of scores, which the compiled router `weighted` adds up."""
from collections.abc import Mapping
from typing import Any

from simulator.errors import InputErrors


def linear_router(weights: Mapping[str, float], keys: Mapping[str, Mapping[str, Any]] | None = None,
                  ties: str = "number") -> dict[str, Any]:
    """Return overrides by which the compiled router takes the best weighted sum.

    Scores are between 0 and 1, the higher the better (docs/guide/routers.md); weights are made to sum to 1. No Python
    code runs at a decision.

    Parameters
    ----------
    weights : of the scorers, by name; a scorer with 0 is left out.
    keys : further keys of scorers, by name.
    ties : [cluster.routing] ties.

    Raises
    ------
    InputErrors
        A weight below 0; no weight above 0.
    """
    faults = [f"weights.{name}: expected 0 or more, found {weight:g}" for name, weight in weights.items()
              if not weight >= 0]
    if not faults and not any(weights.values()):
        faults = ["weights: expected one above 0"]
    if faults:
        raise InputErrors(faults)
    scorers = [{"name": name, "weight": float(weight), **(keys or {}).get(name, {})}
               for name, weight in weights.items() if weight]
    return {"cluster.routing.policy": "weighted", "cluster.routing.scorers": scorers, "cluster.routing.ties": ties,
            "cluster.routing.filters": []}
