"""Timing of two programs in turns: the machine may be busy, but it is equally busy for both."""
import time
from statistics import median

SHORT_REQUESTS = 64_000     # a run of fewer requests takes a few milliseconds


class Pair:
    """CPU seconds of two programs, one entry a round."""

    def __init__(self, ours_s, others_s):
        self.ours_s, self.other_s = median(ours_s), median(others_s)
        self.ratio = self.ours_s / self.other_s

    def __str__(self):
        return f"{1e3 * self.ours_s:.1f} ms against {1e3 * self.other_s:.1f} ms"


class Pairs:
    """One benchmark, run in rounds; CPU time of the process, so that other programs hardly count."""

    def __init__(self, benchmark):
        self._benchmark = benchmark

    def against(self, other, prepare, rounds):
        """Return the `Pair`.

        other : called first in each round; returns CPU time in s.
        prepare : called next, untimed; returns the function that is timed.
        """
        ours_s, others_s = [], []

        def setup():
            others_s.append(other())
            return (prepare(),), {}

        def target(action):
            ours_s.append(cpu_s(action))

        self._benchmark.pedantic(target, setup=setup, rounds=rounds)
        pair = Pair(ours_s, others_s)
        self._benchmark.extra_info["ratio"] = round(pair.ratio, 3)
        return pair

    def against_limit(self, limit, prepared, trace, rounds):
        """Compare a `cases.Prepared` with the lower bound on the same requests; return `Pair` and `LimitResult`.

        trace : path of a file to write.
        """
        prepared.traffic.write_trace(trace)
        results = []

        def other():
            results.append(limit.run(trace, prepared.case.replicas))
            return results[-1].loop_s

        return self.against(other, prepared.ready, rounds), results[-1]


def repeated_cpu_s(prepared):
    """Return the CPU time of a run of a `cases.Prepared`: the mean of a few runs if it is short."""
    times = max(1, SHORT_REQUESTS // prepared.case.num_requests)
    return sum(cpu_s(prepared.ready()) for _ in range(times)) / times


def cpu_s(action):
    """Return the CPU time of this process that a call takes, in s."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s
