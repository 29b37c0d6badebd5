"""A simulated gateway as the EndpointPickerConfig of llm-d-router.

Source: llm-d/llm-d-router (2026-08), apix/config/v1alpha1 and deploy/config for the form; `picker_plugins` and
`flow_control` for the plugins.
"""
from collections.abc import Iterator
from typing import Any

from simulator.config.experiment import Routing
from simulator.domain.gateway import GatewayQueueParameters
from simulator.errors import InputErrors, KeyFault
from simulator.study.deployment import flow_control
from simulator.study.deployment.picker_plugins import FILTERS, FIXED, SCORERS, Plugin, filter_of, scorer_of
from simulator.study.deployment.router_settings import PLACE, Settings

PICKERS = {"max-score": "max-score-picker", "random": "random-picker", "weighted-random": "weighted-random-picker"}
GATE = "flowControl"
REPORTS_S = 0.05                # between two scrapes of a replica, its default


def endpoint_picker(routing: Routing, queue: GatewayQueueParameters | None, block_size: int | None) -> Settings:
    """Return llm-d-router's EndpointPickerConfig of the router `weighted`.

    Its filters and the queue are in it.

    queue : at the gateway; None: requests are routed at once. block_size : of the replicas, in tokens; None: not known.

    Raises
    ------
    InputErrors
        Another router; scorers, filters, or keys of the queue that llm-d-router does not have: the others alone would
        be another policy.
    """
    faults = [f"{PLACE}{fault}" for fault in _faults(routing)]
    if queue is not None:
        faults += [f"{flow_control.PLACE}{fault}" for fault in flow_control.faults_of_queue(queue)]
    if faults:
        raise InputErrors(list(map(KeyFault, faults)))
    written = _Plugins()
    filters = [written.add(filter_of(each.name, each.parameters, block_size), "filters[].") for each in routing.filters]
    scorers = [written.add(scorer_of(each, block_size), "scorers[].") for each in routing.scorers]
    picker = PICKERS[routing.parameters.picker]
    said = {f"{PLACE}{key}" for key in ("policy", "scorers", "filters", "picker", "profile")}
    if routing.snapshot_refresh_interval_s == REPORTS_S:
        said.add(f"{PLACE}snapshot_refresh_interval_s")
    document: dict[str, Any] = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
    table: dict[str, Any] = {}
    if queue is not None:
        document["featureGates"] = [GATE]
        table[GATE] = flow_control.flow_control(queue, written.add)
        said |= flow_control.said_of(queue)
    profile = [{"pluginRef": name} for name in filters]
    profile += [{"pluginRef": name, "weight": each.weight} for name, each in zip(scorers, routing.scorers, strict=True)]
    document["plugins"] = [{"type": "single-profile-handler"}, *written.producers, *written.plugins, {"type": picker}]
    document["schedulingProfiles"] = [{"name": "default", "plugins": [*profile, {"pluginRef": picker}]}]
    return Settings(document | table, frozenset(said), tuple(dict.fromkeys(written.changed)))


class _Plugins:
    """Plugins with names of their own.

    changed : "key = value: why", values that llm-d-router changes.
    """

    def __init__(self):
        self.plugins: list[dict[str, Any]] = []
        self.producers: list[dict[str, Any]] = []
        self.changed: list[str] = []
        self._kinds: list[str] = []

    def add(self, plugin: Plugin, place: str = "") -> str:
        """Add a plugin and its producer; return its name."""
        parameters = dict(plugin.parameters)
        if plugin.producer is not None:
            kind = plugin.producer["type"]
            producer = self._name_of(kind)
            self.producers.append({"name": producer, **plugin.producer})
            key = "producerName" if kind.startswith("mm-") else "prefixMatchInfoProducerName"
            parameters[key] = producer
        name = self._name_of(plugin.kind)
        self.plugins.append({"name": name, "type": plugin.kind} | ({"parameters": parameters} if parameters else {}))
        self.changed += [f"{PLACE}{place}{line}" for line in plugin.changed]
        return name

    def _name_of(self, kind: str) -> str:
        self._kinds.append(kind)
        number = self._kinds.count(kind)
        return kind if number == 1 else f"{kind}-{number}"


def _faults(routing: Routing) -> Iterator[str]:
    if routing.policy != "weighted":
        yield f'policy: --as llm-d-router writes scores: expected "weighted", found "{routing.policy}"'
        return
    for tables, known, place in ((routing.scorers, SCORERS, "scorers"), (routing.filters, FILTERS, "filters")):
        for number, own in enumerate(tables):
            if own.name not in known:
                yield f'{place}[{number}].name: expected one of {", ".join(known)}, found "{own.name}"'
            elif tables is routing.scorers and own.name in FIXED:
                key, value = FIXED[own.name]
                if (found := getattr(own.parameters, key)) != value:
                    yield f'{place}[{number}].{key}: --as llm-d-router: expected "{value}", found "{found}"'
            elif (depth := getattr(own.parameters, "queue_depth_threshold", 1)) != int(depth):
                yield (f"{place}[{number}].queue_depth_threshold: --as llm-d-router: expected a whole number, found "
                       f"{depth}")
