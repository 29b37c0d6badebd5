"""Priorities of requests that a policy changes while a run lasts."""
import numpy as np

LIMITS = np.iinfo(np.int32)


class Urgency:
    """Priorities of the requests of a workload, until `restore` is called.

    demands : structured array (n,), `records.DEMAND`, its priorities are written to.
    signs : for each pool the sign of the change of `priority` that makes a request more urgent to its engine; 0: its
        engine does not look at priorities.
    num_in_vain : changes for requests with an engine that does not look at priorities.
    jumps : int32 (n,), by how much each request was more urgent than its client says.
    """

    def __init__(self, demands: np.ndarray, signs: tuple[int, ...]):
        self._priorities, self._given = demands["priority"], demands["priority"].copy()
        self._signs, self.jumps = signs, np.zeros(len(demands), np.int32)
        self.num_in_vain = 0
        self._common = signs[0] if len(set(signs)) == 1 else 0

    def change(self, row: int, jump: int, pool: int | None) -> None:
        """Make a request more urgent; `pool` : of its replica, None: it is not known yet."""
        sign = self._common if pool is None else self._signs[pool]
        self.num_in_vain += jump != 0 and sign == 0
        self.jumps[row] = jump * (sign != 0)
        self._priorities[row] = min(max(int(self._given[row]) + sign * jump, LIMITS.min), LIMITS.max)

    def restore(self) -> None:
        """Give all requests their clients' priorities again."""
        self._priorities[:] = self._given
