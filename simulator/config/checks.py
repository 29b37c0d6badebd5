"""Contradictions between the tables of an experiment: faults that no single key shows."""
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from simulator import registry
from simulator.config import conflicts
from simulator.config.context import size_faults
from simulator.config.layers import Path
from simulator.config.parts import completed, parts_in
from simulator.config.roles import role_faults
from simulator.config.scorers import unknown_pools, unused_weights

Fault = tuple[Path, str]


def check_all(sections: Mapping[str, Any], missing: object, fault: Callable[[Path, str], None]) -> None:
    """Report every contradiction between the keys of an experiment.

    Parameters
    ----------
    sections : the fields of an Experiment; `missing` marks a field that could not be read: checks on it are skipped.
    fault : records a fault, given the path of a key and a message.
    """
    pools = sections["pools"]
    if pools is missing:
        return
    for part in parts_in(sections, missing):
        for path, message in part.faults(sections, missing):
            fault(path, message)
    if not pools or any(pool.role != "encode" for pool in pools):
        _check_pools(*_others_of(sections, fault), missing)


def _others_of(sections: Mapping[str, Any], fault: Callable) -> tuple[Mapping[str, Any], Callable]:
    """Return the sections without encode pools, and a recorder of their faults.

    sections : of an experiment. fault : as `checks.check_all` takes it, with indices of all pools.
    """
    kept = [i for i, pool in enumerate(sections["pools"]) if pool.role != "encode"]

    def renumbered(path: Path, message: str) -> None:
        if len(path) > 1 and path[0] == "pools":
            path = ("pools", kept[path[1]], *path[2:])
        fault(path, message)

    return {**sections, "pools": tuple(sections["pools"][i] for i in kept)}, renumbered


def _check_pools(sections: Mapping[str, Any], fault: Callable[[Path, str], None], missing: object) -> None:
    """Report the contradictions among pools that compute tokens, and with other tables."""
    pools = sections["pools"]
    if not pools:
        _check(sections, missing, fault)
    for i, pool in enumerate(pools):
        fields = {name: getattr(pool, name) for name in pool.__struct_fields__}
        _check(fields, missing, lambda path, message, i=i: fault(("pools", i, *path), message))
    known = SimpleNamespace(**{name: None if table is missing else table for name, table in sections.items()})
    parts = [part(known) for part in parts_in(sections, missing)]
    for path, message in _names(pools, completed(pools, parts)):
        fault(path, message)
    if not any(sections[name] is missing for name in ("workload", "cluster", "engine")):
        engines = [pool.engine for pool in pools] or [sections["engine"]]
        for path, message in _expected_lengths(sections["workload"], sections["cluster"], engines):
            fault(path, message)
    if sections["cluster"] is not missing:
        def has_table(name: str) -> bool:
            return any(getattr(place, name) for place in pools or [SimpleNamespace(**sections)])

        roles = role_faults(sections["cluster"]) if all(pool.role == "both" for pool in pools) else ()
        for path, message in (*roles, *unused_weights(sections["cluster"], has_table),
                              *unknown_pools(sections["cluster"], sections["pools"])):
            fault(path, message)
    for path, message in conflicts.faults(sections, missing):
        fault(path, message)


def _check(sections: Mapping[str, Any], missing: object, fault: Callable[[Path, str], None]) -> None:
    for find_faults, names in CHECKS:
        needed = [sections[name] for name in names]
        if not any(section is missing for section in needed):
            for path, message in find_faults(*needed):
                fault(path, message)


def _names(pools, as_completed) -> Iterator[Fault]:
    names = [pool.name for pool in pools]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield ("pools", i, "name"), f'two pools are named "{name}"'
    for i, (pool, whole) in enumerate(zip(pools, as_completed, strict=True)):
        most, replicas = pool.max_replicas, pool.at_start
        if most is not None and most < replicas:
            yield ("pools", i, "max_replicas"), f"expected at least replicas = {replicas}, found {most}"
        if not any(each.replicas != 0 or each.max_replicas for each in as_completed if each.serves == whole.serves):
            yield ("pools", i, "replicas"), (
                "expected at least 1 here, or max_replicas, or in a pool that serves the same requests")


def _expected_lengths(workload, cluster, engines) -> Iterator[Fault]:
    """Refuse a length predictor that no policy uses, and a policy that needs an absent predictor.

    A user's class may use any prediction.
    """
    predictor, routing, admission = workload.output_knowledge.predictor, cluster.routing, cluster.admission
    policies = [(("engine", "policy" if hasattr(engine.parameters, "policy") else "scheduler"), engine.scheduler,
                 engine.parameters) for engine in engines]
    policies += [(("cluster", "routing", "metric"), routing.policy, routing.parameters),
                 (("cluster", "admission", "policy"), admission.policy, admission.parameters)]
    policies += [(("cluster", "routing", "scorers"), scorer.name, scorer.parameters) for scorer in routing.scorers]
    if cluster.gateway_queue is not None:
        policies.append((("cluster", "gateway_queue", "order"), cluster.gateway_queue.order, cluster.gateway_queue))
    readers = [path for path, _, parameters in policies if getattr(parameters, "reads_expected_tokens", False)]
    if predictor == "none" and readers:
        yield readers[0], (
            "needs predicted output lengths, which no predictor provides: give workload.output_knowledge.predictor")
    is_used = any(getattr(parameters, "uses_expected_tokens", False) for _, _, parameters in policies)
    if predictor != "none" and not readers and not is_used and not any(":" in name for _, name, _ in policies):
        yield ("workload", "output_knowledge", "predictor"), (
            f'expected "none", found "{predictor}": nothing in this experiment uses predicted output lengths. The '
            'schedulers lightllm and sjf_aging do, blis with policy = "shortest-output", orca, faster_transformer and '
            'split_wise with reservation = "expected_tokens", the routers least_loaded and power_of_two with metric = '
            '"expected_tokens", slo_least_load and slo_pack_load with a profile, a gateway queue with order = "slack", '
            'and a class of your own may')


def _model_source(model) -> Iterator[Fault]:
    if model is not None and (model.name is None) == (model.config is None):
        yield ("model",), "give either name or config"


def _presence(model, hardware, engine, latency) -> Iterator[Fault]:
    by_both, backend = [], registry.load("latency", latency.backend)
    if backend.needs_deployment or backend.takes_collective:
        by_both.append(f'latency.backend = "{latency.backend}"')
    if engine.num_gpu_blocks is None:
        by_both.append("engine.num_gpu_blocks, which is not given")
    by_model = by_both + (["engine.max_model_len, which is not given"] if engine.max_model_len is None else [])
    for name, section, reasons in (("model", model, by_model), ("hardware", hardware, by_both)):
        if section is None and reasons:
            yield (name,), f"missing table; it is needed by {' and by '.join(reasons)}"


def _scheduler_rules(engine) -> Iterator[Fault]:
    """Refuse settings that the scheduler refuses at start-up."""
    for key, message in registry.load("scheduler", engine.scheduler).faults(engine.parameters, engine):
        yield ("engine", *key.split(".")), message


CHECKS = (
    (_model_source, ("model",)),
    (_presence, ("model", "hardware", "engine", "latency")),
    (size_faults, ("topology", "engine")),
    (_scheduler_rules, ("engine",)),
)
