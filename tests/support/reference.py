"""The executable models of ../shared/reference as judges of recordings, where they are present."""
import copy
import importlib.util
from functools import cache

from simulator.domain.vllm_versions import NEWEST
from support.goldens import GOLDENS

MODEL = GOLDENS.parent / "reference" / "vllm_model_033.py"     # of 0.32 and 0.33
SECOND_MODEL = MODEL.with_name("vllm_model_more_033.py")    # with KV offload and groups of layers, of 0.32 and 0.33
SGLANG_MODEL = MODEL.with_name("sglang_model.py")


def judge(description, log, is_cut=False):
    """Return what the model holds against a log of ours (`to_log`), or None."""
    steps = [_as_recorded(step) for step in log["steps"] if step["scheduled"] or not _is_async(description)]
    if is_cut:
        for step in steps[-2:]:                     # the ends of iterations that were in flight
            step.pop("finished", None)
    try:
        _model().run(description, _version(description) | {"steps": steps})
    except AssertionError as disagreement:
        return str(disagreement)
    return None


# Rules of vLLM that the second model lacks, as (its text, what stands there instead).
# It does not wake for a grammar where copies and async scheduling meet; sections G.7 and K of the specification.
WAKES_FOR_GRAMMARS = (("[z[0][0] for z in s.q.values() if z], default=math.inf)\n            if ev == math.inf",
                       "[z[0][0] for z in s.q.values() if z] + [z[0] for z in s.gram], default=math.inf)\n"
                       "            if ev == math.inf"),)
# The last chunk of a hit is left, and that of an output is not offered while it grows, in groups with layers of a
# drafter. Source: vLLM 0.33.0, offloading/scheduler.py, lines 467 and 962 (`is_eagle_group`).
LEAVES_LAST_CHUNK = (("else: top = min(top, cs * (a + n))", "else: top = min(top, cs * (a + n - 1))"),
                     ('lim = [min(t // g["cs"], ', 'lim = [min(max(t // g["cs"] - (n is not None and t > r.P), 0), '))

# Loads within a step, up to a budget of tokens, on a stream of their own. Source: vLLM 0.33.0, offloading/scheduler.py,
# lines 1279 (`_reserve_sync_load`) and 1371 (`sync_load`), and offloading/worker.py, line 253.
LOADS_IN_STEP = (
    ("isasync = ext > 0\n                    elif", "isasync = ext > 0 and not s.off.in_step(r, loc, ext)\n"
     "                    elif"),
    ("if kv.alloc(r, n, h, loc, s.L, full, wm) is None:", "if kv.alloc(r, n, h, loc, s.L, full, wm, ext) is None:"),
    ("                Q.q.popleft(); s.running.append(r)", "                if ext: s.off.allocated(r, ext, True)\n"
     "                Q.q.popleft(); s.running.append(r)"),
    ("    def allocated(s, r, ext):", "    step, spent = set(), 0\n"
     "    def in_step(s, r, loc, ext):\n"
     "        fits = loc + ext < r.T and s.spent + ext <= s.S.o['kv_offload'].get('step_load_tokens', 0)\n"
     "        s.spent += ext * fits; return fits\n"
     "    def allocated(s, r, ext, sync=False):"),
    ("if own[q] and s.S.kv.h[own[q]] is None)", "if own[q] and (sync or s.S.kv.h[own[q]] is None))"),
    ("s.jobs[j] = (r, ks, False, [], []); o[\"jobs\"].add(j)\n        if s.S.kv.apc:",
     "s.jobs[j] = (r, ks, False, [], []); o[\"jobs\"].add(j); s.step = s.step | ({j} if sync else set())\n"
     "        if s.S.kv.apc and not sync:"),
    ("    def meta(s, sch, newblk, resumed, pre, fin):\n        ends = {}",
     "    def meta(s, sch, newblk, resumed, pre, fin):\n        ends = {}; s.spent = 0"),
    ("s.fr = dict(store=0.0, load=0.0); s.q = dict(store=[], load=[])",
     "x['step'] = x['load']; s.fr = dict(store=0.0, load=0.0, step=0.0); s.q = dict(store=[], load=[], step=[])"),
    ("if j in flush]); end = max(launch, dev) + d if fwd else launch\n        for j, x in loads.items():",
     "if j in flush])\n"
     "        for j, x in loads.items():\n"
     "            if j in s.S.off.step: sub('step', j, len(x[2]), max(launch, dev))\n"
     "        launch = max([launch] + [e for e, j in s.q['step']]); end = max(launch, dev) + d if fwd else launch\n"
     "        for j, x in ((j, x) for j, x in loads.items() if j not in s.S.off.step):"),
    ('for k in ("store", "load"):\n            while', 'for k in ("store", "load", "step"):\n            while'))


