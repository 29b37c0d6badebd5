"""The recorded runs of the real scheduler under ../shared/goldens/vllm ($SIM_GOLDENS overrides ../shared/goldens)."""
import gzip
import json
import os
from pathlib import Path

GOLDENS = Path(os.environ.get("SIM_GOLDENS", Path(__file__).resolve().parents[2].parent / "shared" / "goldens"))


def case_paths():
    """Return the scenario files in any folder under vllm/, numbered cases first."""
    folder = GOLDENS / "vllm"
    found = [path for path in folder.rglob("*.json") if not path.name.endswith(".log.json") and log_path(path)]
    return sorted(found, key=lambda path: (path.parent != folder, str(path)))


def case_name(path):
    return str(path.relative_to(GOLDENS / "vllm").with_suffix(""))


def log_path(path):
    """Return the log that lies beside a scenario, or None."""
    candidates = (path.with_suffix(".log.json"), path.with_suffix(".log.json.gz"))
    return next((log for log in candidates if log.exists()), None)


def read_scenario(path):
    return json.loads(path.read_bytes())


def read_log(path):
    raw = log_path(path).read_bytes()
    return json.loads(gzip.decompress(raw) if log_path(path).suffix == ".gz" else raw)


def late_arrivals(log):
    """Return the ids of requests that arrived at the very instant of a decision which did not see them yet.

    The recorder's clock is a sum of floats: where the exact sum meets an arrival, the float may fall short of it by one
    bit (4 x 0.025 against 0.1), and the request waits for the next decision. An exact clock has to be told; this
    replays the recorder's sums.
    """
    price, ends, busy_until, late = log["step_time"], {}, 0.0, set()
    arrivals = {}
    for request in log["requests"]:
        arrivals.setdefault(round(request["arrival"], 6), []).append(request)
    for step in log["steps"]:
        arrived = arrivals.get(step["t"], ())
        now = ends.get(step["t"], step["t"])
        late.update(request["id"] for request in arrived
                    if request["arrival"] > now and request["id"] not in step["new"])
        if step["scheduled"]:
            busy_until = max(now, busy_until) + (price["base"] + price["per_token"] * step["total_tokens"]
                                                 + price["per_req"] * len(step["scheduled"]))
            ends[round(busy_until, 6)] = busy_until
    return late
