"""The experiment of each of two versions: its settings and its run."""
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator import registry
from simulator.assembly.site import sites_of
from simulator.config.experiment import Experiment
from simulator.config.layers import Layers
from simulator.config.load import plain, resolve
from simulator.domain.vllm_versions import FLAGS, VERSIONS, behaviour_of
from simulator.errors import InputErrors, did_you_mean
from simulator.results.result import Result
from simulator.study.compare import Order, Plan, prepare, run_one
from simulator.study.compare_file import Comparison
from simulator.workload.base import Workload

KEY = "vllm_version"
ROUTER = "vllm_dp"              # the router that has a key of that name


class OneExperiment(Comparison):
    """An experiment as the only variant of a comparison."""

    def place(self, name: str) -> str:
        """Return the file: messages have the version in front."""
        return self.file


class Side(NamedTuple):
    """One version's experiment and run.

    settings : dotted key -> resolved value, and limits that the deployment derives.
    plan : the experiment, ready to run. result : of its run, None before. faults : why the version refuses it.
    """

    version: str
    settings: Mapping[str, Any] = MappingProxyType({})
    plan: Plan | None = None
    result: Result | None = None
    faults: tuple[str, ...] = ()

    @property
    def experiment(self) -> Experiment:
        """The experiment under this version."""
        return self.plan.experiments[self.version]


def version_of(text: str) -> str:
    """Return the version that a word of the command line names, also by its release.

    Raises
    ------
    InputErrors
        No such version is modelled.
    """
    named = {row.release: version for version, row in VERSIONS.items()} | {version: version for version in VERSIONS}
    if text.removeprefix("v") not in named:
        raise InputErrors([f"vLLM {text}: expected {', '.join(VERSIONS)}{did_you_mean(text, VERSIONS)}"])
    return named[text.removeprefix("v")]


def experiment_of(layers: Layers, version: str) -> Experiment:
    """Return the experiment with a version in each pool that runs vLLM.

    Routers of vLLM get it, too. Intervals of uncertainty are left out: a run is compared with a run.

    Raises
    ------
    InputErrors
        The version refuses the experiment, or no pool runs vLLM.
    """
    layers = layers.copy()
    data, found = layers.data, []
    for place in _places(data):
        engine = place.setdefault("engine", {})
        inherited = data["engine"] if isinstance(data.get("engine"), dict) else {}
        if isinstance(engine, dict):
            scheduler = engine.get("scheduler", inherited.get("scheduler", "vllm"))
            found.append(scheduler)
            if _has_version(scheduler, layers.folders):
                engine[KEY] = version
    _set_routers(data.get("cluster"), version)
    if found and not any(_has_version(scheduler, layers.folders) for scheduler in found):
        raise NoVllm([f"{layers.main.label}: engine.scheduler: expected vllm, found "
                      f"{', '.join(dict.fromkeys(map(str, found)))}: versions of vLLM change nothing there"])
    experiment = resolve(layers)
    output = replace(experiment.output, requests=True, iterations=True, token_times=False)
    certain = replace(experiment, output=output, pools=tuple(map(_certain, experiment.pools)),
                      latency=replace(experiment.latency, uncertainty=False))
    certain.__dict__["origins"] = experiment.origins
    return certain


class NoVllm(InputErrors):
    """No pool of the experiment runs vLLM."""


def ready(layers: Layers, version: str) -> Side:
    """Return the experiment under a version, ready to run, or its faults.

    Raises
    ------
    NoVllm
        No pool runs vLLM.
    """
    try:
        experiment = experiment_of(layers, version)
        plan = prepare(OneExperiment(layers.main.label, {version: experiment}))
        if plan.unavailable:
            raise InputErrors(plan.unavailable.values())
        return Side(version, settings_of(experiment), plan)
    except NoVllm:
        raise
    except InputErrors as errors:
        return Side(version, faults=errors.faults)


def completed(side: Side, workload: Workload | None = None, is_quiet: bool = True) -> Side:
    """Run a side, or find out why its version refuses to.

    workload : requests to serve in place of all; None: all.
    """
    try:
        return side._replace(result=run_of(side.plan, side.version, workload, is_quiet))
    except InputErrors as errors:
        prefix = f"variant {side.version}: "
        return side._replace(faults=tuple(fault.removeprefix(prefix) for fault in errors.faults))


def run_of(plan: Plan, version: str, workload: Workload | None = None, is_quiet: bool = True) -> Result:
    """Return the result of a run; `workload` as in `completed`."""
    if workload is not None:
        plan = plan._replace(workload=workload)
    return run_one(Order(plan, None, False, is_quiet, threads=1), version)


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved settings by dotted key, and limits derived from them."""
    settings = {key: value for key, value in _leaves(plain(experiment), "") if key.rpartition(".")[2] != KEY}
    for site in sites_of(experiment):
        for name in ("max_model_len", "num_gpu_blocks"):
            settings.setdefault(f"{site.prefix}engine.{name}", getattr(site, name))
    return settings


def keys_without_flag(experiment: Experiment, version: str) -> list[str]:
    """Return the keys that are given and that a version's server has no flag for."""
    found, filled = [], experiment.origins.rules
    for number, site in enumerate(sites_of(experiment)):
        for key in sorted(FLAGS - behaviour_of(version).flags):
            table, _, name = key.partition(".")
            struct = getattr(site.pool, table)
            if struct is None:
                continue
            struct = struct if name in struct.__struct_fields__ else struct.parameters
            if name not in struct.__struct_fields__:
                continue
            default = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__))).get(name)
            path = (*(("pools", number) if experiment.pools else ()), table, name)
            if getattr(struct, name) not in (default, None) and path not in filled:
                found.append(f"{site.prefix}{key}")
    return found


def _places(data: dict) -> list[dict]:
    """Return the tables that hold [engine]: the pools, or the experiment itself."""
    pools = data.get("pools")
    if isinstance(pools, list) and pools:
        return [pool for pool in pools if isinstance(pool, dict) and pool.get("role") != "encode"]
    return [data]


def _has_version(scheduler: object, folders: tuple[str, ...]) -> bool:
    try:
        loaded = registry.load("scheduler", scheduler, folders) if isinstance(scheduler, str) else None
    except InputErrors:                     # refused when the experiment is read
        return False
    return loaded is not None and KEY in registry.parameters_of(loaded).__struct_fields__


def _set_routers(table: object, version: str) -> None:
    if isinstance(table, dict):
        if table.get("policy") == ROUTER:
            table[KEY] = version
        for inner in table.values():
            _set_routers(inner, version)


def _certain(pool: Any) -> Any:
    return replace(pool, latency=replace(pool.latency, uncertainty=False))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif path == "pools":
        for pool in value:
            yield from _leaves(pool, f"pools.{pool['name']}")
    else:
        yield path, value
