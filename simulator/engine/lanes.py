"""Threads that serve blocks of replicas in parallel, where replicas do not affect each other.

Between two slices of arrivals nothing passes from one replica to another, so blocks of replicas advance independently:
each lane has a recorder, deliveries and hashes of its own, and its records are taken over between slices. The order
of iterations and tokens in the results comes from their times, so that no number of threads shows there.
"""
from simulator.kv.content import Content

LEAST_REQUESTS = 20_000     # about where two threads break even, with 8 replicas


def lanes_for(replicas, workload, recorder, plan, observer):
    """Return Lanes for replicas that do not affect each other.

    None: one thread serves them all.
    """
    count = min(plan.threads, len(replicas))
    if count < 2 or len(workload) < LEAST_REQUESTS or observer is not None or why_no_lanes(plan):
        return None
    return Lanes(replicas, workload, recorder, count)


def why_no_lanes(plan) -> str | None:
    """Return which policy of a plan threads or processes cannot share; None: none."""
    for pool in plan.pools:
        if not pool.latency.is_shareable:
            return f"the latency backend of pool {pool.name} keeps account of what it was asked"
        if not pool.scheduler.facts(pool.parameters).takes_threads:
            return f"the scheduler of pool {pool.name} keeps state that replicas share"
    return None


class Lanes:
    """`count` threads, including the caller's.

    replicas : list of Replica; all but the first lane's get recorders of their own.
    workload : served by the replicas.
    recorder : of the whole run.
    """

    def __init__(self, replicas, workload, recorder, count: int):
        from concurrent.futures import ThreadPoolExecutor  # brings logging: 4 ms that others do without

        self._bounds = [(len(replicas) * lane // count, len(replicas) * (lane + 1) // count) for lane in range(count)]
        self._recorder, self._recorders = recorder, [recorder.lane() for _ in range(count - 1)]
        self._threads = ThreadPoolExecutor(count - 1, thread_name_prefix="lane")
        for (first, last), own in zip(self._bounds[1:], self._recorders, strict=True):
            content, deliveries = Content(workload), {}
            for replica in replicas[first:last]:
                shared = replica.rank.delivery
                if shared not in deliveries:
                    deliveries[shared] = shared.lane(own)
                replica.rank.take_lane(own, deliveries[shared])
                replica.rank.kv.share_content(content)
                if replica.scheduler.tier is not None:
                    replica.scheduler.tier.share_content(content)

    def serve(self, work, argument) -> None:
        """Call work(first, last, argument) for each lane; return when all have ended."""
        others = [self._threads.submit(work, *bounds, argument) for bounds in self._bounds[1:]]
        try:
            work(*self._bounds[0], argument)
        finally:
            failures = [other.exception() for other in others]      # when all have ended
        for failure in filter(None, failures):
            raise failure
        for own in self._recorders:
            self._recorder.absorb(own)

    def close(self) -> None:
        """End the threads; everything they recorded is in the account of the whole run."""
        self._threads.shutdown()
        for own in self._recorders:
            own.close()
            self._recorder.absorb(own)
            self._recorder.gaps.absorb(own.gaps)
