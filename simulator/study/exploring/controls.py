"""The controls of the page: keys of an experiment, their values and choices."""
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, NamedTuple

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import table_of
from simulator.config.load import plain
from simulator.domain.costs import mean_of
from simulator.domain.facts import names
from simulator.domain.vllm_versions import VERSIONS

ENGINES = ("vllm", "sglang", "tensorrt_llm")            # first in the list of schedulers
OF_POOLS = ("model", "hardware", "topology", "engine")      # tables that each of [[pools]] may have for itself
DRAWN = {"workload.type": "synthetic", "workload.num_requests": 3000, "workload.arrival.rate_per_s": 10.0} | {
    f"workload.{name}.{key}": value for name, mean in (("prompt_tokens", 1000.0), ("output_tokens", 200.0))
    for key, value in (("distribution", "lognormal"), ("mean", mean), ("std", 0.8 * mean), ("max", 8192))}
MOST_REQUESTS = 1_000_000


class Control(NamedTuple):
    """An element of the form.

    id : of the element. group : its heading. label : with the unit. kind : number, whole, flag, choice, or text.
    keys : of the experiment; the first that the experiment has acts. least, most : of a number. slide : ends of its
    slider.
    choices : returns the names to choose from.
    """

    id: str
    group: str
    label: str
    kind: str
    keys: tuple[str, ...]
    least: float | None = None
    most: float | None = None
    slide: tuple[float, float] | None = None
    choices: Callable[[], list[str]] | None = None

    def content(self) -> dict[str, Any]:
        """Return the description of the element for the page."""
        return {"id": self.id, "group": self.group, "label": self.label, "kind": self.kind, "least": self.least,
                "most": self.most, "slide": self.slide, "choices": self.choices() if self.choices else None}


def _schedulers() -> list[str]:
    return [*ENGINES, *sorted(registry.KINDS["scheduler"].entries.keys() - set(ENGINES))]


CONTROLS = (
    Control("model", "Model and accelerator", "Model", "name", ("model.name",), choices=lambda: names("model")),
    Control("hardware", "Model and accelerator", "Accelerator", "choice", ("hardware.name",),
            choices=lambda: names("hardware")),
    Control("price", "Model and accelerator", "Price of a GPU-hour, USD", "number", ("prices",), 0, 1000, (0.1, 20)),
    Control("tp", "Layout", "Tensor parallel", "whole", ("topology.tensor_parallel",), 1, 1024, (1, 16)),
    Control("pp", "Layout", "Pipeline parallel", "whole", ("topology.pipeline_parallel",), 1, 1024, (1, 16)),
    Control("dp", "Layout", "Data parallel", "whole", ("topology.data_parallel",), 1, 1024, (1, 16)),
    Control("replicas", "Layout", "Replicas", "whole", ("topology.replicas",), 1, 4096, (1, 64)),
    Control("engine", "Engine", "Framework", "choice", ("engine.scheduler",), choices=_schedulers),
    Control("version", "Engine", "Version", "choice", ("engine.vllm_version",), choices=lambda: list(VERSIONS)),
    Control("seqs", "Engine", "Sequences of a batch", "whole",
            ("engine.max_num_seqs", "engine.max_running_requests", "engine.max_batch_size"), 1, 65536, (1, 4096)),
    Control("budget", "Engine", "Tokens of a batch", "whole",
            ("engine.max_num_batched_tokens", "engine.chunked_prefill_size", "engine.max_num_tokens"), 1, 1048576,
            (128, 65536)),
    Control("caching", "Engine", "Prefix caching", "flag", ("engine.enable_prefix_caching",)),
    Control("rate", "Traffic", "Requests per second", "number", ("workload.arrival.rate_per_s",), 0.001, 1e6,
            (0.1, 1000)),
    Control("requests", "Traffic", "Requests", "whole", ("workload.num_requests", "workload.max_requests"), 0,
            MOST_REQUESTS, (100, 100_000)),
    Control("prompt", "Traffic", "Prompt, tokens (mean)", "number",
            ("workload.prompt_tokens.mean", "workload.prompt_tokens.tokens"), 1, 1e6, (16, 32768)),
    Control("output", "Traffic", "Output, tokens (mean)", "number",
            ("workload.output_tokens.mean", "workload.output_tokens.tokens"), 1, 1e6, (4, 8192)),
    Control("shared", "Traffic", "Shared beginning, tokens", "whole", ("workload.system_prompts.num_tokens",), 0, 1e6,
            (16, 32768)),
    Control("trace", "Traffic", "Trace file, in place of drawn requests", "text", ("workload.path",)),
    Control("ttft", "Objectives", "TTFT at most, ms", "number", ("slo.ttft_ms",), 0, None, (10, 20_000)),
    Control("tpot", "Objectives", "TPOT at most, ms", "number", ("slo.tpot_ms",), 0, None, (1, 500)),
)
BY_ID = {each.id: each for each in CONTROLS}
OPTIONAL = ("price", "shared", "trace", "ttft", "tpot", "seqs", "budget")    # an empty element leaves the key out


