"""Reports of data-parallel ranks, added up for each replica."""
import numpy as np

LATEST = ("time_ns", "iterations", "iteration_ns", "up_since_ns")       # the largest of the ranks
ALIKE = ("block_size", "pool", "node", "unit", "infer_type", "replica")     # that of the first rank


def added_up(states: np.ndarray, accounts: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the state and the account of each replica.

    states : structured array (ranks x replicas,), `records.REPLICA_STATE`, the ranks of a replica in a row.
    accounts : structured array (ranks x replicas,), `records.REPLICA_ACCOUNT`, in that order.
    """
    return _added_up(states, ranks), _added_up(accounts, ranks)


def _added_up(rows: np.ndarray, ranks: int) -> np.ndarray:
    by_replica = rows.reshape(-1, ranks)
    totals = by_replica[:, 0].copy()
    for name in rows.dtype.names:
        if name in LATEST:
            totals[name] = by_replica[name].max(axis=1)
        elif name.startswith("is_"):
            totals[name] = by_replica[name].any(axis=1)
        elif name not in ALIKE:
            totals[name] = by_replica[name].sum(axis=1)
    return totals
