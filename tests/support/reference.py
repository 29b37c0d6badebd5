"""The executable model ../shared/reference/vllm_model.py as a judge of recordings, where it is present."""
import importlib.util

from support.goldens import GOLDENS

MODEL = GOLDENS.parent / "reference" / "vllm_model.py"


def judge(description, log, is_cut=False):
    """Return what the model holds against a log of ours (`to_log`), or None."""
    steps = [_as_recorded(step) for step in log["steps"] if step["scheduled"] or not _is_async(description)]
    if is_cut:
        for step in steps[-2:]:                     # the ends of iterations that were in flight
            step.pop("finished", None)
    try:
        _model().run(description, {"steps": steps})
    except AssertionError as disagreement:
        return str(disagreement)
    return None


def _as_recorded(step):
    return step | {"t": step["t"] / 1e9}


def _is_async(description):
    return description["options"].get("async_scheduling", False)


def _model():
    spec = importlib.util.spec_from_file_location("vllm_model", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
