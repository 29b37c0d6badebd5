"""The record of a session: an experiment that `run` repeats, to the nanosecond."""
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tomli_w

from simulator.config.experiment import Experiment
from simulator.config.load import plain
from simulator.live.actions import Action
from simulator.workload.base import Workload
from simulator.workload.formats.native_csv_writer import write_trace

EXPERIMENT, ARRIVALS, ACTIONS = "experiment.toml", "arrivals.csv", "actions.csv"
RECORDED = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "prompt_tokens",
            "output_tokens", "cached_tokens", "preemptions", "replica", "status")


def write_session(experiment: Experiment, served: Workload, folder: Path, actions: Sequence[Action] = ()) -> Path:
    """Write the experiment with the requests as its workload; return its file.

    experiment : with the actions of an admin, as `Actions.recorded` returns it.
    served : as `LiveFleet.served` returns it; a request that was cancelled has a deadline.
    actions : rows of a table that a run does not read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = plain(experiment)
    table["workload"] = {"type": "trace", "path": ARRIVALS, "format": "csv", "time_origin": "trace", "time_unit": "s"}
    table["output"].pop("directory", None)
    trace = served.untouched()
    trace.demands["due_ns"] = trace.demands["deadline_ns"]
    with open(folder / ARRIVALS, "w", encoding="utf-8", newline="") as file:
        write_trace(trace, file)
    if actions:
        with open(folder / ACTIONS, "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(("time_ns", "action", "arguments"))
            rows.writerows((action.time_ns, action.verb, json.dumps(action.arguments)) for action in actions)
    (folder / EXPERIMENT).write_text(tomli_w.dumps(table), encoding="utf-8", newline="\n")
    return folder / EXPERIMENT


def differing_rows(served: Workload, requests: np.ndarray) -> list[int]:
    """Return the rows in which a run differs from the session.

    requests : /requests of the run.
    """
    differs = np.zeros(len(served), bool)
    for name in RECORDED:
        differs |= served.requests[name] != requests[name]
    return np.flatnonzero(differs).tolist()
