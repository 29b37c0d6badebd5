"""The recorded runs of the real vLLM scheduler under $SIM_GOLDENS; by default ../shared/goldens, else tests/goldens.

A case is a scenario `CASE.json` with its log `CASE.log.json[.gz]` beside it, in any folder below `vllm` or
`vllm_more`; nothing depends on a name. `vllm_scope` says which cases need what the engine does not have.
"""
import bisect
import json
import re
import zlib
from functools import cache

import pytest

from support.recordings import recordings
from support.vllm_scope import missing

GOLDENS = recordings()
FAMILIES = ("vllm", "vllm_more", "vllm_033")
HEADER = re.compile(rb'"vllm(?:_version)?": *"(\d+\.\d+)')
HEADER_BYTES = 4096         # of a log, packed or not; its version stands before its steps
LARGE = 500         # requests of a case that takes seconds


def families():
    """Return the folders of recorded runs of vLLM: those known here, then each other one, vllm_034 for instance."""
    return list(dict.fromkeys([*FAMILIES, *sorted(folder.name for folder in GOLDENS.glob("vllm_*"))]))


@cache
def case_paths():
    """Return the scenario files: of each family those in its own folder first, then those of its sub-folders."""
    found = []
    for family in families():
        folder = GOLDENS / family
        paths = (path for path in folder.rglob("*.json") if not path.name.endswith(".log.json") and log_path(path))
        found += sorted(paths, key=lambda path: (path.parent != folder, str(path)))
    return found


def case_name(path):
    return str(path.relative_to(GOLDENS).with_suffix(""))


def parameters(paths, missing=missing):
    """Return cases for pytest.mark.parametrize: large ones are slow, those beyond the engine skip and say why."""
    found = []
    for path in paths:
        description = known_scenario(path)
        reason = missing(description)
        marks = [pytest.mark.skip(reason=f"needs {reason}")] if reason else []
        marks += [pytest.mark.slow] * is_large(description)
        found.append(pytest.param(path, id=case_name(path), marks=marks))
    return found


def is_large(description):
    return len(description.get("requests", ())) > LARGE


def log_path(path):
    """Return the log that lies beside a scenario, or None."""
    candidates = (path.with_suffix(".log.json"), path.with_suffix(".log.json.gz"))
    return next((log for log in candidates if log.exists()), None)


def read_scenario(path):
    """Return a scenario, with the version of vLLM that its log names among its options."""
    description = json.loads(path.read_bytes())
    version = version_of(log_path(path)) if log_path(path) else None
    if version is not None:
        description["options"] = {"vllm_version": version} | description.get("options", {})
    return description


@cache
def known_scenario(path):
    """Return a scenario that nobody changes, read once: which tests take a case is asked many times."""
    return read_scenario(path)


@cache
def version_of(path):
    """Return the version of vLLM that a log names, or None."""
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    if path.suffix == ".gz":
        head = zlib.decompressobj(wbits=31).decompress(head)
    found = HEADER.search(head)
    return found[1].decode() if found else None


def read_log(path):
    """Return a log; its `summary` says whether it was cut, which the second family leaves to be seen."""
    raw = log_path(path).read_bytes()
    log = json.loads(zlib.decompress(raw, wbits=31) if log_path(path).suffix == ".gz" else raw)
    if "summary" in log and "cut" not in log["summary"]:
        longest = read_scenario(path).get("max_steps")
        log["summary"]["cut"] = longest is not None and len(log["steps"]) >= longest
    return log


def late_arrivals(log, description):
    """Return the ids of requests that arrived at the very instant of a decision which did not see them yet.

    The recorder's clock is a sum of floats: where the exact sum meets an arrival, the float may fall short of it by one
    bit (4 x 0.025 against 0.1), and the request waits for the next decision. An exact clock has to be told; this
    replays the recorder's sums.
    """
    price, ends, busy_until, late = description["step_time"], {}, 0.0, set()
    load = {"base": 0.0, "per_token": 0.0} | description.get("kv_load_time", {})
    keeps = {request["id"]: request["hold"] for request in description["requests"] if request.get("hold") is not None}
    arrivals = {}
    for request in log["requests"]:
        arrivals.setdefault(round(request["arrival"], 9), []).append(request)
    for step in log["steps"]:
        arrived = arrivals.get(step["t"], ())
        now = ends.get(step["t"], step["t"])
        late.update(request["id"] for request in arrived
                    if request["arrival"] > now and request["id"] not in step["new"])
        for _, tokens, _ in step.get("kv_loads", ()):
            done = now + load["base"] + load["per_token"] * tokens
            ends.setdefault(round(done, 9), done)
        if step["scheduled"]:
            busy_until = max(now, busy_until) + (price["base"] + price["per_token"] * step["total_tokens"]
                                                 + price["per_req"] * len(step["scheduled"]))
            ends[round(busy_until, 9)] = busy_until
            for done in (busy_until + keeps[name] for name in step.get("finished", ()) if name in keeps):
                ends.setdefault(round(done, 9), done)
    return late


def with_grammars_seen(log, description):
    """Return a scenario whose grammars are ready when the recorder looked for them.

    With KV offload under async scheduling the recorder sleeps until a request arrives or a copy ends: a grammar that is
    ready before is seen then.
    """
    options = description["options"]
    if not (options.get("kv_offload") and options.get("async_scheduling")):
        return description
    looks = sorted(step["t"] for step in log["steps"])
    return description | {"requests": [
        request | {"grammar": request["grammar"] | {"compile": _seen(request, looks)}} if request.get("grammar")
        else request for request in description["requests"]]}


def _seen(request, looks):
    compile_s = request["grammar"].get("compile", 0)
    ready = round(request["arrival"] + compile_s, 9)
    found = bisect.bisect_left(looks, ready)
    return round(looks[found] - request["arrival"], 9) if found < len(looks) else compile_s
