"""A recorded scenario as the files that a user would write, and the results that a user would read.

Nothing here imports the simulator: a trace, an experiment and results are text and HDF5 to anyone else.
"""
import json
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import tomli_w

from support.scenario import EAGLE

COMPLETED = "completed"
OTHER_NAMES = {"num_blocks": "num_gpu_blocks"}
SPECULATIVE_OPTIONS = {"num_speculative_tokens": "num_tokens", "spec_lookahead": "num_lookahead_tokens"}
ENCODER_OPTIONS = {"max_num_encoder_input_tokens": "max_num_encoder_input_tokens", "encoder_cache_size": "cache_tokens",
                   "disable_chunked_mm_input": "disable_chunked_mm_input"}
NOT_OPTIONS = {"dcp", "eagle", "kv_connector", "groups", "prefix_cache_retention_interval", "max_loras",
               *SPECULATIVE_OPTIONS, "prefix_match_unit", "context_ways", *ENCODER_OPTIONS}
GROUP_KEYS = {"kind", "block_size", "window", "checkpoint"}        # the rest follows from enable_prefix_caching
# What the recorder assumed where a scenario is silent (in full in the `options` of each log)
RECORDER_DEFAULTS = {"max_num_batched_tokens": 2048, "max_num_seqs": 128, "block_size": 16, "num_blocks": 1000,
                     "max_model_len": 8192, "async_scheduling": False}


