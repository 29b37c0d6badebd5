"""The catalogue of causes, each a change of the experiment that is simulated."""
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from simulator.config.experiment import Experiment
from simulator.study.server_check.changes import Change

CARDS = ("a10", "l4", "l40s", "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-80gb", "h20-96gb", "h100-pcie-80gb",
         "h100-sxm-80gb", "h100-nvl-94gb", "h200-sxm-141gb", "b200-sxm-180gb", "rtx-4090", "rtx-pro-6000-server",
         "mi300x")
WEIGHTS = ("bfloat16", "fp8", "int8", "awq")
CACHES = ("bfloat16", "fp8")
SHARES = (0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
SLOWDOWNS = (1.25, 1.5, 2.0, 3.0)
BATCHES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PLACES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
RATIOS = (0.25, 0.5, 2.0, 4.0)
EAGER = {"vllm": ("engine.cuda_graphs.mode", "none"), "sglang": ("engine.cuda_graph_backend_decode", "disabled"),
         "tensorrt_llm": ("engine.cuda_graph_max_batch_size", 0)}
FITTED = 1.0                    # of a change by one number that was measured
LEAST_OFF = 0.08                # share by which demand is other than planned before it is a cause


class Situation(NamedTuple):
    """The knowledge of causes.

    experiment : as it is. measured, predicted : numbers by feature, in their units; without those that are not known.
    """

    experiment: Experiment
    measured: Mapping[str, float]
    predicted: Mapping[str, float]

    def ratio(self, name: str) -> float:
        """Return measured by predicted, 1 where a number is missing."""
        if not self.predicted.get(name) or not self.measured.get(name):
            return 1.0
        return self.measured[name] / self.predicted[name]


class Cause(NamedTuple):
    """One cause.

    name : key in compare.json. title : on the screen. look : where an operator finds out. changes : its variants.
    fitted : logarithms of likelihood taken off, where a change is fitted to a measured number.
    """

    name: str
    title: str
    look: str
    changes: Callable[[Situation], Iterator[Change]]
    fitted: float = 0.0


def _eager(at: Situation) -> Iterator[Change]:
    key, value = EAGER.get(at.experiment.engine.scheduler, (None, None))
    graphs = getattr(at.experiment.engine.parameters, "cuda_graphs", None)
    if key is not None and getattr(graphs, "mode", None) != "none":
        yield Change("no CUDA graphs", {key: value})


def _values(key: str, values: tuple, now: object, noun: str) -> Iterator[Change]:
    """Yield other values of a key."""
    return (Change(f"{noun} {value}", {key: value}) for value in values if value != now)


def _cards(at: Situation) -> Iterator[Change]:
    if at.experiment.hardware is not None:
        yield from _values("hardware.name", CARDS, at.experiment.hardware.name, "on")


def _weights(at: Situation) -> Iterator[Change]:
    if at.experiment.model is not None:
        yield from _values("model.dtype", WEIGHTS, at.experiment.model.dtype, "weights in")


def _cache(at: Situation) -> Iterator[Change]:
    if at.experiment.model is not None:
        yield from _values("model.kv_cache_dtype", CACHES, at.experiment.model.kv_cache_dtype, "KV cache in")


def _share(at: Situation) -> Iterator[Change]:
    if at.experiment.model is not None:
        yield from _values("engine.gpu_memory_utilization", SHARES, at.experiment.engine.gpu_memory_utilization,
                           "gpu_memory_utilization")


def _own(key: str, values: tuple) -> Callable[[Situation], Iterator[Change]]:
    """Return the changes of a key of the scheduler, which some schedulers lack."""
    def changes(at: Situation) -> Iterator[Change]:
        if hasattr(at.experiment.engine.parameters, key):
            yield from _values(f"engine.{key}", values, getattr(at.experiment.engine.parameters, key), key)
    return changes


def _places(at: Situation) -> Iterator[Change]:
    now = getattr(at.experiment.engine.parameters, "max_num_seqs", None)
    if now is not None:
        engines = round(at.measured.get("engines", 1.0)) or 1
        seen = round(at.measured.get("most_running", 0.0) / engines)
        values = sorted({*PLACES, seen} if at.measured.get("waiting", 0.0) > 0.5 and seen else PLACES)
        yield from _values("engine.max_num_seqs", tuple(values), now, "max_num_seqs")


def _length(at: Situation) -> Iterator[Change]:
    yield from _values("engine.max_model_len", LENGTHS, at.experiment.engine.max_model_len, "max_model_len")


def _prefixes(at: Situation) -> Iterator[Change]:
    is_on = at.experiment.engine.enable_prefix_caching
    yield Change(f"prefix caching {'off' if is_on else 'on'}", {"engine.enable_prefix_caching": not is_on})


def _ranks(at: Situation) -> Iterator[Change]:
    topology = at.experiment.topology
    for key in ("tensor_parallel", "data_parallel", "pipeline_parallel", "replicas"):
        now, values = getattr(topology, key), set()
        for ratio in RATIOS:
            values |= {round(now * ratio)} if now * ratio >= 1 else set()
        if key == "replicas" and at.measured.get("engines"):
            values.add(max(round(at.measured["engines"] / topology.data_parallel), 1))
        yield from _values(f"topology.{key}", tuple(sorted(values)), now, key)


def _slowed(at: Situation) -> Iterator[Change]:
    return (Change(f"all iterations {factor:g} x as long", pace=factor) for factor in SLOWDOWNS)


def _client(at: Situation) -> Iterator[Change]:
    ratio = at.ratio("arrivals_per_s")
    if abs(ratio - 1) > LEAST_OFF:
        yield Change(f"{ratio:.2f} x the requests planned", demand=ratio)


def _lengths(at: Situation) -> Iterator[Change]:
    prompts, answers = at.ratio("prompt_tokens"), at.ratio("answer_tokens")
    if abs(prompts - 1) > LEAST_OFF:
        yield Change(f"prompts {prompts:.2f} x as long", prompts=prompts)
    if abs(answers - 1) > LEAST_OFF:
        yield Change(f"answers {answers:.2f} x as long", answers=answers)


CAUSES = (
    Cause("eager", "eager mode", "--enforce-eager, or graphs that failed to capture in the start-up log", _eager),
    Cause("card", "another card", "nvidia-smi; node labels of the cluster", _cards),
    Cause("slowed", "a slowed card", "nvidia-smi -q -d CLOCK,POWER; other processes on the card or host", _slowed),
    Cause("weights", "weights in another format", "--dtype, --quantization, the checkpoint's config.json", _weights),
    Cause("kv_format", "KV cache in another format", "--kv-cache-dtype", _cache),
    Cause("memory_share", "another share of memory", "--gpu-memory-utilization; other processes on the card", _share),
    Cause("max_num_seqs", "another limit of requests", "--max-num-seqs", _places),
    Cause("max_num_batched_tokens", "another limit of tokens in a batch", "--max-num-batched-tokens",
          _own("max_num_batched_tokens", BATCHES)),
    Cause("max_model_len", "another longest text", "--max-model-len; /v1/models", _length),
    Cause("prefix_caching", "prefix caching switched", "--enable-prefix-caching; cache_salt of clients", _prefixes),
    Cause("ranks", "other parallelism or replicas", "--tensor-parallel-size, --data-parallel-size; pods", _ranks),
    Cause("client", "a client of another rate", "the client's machine, its connections, its rate limit", _client,
          FITTED),
    Cause("lengths", "other lengths than planned", "the client's prompts, max_tokens, stop words", _lengths, FITTED))
