"""Time that each replica spent in each stage of its life."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

SERVING = ("up", "draining", "slow")
PAID = tuple(name for name in records.STAGE_NAMES if name != "off")     # also while it starts, or is down


def time_in_ns(run: Run, stages: tuple[str, ...]) -> np.ndarray:
    """Return how long each replica was in some of `records.STAGE_NAMES`, int64."""
    replica, begin_ns, end_ns = stays(run, stages)
    total_ns = np.zeros(len(run.replicas), np.int64)
    np.add.at(total_ns, replica, end_ns - begin_ns)
    return total_ns


def busy_in_ns(run: Run) -> np.ndarray:
    """Return how long each replica ran iterations, int64.

    Within the window where there is one. Without a log of iterations, the window has its share of the run.
    """
    busy_ns, window = run.replicas["busy_ns"], run.window
    if window is None:
        return busy_ns
    if run.iteration_log is None:
        share = window.duration_ns / int(run.clock_ns) if run.clock_ns else 0.0
        return np.rint(busy_ns * share).astype(np.int64)
    found = np.zeros(len(busy_ns), np.int64)
    for lane in run.iteration_log.by_replica():
        found[lane.replica] = lane.busy_ns(window)
    return found


def measured_ns(run: Run) -> int:
    """Return the length of the measured part: the window, or the whole run."""
    return int(run.clock_ns) if run.window is None else run.window.duration_ns


def stays(run: Run, stages: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the times in which replicas were in some of `records.STAGE_NAMES`.

    Within the window, if there is one.

    Returns
    -------
    Three arrays: the number of the replica, from when, until when, in ns.
    """
    replica, begin_ns, end_ns = _stays(run, stages)
    if run.window is None:
        return replica, begin_ns, end_ns
    return replica, run.window.clipped(begin_ns), run.window.clipped(end_ns)


def _stays(run: Run, stages: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if run.lifecycle is None:
        replica = np.arange(len(run.replicas) if "up" in stages else 0)
        return replica, np.zeros(len(replica), np.int64), np.full(len(replica), int(run.clock_ns), np.int64)
    changes = run.lifecycle[np.argsort(run.lifecycle["replica"], kind="stable")]
    until_ns = np.append(changes["time_ns"][1:], run.clock_ns)
    until_ns[:-1][np.diff(changes["replica"]) > 0] = run.clock_ns       # the last stage of each lasts until the end
    counts = np.isin(changes["state"], [records.STAGE_NAMES.index(name) for name in stages])
    return changes["replica"][counts], changes["time_ns"][counts], until_ns[counts]


def incidents_of(run: Run) -> list[tuple[int, int, str, str]]:
    """Return `Run.incidents` and the changes of stage, in order of time."""
    if run.lifecycle is None:
        return run.incidents
    changes = [(int(row["time_ns"]), int(row["replica"]), records.LIFECYCLE_CAUSES[row["cause"]],
                records.STAGE_NAMES[row["state"]])
               for row in run.lifecycle if records.LIFECYCLE_CAUSES[row["cause"]] != "start"]
    return sorted([*run.incidents, *changes], key=lambda incident: incident[0])
