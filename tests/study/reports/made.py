"""Directories of studies that nobody ran, with numbers worked by hand."""
import json

import tomli_w

from simulator.study.sweep import plan
from simulator.study.sweep.identity import hash_of
from simulator.study.sweep.trial import DONE, Finished, Trial, line_of

SEEDS = (5, 6)
LEAVES = {"requests.injected": 100, "requests.completed": 100, "duration_s": 10.0}


def sweep(folder, points, seeds=SEEDS, metrics=("ttft_ms.p99",), baseline=None, name="made", **experiment):
    """Write a sweep; return its directory.

    points : (assignment, ends); an end for each seed: a number, of the first metric; a dict, of summary.json; a text,
        the status and error of a run that is not done, "refused: why"; None: it has not ended.
    """
    (folder / "segments").mkdir(parents=True)
    table = {"kind": "sweep", "design": "grid", "seeds": list(seeds),
             "statistics": {"confidence": 0.95, "min_tail": 50.0, "metrics": list(metrics)}}
    table |= {} if baseline is None else {"run": {"baseline": baseline}}
    (folder / "study.toml").write_text(tomli_w.dumps({"name": name, **experiment, "study": table}))
    (folder / "provenance.json").write_text(json.dumps({"schema": 1, "version": "9.9", "sources": "abc"}))
    trials, lines = [], []
    for number, (assignment, ends) in enumerate(points):
        for replication, (seed, end) in enumerate(zip(seeds, ends, strict=True)):
            trial = Trial(len(trials), hash_of([assignment, seed]), number, replication, seed, assignment)
            trials.append(trial)
            if end is not None:
                lines.append(line_of(_finished(trial, end, metrics)))
    plan.write(folder / "plan.jsonl", trials)
    (folder / "segments" / "host-1-00000000.jsonl").write_bytes(b"".join(lines))
    return folder


def _finished(trial, end, metrics):
    if isinstance(end, str):
        status, _, error = end.partition(": ")
        return Finished(trial.id, trial.index, trial.replication, trial.seed, status, error, 1, {}, {}, 0.1)
    summary = dict(end) if isinstance(end, dict) else {metrics[0]: end}
    extra = {"warmup_requests": 0, "backlog": summary.pop("backlog", "stable"), "thin": [], "gpus": 1, "gpus_paid": 2.0}
    return Finished(trial.id, trial.index, trial.replication, trial.seed, DONE, None, 1, LEAVES | summary, extra, 0.1)
