"""Times of GPU kernels as in a serving engine: replayed from a CUDA graph, with operands in memory.

A graph of several calls is replayed between two CUDA events, so that the calls share its launch and the resolution of
events (0.5 us, CUDA's cudaEventElapsedTime). Each call has operands of its own, or there are enough sets of operands
to fill the second-level cache four times; and before each replay a buffer of that size is written. So no call finds
data of an earlier one in the cache. The write takes longer than the host needs to launch the graph, which therefore
starts right after the first event.

Kernels that cannot be captured are launched by the host between the events; the column `timing` has the way used.
"""
import time

from simulator.profiling.timing import Effort, Make, Measurement, num_calls, repeated, summary

CACHES = 4                      # number of second-level caches that operands fill
MIN_CALLS = 2


class GraphTimer:
    """Time calls on the current CUDA device.

    Parameters
    ----------
    torch : the module.
    """

    def __init__(self, torch, effort: Effort):
        self._torch, self._effort = torch, effort
        self._enough_bytes = CACHES * max(torch.cuda.get_device_properties(0).L2_cache_size, 1 << 20)
        self._flushed = torch.empty(self._enough_bytes, dtype=torch.uint8, device="cuda")

    def measure(self, make: Make) -> Measurement:
        """Return the time of a call."""
        run, num_bytes = make()
        run()                                           # warm-up: workspaces, choice of kernels
        calls = max(num_calls(self._between_events(run), self._effort), MIN_CALLS)
        num_sets = min(calls, -(-self._enough_bytes // max(num_bytes, 1)))
        runs = [run, *(make()[0] for _ in range(num_sets - 1))]
        graph = self._captured(runs, calls)

        def all_calls():
            for i in range(calls):
                runs[i % num_sets]()

        replay = all_calls if graph is None else graph.replay
        self._between_events(replay)
        times = repeated(lambda: self._between_events(replay) / calls, self._effort, time.perf_counter)
        return summary(times, "cuda_events" if graph is None else "cuda_graph")

    def _captured(self, runs: list, calls: int):
        """Return a CUDA graph of the calls, in order; None: they cannot be captured."""
        cuda = self._torch.cuda
        side = cuda.Stream()                            # warm-up on another stream, as PyTorch requires
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for run in runs:
                run()
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                for i in range(calls):
                    runs[i % len(runs)]()
        except self._torch.OutOfMemoryError:
            raise
        except RuntimeError:
            cuda.synchronize()                          # raises if the device is lost
            return None
        return graph

    def _between_events(self, run) -> float:
        """Return the seconds of one run, with the cache emptied before."""
        cuda = self._torch.cuda
        began, ended = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self._flushed.zero_()
        began.record()
        run()
        ended.record()
        ended.synchronize()
        return began.elapsed_time(ended) * 1e-3
