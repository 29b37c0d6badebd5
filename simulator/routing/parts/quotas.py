"""Weights and limits of deployments that routers read: requests and tokens a minute, one Quota a pool."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Quota(NamedTuple):
    """Weight and limits of each replica of a pool; None: not given.

    weight : relative share of the requests. rpm, tpm : requests and tokens in a minute.
    """

    weight: float | None = None
    rpm: float | None = None
    tpm: float | None = None


def column(quotas: Sequence[Quota], field: str, pool_of: np.ndarray, absent: float) -> np.ndarray:
    """Return a field for each replica.

    quotas : of each pool; empty: none is given. pool_of : index of the pool of each replica. absent : value where the
        field is not given.
    """
    values = [getattr(quota, field) for quota in quotas]
    by_pool = np.array([absent if value is None else value for value in values] or [absent], np.float64)
    return by_pool[pool_of] if len(values) else np.full(len(pool_of), absent)
