"""The executable models of ../shared/reference as judges of recordings, where they are present."""
import importlib.util

from support.goldens import GOLDENS

MODEL = GOLDENS.parent / "reference" / "vllm_model.py"
MODEL_OF_GROUPS = GOLDENS.parent / "reference" / "vllm_model_more.py"


def judge(description, log, is_cut=False):
    """Return what the model holds against a log of ours (`to_log`), or None."""
    steps = [_as_recorded(step) for step in log["steps"] if step["scheduled"] or not _is_async(description)]
    if is_cut:
        for step in steps[-2:]:                     # the ends of iterations that were in flight
            step.pop("finished", None)
    try:
        _load(MODEL).run(description, {"steps": steps})
    except AssertionError as disagreement:
        return str(disagreement)
    return None


def judge_groups(description, log, is_cut=False):
    """Return what the model of caches with groups of layers holds against a log of ours, or None."""
    steps = [_as_recorded(step) for step in log["steps"] if step["scheduled"] or not _is_async(description)]
    steps = steps[:-2] if is_cut else steps
    for number, step in enumerate(steps):
        step["step"] = number
        if not step["scheduled"]:                   # nothing ran, so nothing ended
            step |= {"dur": 0.0, "finished": [], "free_blocks_end": step["free_blocks"]}
    model = _load(MODEL_OF_GROUPS)
    try:
        model.run(description | ({"max_steps": len(steps)} if is_cut else {}), {"steps": steps})
    except model.Diff as disagreement:
        return str(disagreement)
    return None


def _as_recorded(step):
    return step | {"t": step["t"] / 1e9, "dur": step["dur"] / 1e9}


def _is_async(description):
    return description["options"].get("async_scheduling", False)


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
