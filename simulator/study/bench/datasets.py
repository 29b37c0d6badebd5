"""Data sets of vLLM's benchmarks, as the presets of [workload] that draw the same lengths."""
import argparse
import json
from typing import Any

PRESETS = {"random": "vllm_random", "prefix_repetition": "vllm_prefix_repetition", "sharegpt": "vllm_sharegpt",
           "burstgpt": "vllm_burstgpt"}
FROM_FILES = ("sharegpt", "burstgpt")
NOT_READ = ("sonnet", "hf", "custom", "random-mm", "random-rerank", "spec_bench", "speed_bench", "timed_trace")


def add_dataset(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of the data set; `command` : "serve" or "throughput"."""
    group = parser.add_argument_group("data set")
    group.add_argument("--dataset-name", default="random", choices=(*PRESETS, *NOT_READ), metavar="NAME",
                       help=f"{', '.join(PRESETS)}; default: random")
    group.add_argument("--dataset-path", metavar="FILE", help=(
        "of sharegpt: the CSV that the preset vllm_sharegpt takes; of burstgpt: its CSV"))
    group.add_argument("--num-prompts", type=int, default=1000, metavar="N")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of lengths and gaps")
    group.add_argument("--input-len", type=int, metavar="TOKENS", help="as --random-input-len")
    group.add_argument("--output-len", type=int, metavar="TOKENS", help="of any data set")
    for name, default in (("--random-input-len", 1024), ("--random-output-len", 128)):
        group.add_argument(name, type=int, metavar="TOKENS", help=f"middle of the lengths; default: {default}")
    group.add_argument("--random-range-ratio", default=None, metavar="R", help=(
        'lengths are uniform in [l (1 - R), l (1 + R)]; or {"input": R, "output": R}; default: 0'))
    group.add_argument("--random-prefix-len", type=int, metavar="TOKENS", help="beginning that all share; default: 0")
    if command == "throughput":
        group.add_argument("--prefix-len", type=int, metavar="TOKENS", help="as --random-prefix-len")
    group.add_argument("--sharegpt-output-len", type=int, metavar="TOKENS")
    for name in ("prefix-len", "suffix-len", "num-prefixes", "output-len"):
        group.add_argument(f"--prefix-repetition-{name}", type=int, metavar="N")


def dataset(options: argparse.Namespace, faults: list[str]) -> dict[str, Any]:
    """Return [workload] without the keys for arrivals.

    faults : takes the faults of the flags.
    """
    name = options.dataset_name
    if name not in PRESETS:
        faults.append(f"--dataset-name: {name} is not read; expected {', '.join(PRESETS)}")
        return {}
    if options.num_prompts < 1:
        faults.append(f"--num-prompts: expected a number >= 1, found {options.num_prompts}")
    if name in FROM_FILES and options.dataset_path is None:
        faults.append(f"--dataset-path: missing; --dataset-name {name} reads it")
    if name not in FROM_FILES and options.dataset_path is not None:
        faults.append(f"--dataset-path: {name} is drawn, and reads no file")
    own = _own(options, faults)
    for flag, value in _given(options).items():
        if flag not in own:
            faults.append(f"{flag}: {value} goes with another data set than {name}")
    keys = {key: value for key, value in own.values() if value is not None}
    return {"type": "synthetic", "preset": PRESETS[name], "num_requests": options.num_prompts, "seed": options.seed,
            **keys}


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given flags of single data sets."""
    names = [name for name in vars(options) if name.startswith(("random_", "sharegpt_", "prefix_repetition_"))]
    found = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}
    return {flag: value for flag, value in found.items() if value is not None}


def _own(options: argparse.Namespace, faults: list[str]) -> dict[str, tuple[str, Any]]:
    """Return key and value of [workload] by the flag that sets it; --input-len and --output-len win, as in vLLM."""
    name, output = options.dataset_name, options.output_len
    if options.input_len is not None and name != "random":
        faults.append(f"--input-len: {options.input_len} goes with --dataset-name random")
    if name == "random":
        ratios = _ratios(options.random_range_ratio, faults)
        prefix = getattr(options, "prefix_len", None)
        return {
            "--random-input-len": ("input_len", _first(options.input_len, options.random_input_len)),
            "--random-output-len": ("output_len", _first(output, options.random_output_len)),
            "--random-prefix-len": ("prefix_len", _first(prefix, options.random_prefix_len)),
            "--random-range-ratio": ("input_range_ratio", ratios.get("input")),
            "": ("output_range_ratio", ratios.get("output"))}
    if getattr(options, "prefix_len", None) is not None:
        faults.append(f"--prefix-len: {options.prefix_len} goes with --dataset-name random")
    if name == "prefix_repetition":
        return {
            "--prefix-repetition-prefix-len": ("prefix_len", options.prefix_repetition_prefix_len),
            "--prefix-repetition-suffix-len": ("suffix_len", options.prefix_repetition_suffix_len),
            "--prefix-repetition-num-prefixes": ("num_prefixes", options.prefix_repetition_num_prefixes),
            "--prefix-repetition-output-len": ("output_len", _first(output, options.prefix_repetition_output_len))}
    path = {"": ("path", options.dataset_path)}
    if name == "sharegpt":
        return path | {"--sharegpt-output-len": ("output_len", _first(output, options.sharegpt_output_len))}
    if output is not None:
        faults.append(f"--output-len: {output} does not go with burstgpt, whose file has the lengths")
    return path


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _ratios(text: str | None, faults: list[str]) -> dict[str, float]:
    """Return the ratio of inputs and of outputs; the text is a number, or a JSON object with both."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
        value = value if isinstance(value, dict) else {"input": value, "output": value}
        if set(value) == {"input", "output"} and all(
                isinstance(each, (int, float)) and not isinstance(each, bool) and 0 <= each < 1
                for each in value.values()):
            return {key: float(each) for key, each in value.items()}
    except ValueError:
        pass
    faults.append(f'--random-range-ratio: expected a number from 0 to below 1, or {{"input": R, "output": R}}, found '
                  f"{text}")
    return {}
