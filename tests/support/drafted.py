"""Recorded runs of vLLM's scheduler with drafts beside groups of layers, and the comparison of one with the engine."""
import gzip
import json

from support import engine
from support.log import first_difference, to_log
from support.scenario import load
from support.vllm_scope import missing, plain


def cases_in(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def name_of(case):
    return case["scenario"]["name"]


def assert_reproduced(case, fast_forward):
    """Run a case to its end, compare it step by step, and again by the books of blocks that nobody looks at."""
    description, log = case["scenario"], case["log"]
    assert not missing(description) and not log["summary"]["cut"]
    scenario = load(plain(description))
    num_computing = sum(bool(step["scheduled"]) for step in log["steps"])
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=num_computing + 2)
    difference = first_difference(log, to_log(recording, scenario.ids, scenario.contents), is_cut=False)
    assert difference is None, difference
    counted = engine.run(scenario, fast_forward=fast_forward, details=False)
    assert counted.requests.tobytes() == recording.requests.tobytes()