def state_of(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return value, or the reason why it has none to turn, of each control."""
    table, found = plain(experiment), {}
    for control in CONTROLS:
        why = _why_not(control, experiment)
        value = None if why else _value(control, experiment, table)
        found[control.id] = {"value": value, "why": why}
    return found


def assignment_of(values: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Return the keys of an experiment that controls set, with their values.

    Parameters
    ----------
    values : by id of a control; None: the element is empty.
    experiment : before the change.
    """
    found: dict[str, Any] = {}
    for id, value in values.items():
        control = BY_ID[id]
        if id == "price":
            found |= _price(value, experiment)
        elif id == "trace":
            found |= DRAWN if value is None else {"workload.type": "trace", "workload.path": value}
        elif id == "shared":
            found |= {f"workload.system_prompts.{key}": each if value else None
                      for key, each in (("num_tokens", value), ("num_prompts", 1), ("share", 1.0))}
        else:
            found[_key(control, experiment)] = value
    if "hardware" in values and "price" not in values:
        found["prices"] = None              # the price was that of the other card
    return found


def _price(value: float | None, experiment: Experiment) -> dict[str, Any]:
    card = experiment.hardware.name
    keys = {"per_gpu_hour": value, "currency": "USD", "source": "set on the page", "date": date.today().isoformat()}
    return {f'prices."{card}".{key}' if "." in card else f"prices.{card}.{key}": each if value else None
            for key, each in keys.items()}


def _key(control: Control, experiment: Experiment) -> str:
    """Return the first key of a control that the experiment can have."""
    return next((key for key in control.keys if _has(experiment, key)), control.keys[0])


def _has(experiment: Experiment, key: str) -> bool:
    """Return whether a key exists in an experiment, given or not."""
    place: Any = experiment
    *path, last = key.split(".")
    for part in path:
        place = _field(place, part)
        if place is None:
            return False
    return last in _names(place)


def _field(place: Any, name: str) -> Any:
    if hasattr(place, name):
        return getattr(place, name)
    chosen = table_of(type(place)).choice
    return _field(getattr(place, chosen), name) if chosen else None


def _names(place: Any) -> set[str]:
    table = table_of(type(place))
    own = {field.name for field in table.fields}
    return own | _names(getattr(place, table.choice)) if table.choice else own


def _why_not(control: Control, experiment: Experiment) -> str | None:
    """Return why a control has nothing to turn; None: it has."""
    room = control.keys[0].partition(".")[0]
    if experiment.pools and room in (*OF_POOLS, "prices"):
        return "each of [[pools]] has its own: change the TOML"
    if control.id == "price":
        return None if experiment.hardware is not None else "no [hardware] to pay for"
    if control.id in ("model", "hardware"):
        return None if getattr(experiment, control.id) is not None else f"the experiment has no [{control.id}]"
    if control.id in ("trace", "ttft", "tpot"):
        return None
    if control.id == "shared":
        return None if experiment.workload.type == "synthetic" else "the workload has texts of its own"
    return None if any(_has(experiment, key) for key in control.keys) else (
        "one version is modelled" if control.id == "version" else f"the chosen [{room}] has no such key")


def _value(control: Control, experiment: Experiment, table: Mapping[str, Any]) -> Any:
    if control.id == "price":
        prices = table.get("prices") or {}
        return mean_of((prices.get(experiment.hardware.name) or {}).get("per_gpu_hour"))
    if control.id == "trace" and experiment.workload.type != "trace":
        return None
    place: Any = table
    for part in _key(control, experiment).split("."):
        place = place.get(part) if isinstance(place, Mapping) else None
    return place
