"""vLLM's metrics in Prometheus' forms: text pages, answers of range queries."""
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from simulator.study.observe.server_facts import FLAGS, LABEL
from simulator.study.server_check.series import BY_METRIC, Facts, Reading

OTHER_LABELS = ("le", "finished_reason", "__name__")
LENGTHS = "vllm:request_prompt_tokens_bucket"
YES = {"true": True, "false": False}


class Sample(NamedTuple):
    """One sample of a metric."""

    time_s: float
    metric: str
    labels: Mapping[str, str]
    value: float


def samples_of_page(samples: Mapping[str, float | str], time_s: float) -> Iterator[Sample]:
    """Yield the samples of a text page.

    samples : by name and labels, as `simulator.study.observe.server_facts.samples_of` returns them.
    """
    for key, value in samples.items():
        metric, _, labels = key.partition("{")
        if isinstance(value, (int, float)):
            yield Sample(time_s, metric, dict(LABEL.findall(labels)), float(value))


def samples_of_answer(answer: Mapping) -> Iterator[Sample]:
    """Yield the samples of a range query's answer, a matrix.

    Raises
    ------
    KeyError, TypeError, ValueError
        The answer is no matrix.
    """
    if answer["data"]["resultType"] != "matrix":
        raise ValueError(f"expected resultType matrix, found {answer['data']['resultType']}")
    for result in answer["data"]["result"]:
        labels = {str(name): str(value) for name, value in result["metric"].items()}
        for time_s, value in result["values"]:
            yield Sample(float(time_s), labels.get("__name__", ""), labels, float(value))


def readings_of(samples: Iterable[Sample]) -> tuple[list[Reading], Facts]:
    """Return the readings among samples, series of one engine added up, and the facts."""
    found: dict[tuple[float, str, str], float] = {}
    sizes, bounds, sources, flags = {}, [], set(), {}
    for sample in samples:
        source = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items())
                          if name not in OTHER_LABELS)
        if sample.metric.endswith(FLAGS):
            flags |= sample.labels
            sizes[sample.labels.get("engine", ""), sample.labels.get("instance", "")] = _tokens(sample.labels)
        elif sample.metric == LENGTHS and sample.labels.get("le", "+Inf") != "+Inf":
            bounds.append(float(sample.labels["le"]))
        name = BY_METRIC.get(sample.metric)
        if name is not None:
            sources |= {source} if name == "running" else set()
            key = sample.time_s, name, source
            found[key] = found.get(key, 0.0) + sample.value
    known = [size for size in sizes.values() if size]
    facts = Facts(sum(known) / len(known) if known else None, len(sources) or None, max(bounds, default=None),
                  YES.get(flags.get("enable_prefix_caching", "").lower()))
    return [Reading(time_s, name, source, value) for (time_s, name, source), value in found.items()], facts


def _tokens(labels: Mapping[str, str]) -> float | None:
    """Return the tokens of a KV cache by its labels; None: they do not say."""
    try:
        return float(labels["num_gpu_blocks"]) * float(labels["block_size"])
    except (KeyError, ValueError):
        return None
