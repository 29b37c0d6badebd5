"""Flags of vLLM's benchmarks that have no effect here, or are refused: one table.

Names are those of vllm-project/vllm, vllm/benchmarks/{serve,latency,throughput}.py and the engine's own
(vllm/engine/arg_utils.py). Modelled flags are in the module of each command.
"""
import argparse
from typing import NamedTuple

VALUE, SWITCH, VALUES = "value", "switch", "values"
ALL = ("latency", "throughput", "serve")
OFFLINE = ("latency", "throughput")


class Flag(NamedTuple):
    """A flag that is not modelled.

    takes : VALUE, SWITCH or VALUES. why : reason for acceptance or refusal. commands : that have it.
    """

    name: str
    takes: str
    why: str
    commands: tuple[str, ...] = ALL


_NO_SERVER = "there is no server to reach"
_NO_TEXT = "prompts have lengths and no text"
_NO_SAMPLING = "which token comes next changes no time here; output lengths are given"
WITHOUT_EFFECT = (
    *(Flag(name, VALUE, _NO_SERVER, ("serve",)) for name in (
        "--host", "--port", "--endpoint", "--base-url", "--ready-check-timeout-sec", "--request-id-prefix",
        "--served-model-name", "--extra-body")),
    Flag("--header", VALUES, _NO_SERVER, ("serve",)),
    Flag("--insecure", SWITCH, _NO_SERVER, ("serve",)),
    Flag("--disable-tqdm", SWITCH, "there is no bar"),
    Flag("--trust-remote-code", SWITCH, _NO_TEXT),
    Flag("--skip-tokenizer-init", SWITCH, _NO_TEXT),
    Flag("--tokenizer-mode", VALUE, _NO_TEXT),
    Flag("--disable-detokenize", SWITCH, "text is not made; [latency.host] has what the host takes", OFFLINE),
    Flag("--load-format", VALUE, "weights have a size and no values", OFFLINE),
    Flag("--disable-log-stats", SWITCH, "there is no log", OFFLINE),
    Flag("--ignore-eos", SWITCH, _NO_SAMPLING, ("serve",)),
    *(Flag(name, VALUE, _NO_SAMPLING, ("serve",)) for name in (
        "--temperature", "--top-p", "--top-k", "--min-p", "--frequency-penalty", "--presence-penalty",
        "--repetition-penalty", "--logprobs", "--chat-template-kwargs")),
    Flag("--seed", VALUE, "lengths are given, and all else is drawn by the experiment's seed", ("latency",)),
    Flag("--timeline-itl-thresholds", VALUE, "--plot-timeline, which asks it, is refused", ("serve",)),
)
_LATER = "not modelled"
REFUSED = (
    Flag("--use-beam-search", SWITCH, "beams are not modelled", ("latency", "serve")),
    Flag("--profile", SWITCH, "there is no GPU to profile; `simulator predict` tells operator by operator"),
    Flag("--plot-timeline", SWITCH, "[output] chrome_trace of a run draws requests over time", ("serve",)),
    Flag("--plot-dataset-stats", SWITCH, "`simulator workload` tells what is sent", ("serve",)),
    Flag("--probe-request-rate", VALUE, "requests beside the limit are not modelled", ("serve",)),
    Flag("--lora-modules", VALUES, "[workload.adapters] has them, and this [workload] is replaced", ("serve",)),
    Flag("--lora-assignment", VALUE, "as --lora-modules", ("serve",)),
    Flag("--lora-path", VALUE, "as [workload.adapters], which is replaced", ("throughput",)),
    Flag("--enable-lora", SWITCH, "as --lora-path", OFFLINE),
    Flag("--self-timed", SWITCH, "a timed trace is [workload] type = \"trace\" of a run", ("serve",)),
    Flag("--async-engine", SWITCH, _LATER + ": [latency.host] has what the front end takes", ("throughput",)),
    Flag("--hf-max-batch-size", VALUE, "the engine is vLLM's", ("throughput",)),
    Flag("--enforce-eager", SWITCH, "[engine.cuda_graphs] mode = \"none\" of the experiment says it", OFFLINE),
    Flag("--quantization", VALUE, "[model] dtype says how weights are stored", OFFLINE),
    Flag("--speculative-config", VALUE, "[engine.speculative] of the experiment says it", OFFLINE),
    Flag("--hf-subset", VALUE, "data sets of the hub are not read", ("throughput", "serve")),
    Flag("--hf-split", VALUE, "data sets of the hub are not read", ("throughput", "serve")),
    Flag("--hf-output-len", VALUE, "data sets of the hub are not read", ("serve",)),
)


def add_others(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags that a command accepts without effect, or refuses."""
    for flag in (*WITHOUT_EFFECT, *REFUSED):
        if command in flag.commands:
            keys = {"action": "store_true"} if flag.takes == SWITCH else {
                "nargs": "*"} if flag.takes == VALUES else {}
            parser.add_argument(flag.name, dest=flag.name, default=None, help=argparse.SUPPRESS, **keys)


def given(options: argparse.Namespace, flags: tuple[Flag, ...]) -> list[Flag]:
    """Return those flags that are on the command line."""
    return [flag for flag in flags if getattr(options, flag.name, None) is not None]
