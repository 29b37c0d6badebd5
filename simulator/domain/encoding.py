"""Results of encode replicas in a run."""
import msgspec
import numpy as np
from msgspec.structs import replace


class Encoding(msgspec.Struct, frozen=True):
    """The encode pools of one simulation.

    jobs : structured array (jobs,), `records.ENCODE_JOB`, of items that arrived at a replica, by request and item.
    busy_ns : int64 (replicas,), total time of each one's batches. batches : int64 (replicas,), their number.
    pools : with `name`, `replicas`, `embedding_bytes`, `cost_per_hour` and `node`, in the order in which replicas are
        numbered.
    """

    jobs: np.ndarray
    busy_ns: np.ndarray
    batches: np.ndarray
    pools: tuple

    def of(self, chosen: np.ndarray) -> "Encoding":
        """Return these results for the jobs of some requests alone, numbered anew.

        chosen : bool (requests,).
        """
        jobs = self.jobs[chosen[self.jobs["request"]]]
        jobs["request"] = (np.cumsum(chosen) - 1)[jobs["request"]]
        return replace(self, jobs=jobs)
