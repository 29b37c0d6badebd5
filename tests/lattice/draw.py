"""A whole random experiment, most of whose features go together: from a seed."""
import copy
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from lattice.features import WORKLOADS, random_layer
from lattice.trace import random_trace
from simulator import registry
from simulator.config.experiment import Engine, Latency
from simulator.config.fields import table_of
from support.every_key import put

REFUSED_SHARE = 0.04        # of the layers that are refused, those that stay


class Drawn(NamedTuple):
    """An experiment as plain data, and the rows of its trace."""

    data: dict[str, Any]
    trace: list[list[str]]


def base_of(rng: Random) -> dict[str, Any]:
    """Return a small cluster in which something happens."""
    site = {"model": {"name": rng.choice(["llama-3.2-1b", "llama-3.1-8b"])}, "hardware": {"name": "h100-sxm-80gb"}}
    return (site if rng.random() < 0.6 else {}) | {
        "name": "case", "seed": rng.randint(0, 99),
        "topology": {"replicas": rng.choice([1, 1, 2, 3])},
        "engine": {"num_gpu_blocks": rng.choice([24, 40, 60, 200]), "max_model_len": rng.choice([128, 256, 512]),
                   "max_num_seqs": rng.choice([2, 4, 16]), "max_num_batched_tokens": rng.choice([64, 128, 512])},
        "latency": {"backend": "linear", "base_us": rng.choice([500.0, 2000.0, 5000.0])},
        "workload": {"type": "trace", "path": "requests.csv"},
        "output": {"token_times": True, "decisions": rng.choice([0, 2])},
    }


def without_strangers(data: dict[str, Any]) -> None:
    """Leave out the keys that belonged to the scheduler or the backend that another one has replaced."""
    for section, key, kind, struct in (("engine", "scheduler", "scheduler", Engine),
                                       ("latency", "backend", "latency", Latency)):
        if data[section].get(key) in registry.KINDS[kind].entries:
            own = registry.parameters_of(registry.load(kind, data[section][key]))
            known = {field.name for each in (struct, own) for field in table_of(each).fields}
            data[section] = {name: value for name, value in data[section].items() if name in known}


def draw(seed: int, refused: Callable[[Drawn], bool]) -> Drawn:
    """Return the experiment of a seed.

    refused : says whether an experiment is refused. What a layer makes of it is taken back then, but for few.
    """
    rng = Random(f"lattice {seed}")
    drawn = Drawn(base_of(rng), random_trace(rng))
    layers = [rng.choice(WORKLOADS)(rng)] if rng.random() < 0.35 else []
    layers += [random_layer(rng) for _ in range(rng.choice([3, 4, 5, 6, 8, 10]))]
    for layer in layers:
        changed = copy.deepcopy(drawn.data)
        try:
            for key, value in layer.items():
                put(changed, key, value)
            without_strangers(changed)
        except (AttributeError, KeyError, TypeError, IndexError):       # a table where there was a value
            continue
        if not refused(Drawn(changed, drawn.trace)):
            drawn = drawn._replace(data=changed)
        elif rng.random() < REFUSED_SHARE:
            return drawn._replace(data=changed)
    return drawn