def judge_copies(description, log):
    """Return what the second model holds against a log of ours with a tier that copies, or None."""
    leaves_chunk = description["options"].get("eagle") and _version(description)["vllm_version"] == "0.33"
    model = _model(SECOND_MODEL, WAKES_FOR_GRAMMARS + (LEAVES_LAST_CHUNK if leaves_chunk else ()) + (
        LOADS_IN_STEP if description["options"]["kv_offload"].get("step_load_tokens") else ()))
    try:
        model.run(description, _version(description) | {
            "steps": [_in_seconds(step, _is_async(description)) for step in log["steps"]]})
    except model.Diff as disagreement:
        return str(disagreement)
    return None


def judge_groups(description, log, is_cut=False):
    """Return what the second model holds against a log of ours with groups of layers, or None."""
    steps = [_as_recorded(step) for step in log["steps"]]
    if _is_async(description):
        steps = _without_empty(steps, {request["id"]: request.get("mm") for request in description["requests"]})
    steps = steps[:-2] if is_cut else steps
    for step in steps[-2:] if is_cut and _is_async(description) else ():
        step.pop("finished", None)                  # the model leaves out what came in empty ones before they ended
    for number, step in enumerate(steps):
        step["step"] = number
        if not step["scheduled"]:                   # nothing ran; only who cannot be served has ended
            step |= {"dur": 0.0, "finished": step.get("finished", []), "free_blocks_end": step["free_blocks"]}
    model = _model(SECOND_MODEL)
    try:
        model.run(description | ({"max_steps": len(steps)} if is_cut else {}), _version(description) | {"steps": steps})
    except model.Diff as disagreement:
        return str(disagreement)
    return None


def judge_pair(description, logs):
    """Return what the second model holds against our logs of a prefill and a decode engine, or None.

    It compares what a step does, not in which order it tells of it; blocks that are read are told apart by the time
    they take. The model computes whole prompts; vLLM leaves the last token out where a layer keeps states.
    """
    model = _model(SECOND_MODEL)
    has_states = any(group["kind"] == "mamba" for group in description["options"].get("groups") or ())

    class Request(model.R):
        def __init__(self, spec, arrival, prompt, max_tokens):
            drops = has_states and max_tokens == 1 and len(prompt) > 1
            super().__init__(spec, arrival, prompt[:-1] if drops else prompt, max_tokens)

    def compare(engine, what, ours, theirs, compare=model.Eng.cmp):
        if what.startswith("finished") or what == "sends":
            ours, theirs = sorted(ours), sorted(theirs)
        if what != "reads":
            compare(engine, what, ours, theirs)

    model.R, model.Eng.cmp = Request, compare
    try:
        model.run(description, _version(description) | {side: {"steps": [_as_recorded(step) for step in log["steps"]]}
                                                        for side, log in logs.items()})
    except model.Diff as disagreement:
        return str(disagreement)
    return None


def sglang_log(description):
    """Return what the model of SGLang does with a scenario, as a log; None: it comes to no end, or to none of sense."""
    simulation = _model(SGLANG_MODEL).Sim(copy.deepcopy(description))
    try:
        steps = simulation.run()
    except AssertionError:
        return None
    return {"steps": steps} if len(steps) <= description["max_steps"] else None


def _without_empty(steps, items):
    """Return the steps that schedule something; what went in others of the encoder's cache is told by the next one."""
    kept, gone = [], []
    for step in steps:
        gone = gone + step.get("encoder_evicted", [])
        if step["scheduled"] or step.get("finished"):
            if gone:
                back = {items[request][number]["hash"]
                        for request, numbers in step.get("encoder", {}).items() for number in numbers}
                step = step | {"encoder_evicted": [content for content in gone if content not in back]}
            kept.append(step)
            gone = []
    return kept


def judge_waves(description, log):
    """Return what the second model holds against our log of ranks in lock step (`waves.to_log`), or None."""
    steps = [step | {"t": step["t"] / 1e9, "end": step["end"] / 1e9} for step in log["steps"]]
    messages = [[round(time_ns / 1e9, 9), *said] for time_ns, *said in log["messages"]]
    model = _model(SECOND_MODEL)
    try:
        model.run(description, _version(description) | {"steps": steps, "messages": messages})
    except model.Diff as disagreement:
        return str(disagreement)
    return None


def _version(description):
    """Return the header of a log that names the version of vLLM whose rules the second model has."""
    return {"vllm_version": description.get("options", {}).get("vllm_version") or NEWEST}


def _in_seconds(step, is_async):
    duration_ns = step["end"] - step["start" if is_async else "t"]
    return step | {"dur": duration_ns / 1e9} | {name: step[name] / 1e9 for name in ("t", "launch", "start")}


def _as_recorded(step):
    return step | {"t": step["t"] / 1e9, "dur": step["dur"] / 1e9}


def _is_async(description):
    return description["options"].get("async_scheduling", False)


def _model(path=MODEL, changes=()):
    """Return a model of its own, which may be changed; its text is compiled once, with `changes` to it."""
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(path.stem, path))
    exec(_code(path, changes), module.__dict__)
    return module


@cache
def _code(path, changes):
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{path}: {old}"
        text = text.replace(old, new)
    return compile(text, path, "exec")
