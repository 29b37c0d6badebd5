"""Messages on models and SLO classes that the cluster does not define, and on the requests that name them."""
import numpy as np

from simulator.domain import records
from simulator.domain.slo_classes import SloClass
from simulator.engine.plan import ClusterPlan


def diagnose_names(workload, plan: ClusterPlan) -> list[str]:
    """Return a sentence for each unknown name.

    workload : simulator.workload.base.Workload, served.
    """
    return _models(workload, {pool.model for pool in plan.pools}) + _classes(workload, plan.front.classes or {})


def _models(workload, served):
    if None in served:
        return []
    messages = [f'no pool serves model "{label}": rejected {_requests(workload, rows)}'
                for label, rows in _rows_by_label(workload, "model", served)]
    rows = _rows(workload, "model", -1) if len(served) > 1 else ()
    if len(rows):
        messages.append("several models are served, and requests that name none match no pool: rejected "
                        f"{_requests(workload, rows)}; fill in the column model, or leave serves out of one pool")
    return messages


def _classes(workload, classes):
    if all(each == SloClass(name=name) for name, each in classes.items()):      # no class is configured
        return []
    return [f'[[slo.classes]] has no "{label}": {_requests(workload, rows)}, had the priority of others and the bounds '
            "of [slo] alone" for label, rows in _rows_by_label(workload, "slo_class", classes)]


def _rows_by_label(workload, column, known):
    """Return the unknown labels of a column, in order, each with its requests."""
    labels = sorted((str(label), code) for code, label in enumerate(workload.labels.get(column, ())))
    found = ((label, _rows(workload, column, code)) for label, code in labels if label not in known)
    return [(label, rows) for label, rows in found if len(rows)]


def _rows(workload, column, code):
    return np.flatnonzero(records.has_come(workload.requests["status"]) & (workload.demands[column] == code))


def _requests(workload, rows):
    """Return the number of requests, and the id of the first."""
    first = workload.request_ids[rows[0]]
    return f"1 request, {first}" if len(rows) == 1 else f"{len(rows)} requests, {first} first"