def write_experiment(description, folder, late=()):
    """Write trace.csv and experiment.toml into `folder`; return the path of the latter.

    Parameters
    ----------
    description : a scenario, as parsed from JSON (format: ../shared/specs/vllm.md).
    late : ids of requests that arrive one nanosecond later than it says (see `goldens.late_arrivals`).
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "trace.csv").write_text(trace_text(description["requests"], late), encoding="utf-8", newline="\n")
    experiment = folder / "experiment.toml"
    experiment.write_text(tomli_w.dumps(_experiment(description)), encoding="utf-8", newline="\n")
    return experiment


def trace_text(requests, late=()):
    """Return requests of a scenario as a native trace."""
    more = {column: name for column, name in MORE_COLUMNS.items() if any(map(name, requests))}
    lines = [",".join(("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens,priority,prompt", *more))]
    pieces = {request["id"]: request["prompt"] for request in requests}
    for request in requests:
        segments = list(_with_images(request, _segments(request["id"], pieces)))
        stops_after = min(request.get("stop_at") or request["output_len"], request["output_len"])
        arrival_ns = nanoseconds(request["arrival"]) + (request["id"] in late)
        lines.append(",".join(map(str, (
            request["id"], f"{arrival_ns // 10**9}.{arrival_ns % 10**9:09d}", sum(tokens for _, tokens in segments),
            stops_after, request.get("max_tokens", request["output_len"]), request.get("priority", 0),
            "/".join(f"{stream}:{tokens}" for stream, tokens in segments),
            *(name(request) for name in more.values())))))
    return "\n".join(lines) + "\n"


def _adapter(request):
    return f"adapter{request['lora']}" if request.get("lora") else ""


def _grammar(request):
    return request["id"] if request.get("grammar") else ""


MORE_COLUMNS = {"adapter": _adapter, "grammar": _grammar}


def nanoseconds(seconds):
    """Return seconds, a float that stands for a decimal, as whole ns."""
    return round(Decimal(repr(seconds)) * 10**9)


def _segments(request_id, pieces):
    """Return the prompt of a request as [(stream, tokens)]; its own stream has no name."""
    segments = []
    for kind, *rest in pieces[request_id]:
        if kind == "prompt":
            other = rest[0]
            segments += [(stream or f"{other}.own", tokens) for stream, tokens in _segments(other, pieces)]
        else:
            stream = {"uniq": "", "group": rest[0], "output": f"{rest[0]}.out"}[kind]
            segments.append((stream, rest[-1]))
    return [(stream, tokens) for stream, tokens in segments if tokens]


def _with_images(request, segments):
    """Yield the segments of a prompt with its images in place of the text that they stand for."""
    at, items = 0, [*(request.get("mm") or ())]
    for stream, tokens in segments:
        begin = at                          # tokens of the prompt before the segment, and before what is left of it
        while at < begin + tokens:
            end = min(begin + tokens, items[0]["offset"] if items else begin + tokens)
            if end > at:
                later = f"{stream or request['id'] + '.own'}@{at - begin}"
                yield (later if at > begin else stream), end - at
                at = end
            elif at >= items[0]["offset"]:
                item = items[0]
                if at == item["offset"]:
                    yield f"{item['hash']}.img", item["length"]
                at = min(begin + tokens, item["offset"] + item["length"])
                if at == item["offset"] + item["length"]:
                    items.pop(0)


def _experiment(description):
    options = RECORDER_DEFAULTS | {key: value for key, value in description["options"].items() if value is not None}
    engine = {OTHER_NAMES.get(key, key): value for key, value in options.items() if key not in NOT_OPTIONS}
    if options.get("groups"):
        engine["kv_cache_groups"] = [{key: value for key, value in group.items() if key in GROUP_KEYS and value}
                                     for group in options["groups"]]
        if options.get("enable_prefix_caching", True):
            interval = description["options"]["prefix_cache_retention_interval"]
            engine["prefix_cache_retention_interval"] = "dense" if interval is None else interval
            if options.get("prefix_match_unit"):
                engine["prefix_match_unit"] = options["prefix_match_unit"]
    if options.get("num_speculative_tokens"):
        engine["speculative"] = {ours: options.get(theirs, 0) for theirs, ours in SPECULATIVE_OPTIONS.items()}
        engine["speculative"]["acceptance"] = description.get("spec_accept") or [0]
        engine["speculative"] |= EAGLE if options.get("eagle") else {}
    encoder = {ours: options[theirs] for theirs, ours in ENCODER_OPTIONS.items() if options.get(theirs)}
    price_us = {key: float(Decimal(repr(seconds)) * 10**6) for key, seconds in description["step_time"].items()}
    if options.get("max_loras"):
        engine["lora"] = {"max_loras": options["max_loras"], "step_factor": 1.0}
    if any(map(_grammar, description["requests"])):
        engine["structured_outputs"] = _structured_outputs(description["requests"])
    if encoder:
        engine["encoder"] = encoder | {"us_per_embedding": price_us.get("per_embed", 0.0)}
    return {
        "name": "recorded", "engine": engine, "topology": _topology(description["options"].get("dcp") or 1),
        "latency": {"backend": "linear", "base_us": price_us["base"], "per_sequence_us": price_us["per_req"],
                    "per_prefill_token_us": price_us["per_token"], "per_decode_token_us": price_us["per_token"],
                    "per_context_token_us": 0.0},
        "workload": {"type": "trace", "path": "trace.csv", "time_origin": "trace"},
        "output": {"token_times": True},
    }


def _structured_outputs(requests):
    """Return the grammars, each compiled beside the others as long as it is said to take."""
    given = {request["id"]: request["grammar"] for request in requests if request.get("grammar")}
    compile_ms = [nanoseconds(grammar.get("compile", 0)) / 1e6 for grammar in given.values()]
    return {"compile_ms": {"distribution": "listed", "values": compile_ms}, "mask_us": 0.0, "cpus": 0,
            "failing": [name for name, grammar in given.items() if grammar.get("error")]}


def _topology(degree):
    return {"tensor_parallel": degree, "decode_context_parallel": degree}


class WrittenResults:
    """A results directory, read with nothing but JSON and h5py.

    requests, iterations : structured arrays. status : names by row. ids : text by row.
    token_times : list by row.
    """

    def __init__(self, directory):
        self.summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        with h5py.File(directory / "results.h5") as file:
            self.requests, self.iterations = file["requests"][:], file["iterations"][:]
            names = json.loads(file["requests"].attrs["status"])
            offsets, times_ns = file["token_times/offsets"][:], file["token_times/times_ns"][:]
        self.ids = [name.decode() for name in self.requests["request_id"].tolist()]
        self.status = [names[str(code)] for code in self.requests["status"].tolist()]
        self.token_times = [part.tolist() for part in np.split(times_ns, offsets[1:-1])]
