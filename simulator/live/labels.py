"""Labels of requests: the codes that the engine has for tenants, sessions, SLO classes, adapters and grammars.

A run numbers the names of a column in the order in which they come. Names that come during a session get their codes
in that order, too. Policies that look up names when they are built need names from the beginning: those of [workload].
"""
from collections.abc import Mapping

import numpy as np

from simulator.config.experiment import Experiment
from simulator.domain.slo_classes import PRIORITIES
from simulator.workload.base import Workload

COLUMNS = ("tenant", "session", "slo_class", "adapter", "grammar")
MOST_TENANTS = 1024             # of a session, where they are not those of [workload]
ABSENT = -1
BY_TENANT_NAME = ("tenant_budgets",)        # admission policies


class Labels:
    """The names behind the labels of a session's requests.

    known : column -> its names from the beginning; no others get codes. room : column -> number of names that may
    come.
    """

    def __init__(self, known: Mapping[str, list[str]], room: Mapping[str, int]):
        self.names = {column: list(names) for column, names in known.items()}
        self._codes = {column: {name: code for code, name in enumerate(names)} for column, names in known.items()}
        self._room = dict(room)
        for column in room:
            self.names[column], self._codes[column] = [""] * room[column], {}

    def declare(self, demands: np.ndarray) -> None:
        """Let demands show the highest codes, so that policies have room for all.

        demands : `records.DEMAND`, while a cluster is built.
        """
        for column, room in self._room.items():
            demands[column][0] = room - 1

    def knows(self, column: str, name: str) -> bool:
        """Return whether a name has a code, or could get one."""
        return name in self._codes.get(column, ()) or len(self._codes.get(column, ())) < self._room.get(column, 0)

    def codes(self, given: Mapping[str, str]) -> dict[str, int]:
        """Return the code of each column; `ABSENT`: no name is given, or none is left."""
        return {column: self._code(column, given.get(column, "")) for column in COLUMNS}

    def used(self) -> dict[str, list[str]]:
        """Return the names of each column so far."""
        return {column: names[:len(self._codes[column])] for column, names in self.names.items()}

    def _code(self, column: str, name: str) -> int:
        codes = self._codes.get(column)
        if not name or codes is None:
            return ABSENT
        if name not in codes and len(codes) < self._room.get(column, 0):
            self.names[column][len(codes)] = name
            codes[name] = len(codes)
        return codes.get(name, ABSENT)


def labels_of(experiment: Experiment, workload: Workload, most_requests: int) -> Labels:
    """Return the labels of a session.

    workload : of the experiment; clients may name its SLO classes and adapters, and classes of [[slo.classes]].
    """
    known = {column: [str(name) for name in workload.labels.get(column, ())] for column in ("slo_class", "adapter")}
    classes = [*(each.name for each in experiment.slo.classes), *PRIORITIES, *known["slo_class"]]
    known["slo_class"] = list(dict.fromkeys(classes))
    room = {"tenant": min(MOST_TENANTS, most_requests), "session": most_requests}
    if any(getattr(pool.engine.parameters, "structured_outputs", None) for pool in experiment.all_pools()):
        room["grammar"] = most_requests
    cluster = experiment.cluster
    if cluster.gateway_queue is not None or cluster.admission.policy in BY_TENANT_NAME:
        known["tenant"] = [str(name) for name in workload.labels.get("tenant", ())]
        del room["tenant"]
    return Labels(known, room)
