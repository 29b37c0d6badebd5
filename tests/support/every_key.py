"""Every key of the experiment file, and what one value of it instead of another changes."""
import copy
import json
import re
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import simulator
from simulator import registry
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.config.fields import NAME, alternatives, bare, element_of, is_struct, named_element_of, table_of
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve

# Where the table stands in which a class of a kind is chosen.
TABLES = {"scheduler": "engine", "latency": "latency", "collective": "latency.collective",
          "admission": "cluster.admission", "saturation": "cluster.gateway_queue.saturation",
          "autoscaler": "autoscaling", "router": "cluster.routing", "rescheduler": "cluster.rescheduling",
          "programs": "cluster.programs",
          "decider": "cluster.disaggregation",
          "scorer": "cluster.routing.scorers[0]", "filter": "cluster.routing.filters[0]",
          "workload": "workload", "trace_format": "workload",
          "client_format": "workload", "arrival": "workload.arrival", "length_distribution": "workload.output_tokens",
          "rate": "workload.rate", "preset": "workload", "vidur_interval": "workload.interval_generator",
          "vidur_length": "workload.length_generator",
          "time_distribution": "workload.load.think_time_s", "kv_tier": "kv_tiers"}
OF_POOLS = ("model", "hardware", "topology", "engine", "latency", "kv_tiers")
BATCHES = (([(96, 0)], []), ([(16, 200), (40, 0)], [50, 300]), ([], [20, 90, 700]))
# Three replicas with little room, whose trace (`write_trace`) carries all that a trace can say.
BASE = {
    "topology": {"replicas": 3},
    "engine": {"num_gpu_blocks": 60, "max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 128},
    "latency": {"backend": "linear"},
    "workload": {"type": "trace"},
    "slo": {"ttft_ms": 60.0},
}
TOLD_BY_THE_EXPERIMENT = ("name", "seed", "schema", "version")


class Case(NamedTuple):
    """Two values of a key and where they make a difference.

    values : two of them; `ABSENT` leaves the key out.
    settings : dotted key -> value, laid over the base experiment.
    looks : what is compared: "run"; "predict": the times of single iterations; "memory": the KV blocks; "summary": what
        it says of the experiment itself, too.
    refused : instead: what the message says that refuses the last value.
    """

    values: tuple
    settings: dict[str, Any]
    looks: str
    refused: str | None


ACCELERATOR = "h100-sxm-80gb"   # stands for every name that a user gives to a table
ABSENT = object()
_OUTCOMES: dict[str, bytes] = {}


def acts(first, second, looks="run", **settings) -> Case:
    """Say that two values differ in their results; settings as a.b=1 with __ for the point."""
    return Case((first, second), _dotted(settings), looks, None)


def predicts(first, second, **settings) -> Case:
    """Say that two values differ in the times of iterations."""
    return acts(first, second, "predict", **settings)


def refuses(value, message: str, looks="run", **settings) -> Case:
    """Say that a value is refused, and how."""
    return Case((value,), _dotted(settings), looks, message)


def _dotted(settings: dict) -> dict:
    return {key.replace("__", "."): value for key, value in settings.items()}


def keys_of(struct: type, prefix: str = "", seen: tuple = ()) -> list[str]:
    """Return the dotted keys of a Struct that hold values, lists of tables with []."""
    found = []
    for field in table_of(struct).fields:
        name = f"{prefix}.{field.name}" if prefix else field.name
        inner, options = [], alternatives(field.hint)
        for option in options:
            for hint, suffix in ((option, ""), (element_of(option), "[]"), (named_element_of(option), f".{NAME}")):
                if hint is not None and is_struct(hint) and bare(hint) not in seen:
                    inner += keys_of(bare(hint), name + suffix, (*seen, bare(hint)))
        holds_values = any(not is_struct(option) and not is_struct(element_of(option))
                           and named_element_of(option) is None for option in options)
        found += inner + [name] * holds_values
    return found


def all_keys() -> list[str]:
    """Return the keys of the experiment, then `kind:name.key` of each class that can be chosen."""
    keys = keys_of(Experiment)
    for kind, entry in registry.KINDS.items():
        for name in entry.entries:
            keys += keys_of(registry.parameters_of(registry.load(kind, name)), f"{kind}:{name}")
    return keys


def with_value(base: dict, key: str, case: Case, value: Any) -> dict:
    """Return the plain data of an experiment: the base, the settings of a case, one value of its key."""
    data = copy.deepcopy(base)
    kind, _, rest = key.partition(":")
    path = key
    for setting, each in case.settings.items():
        put(data, setting, each)
    if rest:
        name, _, inner = rest.partition(".")
        put(data, f"{TABLES[kind]}.{registry.KINDS[kind].key}", name)
        path = f"{TABLES[kind]}.{inner}"
    put(data, path.replace("[]", "[0]").replace(f".{NAME}.", f".{ACCELERATOR}."), value)
    return data


def put(data: dict, path: str, value: Any) -> None:
    """Set the value at a dotted path; a[0].b reaches into a list, which grows by one where it is short."""
    parts = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    for part, after in pairwise(parts):
        empty = [] if isinstance(after, int) else {}
        if isinstance(part, int):
            data.extend([empty] if len(data) == part else [])
            data = data[part]
        else:
            data = data.setdefault(part, empty)
    if value is ABSENT:
        data.pop(parts[-1], None)
    else:
        data[parts[-1]] = copy.deepcopy(value)


def read(data: dict) -> Experiment:
    """Return the experiment that plain data describes."""
    layers = Layers(Source("experiment", ""))
    layers.merge(copy.deepcopy(data), Source("experiment", ""))
    layers.data.setdefault("name", "test")
    return resolve(layers)


def outcome(data: dict, looks: str) -> bytes:
    """Return all that an experiment leads to, without what it says of itself; once for equal ones."""
    key = looks + json.dumps(data, sort_keys=True)
    if key not in _OUTCOMES:
        _OUTCOMES[key] = _outcome(read(data), looks)
    return _OUTCOMES[key]


def _outcome(experiment: Experiment, looks: str) -> bytes:
    if looks == "memory":
        return repr([Site(pool).check().num_gpu_blocks for pool in experiment.all_pools()]).encode()
    if looks == "predict":
        models = [latency_model(Site(pool).check()) for pool in experiment.all_pools()]
        return repr([model.predict_iteration_ns(*batch) for model in models for batch in BATCHES]).encode()
    result = simulator.run(experiment)
    if looks == "summary":
        return json.dumps(result.summary, default=str).encode()
    summary = {key: value for key, value in result.summary.items() if key not in TOLD_BY_THE_EXPERIMENT}
    parts = [json.dumps(summary, default=str).encode(), result.requests.tobytes()]
    for table in ("iterations", "lifecycle", "decisions", "candidates", "replica_samples"):
        try:
            parts.append(getattr(result, table).tobytes())
        except LookupError:     # not asked for
            parts.append(b"absent")
    return b"|".join(parts)


def write_trace(path) -> None:
    """Write 48 requests that carry all that a trace can say."""
    draw = np.random.default_rng(3)
    names = ("arrived_at,num_prefill_tokens,num_decode_tokens,prompt,priority,max_tokens,deadline_s,slo_class,tenant,"
             "session,adapter,model")
    rows = []
    for i in range(48):
        own, output = int(draw.integers(8, 90)), int(draw.integers(1, 24))
        shared = 32 * (1 + i % 3)
        deadline = 0.12 if i % 12 == 5 else 30
        rows.append(f"{0.004 * i:.3f},{shared + own},{output},s{i % 3}:{shared}/own{i}:{own},{i % 4},{output + i % 2},"
                    f"{deadline},{('critical', 'standard', 'sheddable')[i % 3]},t{i % 5 % 3},"
                    f"{f'u{i % 7}' if i % 4 else ''},a{i % 4},m{i // 2 % 2}")
    path.write_text("\n".join([names, *rows]) + "\n")
