"""Base of operations that are written in Python."""
from collections.abc import Callable


class PythonOperation:
    """Acts on a cluster during a run: override `begin`, `ended` or `report`.

    An action or a request that ends costs a Python call, about a microsecond. An exception ends the run.

    experiment : of its part. fleet : engine.fleet.fleet.Fleet, with `replicas` and `workload`.
    gateways : list of Gateway. plan : ClusterPlan.
    """

    def __init__(self, experiment, fleet, gateways, plan):
        self.experiment, self.fleet, self.gateways, self.plan = experiment, fleet, gateways, plan

    def begin(self, call_at: Callable[[int, Callable[[int], None]], None]) -> None:
        """Prepare the run: no time has passed yet.

        call_at : `call_at(time_ns, action)` has `action(time_ns)` called then, unless the run has nothing left to do.
        """

    def ended(self, row: int, now_ns: int) -> None:
        """Take note of a request that has left the cluster.

        row : in `fleet.workload.requests`.
        """

    def report(self, run) -> None:
        """Add results to the Run at the end: its `tables` and `columns`."""
