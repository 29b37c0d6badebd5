"""Measurement of a plan point by point: each row is written at once; points that do not fit are noted and skipped."""
from collections.abc import Callable

from simulator.profiling.journal import Journal
from simulator.profiling.plan import Plan, Point
from simulator.profiling.timing import Measurement

ELEMENT_BYTES, OPERANDS = 2, 2          # of collectives: sent and received data
Measure = Callable[[Point], tuple[str, Measurement]]     # -> kernel_source, time


class NotMeasured(Exception):
    """A point that cannot be measured here, with the reason; the next point may be."""


class DeviceLost(RuntimeError):
    """The device does not answer any more: no further point can be measured."""


def measure_plan(plan: Plan, journal: Journal, measure: Measure, sm_mhz: Callable[[], str],
                 advance: Callable[[Point], object] = lambda point: None) -> int:
    """Measure the points that the journal lacks; return their number.

    Parameters
    ----------
    measure : raises NotMeasured.
    sm_mhz : the clock of the device, for the rows.
    advance : called for each point that is done, by an earlier session too.
    """
    measured = 0
    for point in plan.points:
        if point not in journal:
            try:
                source, found = measure(point)
            except NotMeasured as reason:
                journal.miss(point, str(reason))
            else:
                journal.add(point, kernel_source=source, timing=found.timing, latency_ms=f"{found.latency_ms:.9g}",
                            spread_frac=f"{found.spread_frac:.4g}", repeats=found.repeats, sm_mhz=sm_mhz())
                measured += 1
        advance(point)
    return measured


class Bench:
    """Measures points on a device with PyTorch.

    Parameters
    ----------
    torch : the module.
    kernels : TorchKernels or VllmKernels
    timer : GraphTimer or HostTimer, of kernels.
    host : times the host: a call -> Measurement; None for operations that the device lacks.
    free_bytes : of memory, now.
    collectives : Collectives
    """

    def __init__(self, torch, kernels, timer, host, free_bytes: Callable[[], int], collectives=None):
        self._torch, self._kernels, self._timer = torch, kernels, timer
        self._host, self._free_bytes, self._collectives = host, free_bytes, collectives

    def __call__(self, point: Point) -> tuple[str, Measurement]:
        """Return the kernel and the time of a point."""
        if point.table == "host":
            found = self._host(*point.cells)
            if found is None:
                raise NotMeasured("the device has no graphs")
            return "torch", found
        if point.table == "nccl":
            self._fits(OPERANDS * ELEMENT_BYTES * point.values()["message_size"])
            return self._collectives(point)
        if reason := self._kernels.refuses(point):
            raise NotMeasured(reason)
        self._fits(self._kernels.needed_bytes(point))
        source, make = self._kernels.make(point)
        try:
            return source, self._timer.measure(make)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise self._not_measured(point, error) from error

    def _fits(self, needed: int) -> None:
        free = self._free_bytes()
        if needed > free:
            raise NotMeasured(f"out of memory: needs {needed / 1e9:.3g} GB, {free / 1e9:.3g} GB are free")

    def _not_measured(self, point: Point, error: Exception) -> Exception:
        out_of_memory = isinstance(error, self._torch.OutOfMemoryError | MemoryError)
        if self._torch.cuda.is_available():
            try:
                self._torch.cuda.synchronize()
                self._torch.cuda.empty_cache()
            except RuntimeError as lost:
                return DeviceLost(f"{point}: the device is lost: {lost}")
        return NotMeasured(f"{'out of memory: ' * out_of_memory}{error}")
