"""Timelines of KV offloaded to host memory: iterations of 10 ms, blocks of 16 tokens unless they say otherwise."""
from support.scenario import load

MS = 1_000_000
TEN_MS = {"base": 0.01, "per_token": 0.0, "per_req": 0.0}


def scenario(requests, offload=None, store_ms=1, load_ms=1, **options):
    """Return a scenario; each request is (arrival in ms, prompt pieces, outputs, what else it says)."""
    requests = [{"id": f"r{i}", "arrival": arrival / 1e3, "prompt": prompt, "output_len": outputs} | dict(*more)
                for i, (arrival, prompt, outputs, *more) in enumerate(requests)]
    times = {name: {"base": ms / 1e3, "per_block": 0} for name, ms in (("store", store_ms), ("load", load_ms))}
    return load({"options": {"num_blocks": 11, "kv_offload": {"chunks": 100} | (offload or {})} | options,
                 "step_time": TEN_MS, "offload_time": times, "requests": requests})


def ms(recording, name):
    return [time / MS for time in recording.requests[name]]


def copies(recording, kind):
    """Return (request, slots) of the copies of a kind, step by step."""
    return [(row, slots) for step in recording.steps for _, row, _, slots, *_ in step["copies"][kind]]


def own(tokens):
    return [["uniq", tokens]]


def shared(name, tokens):
    return [["group", name, tokens]]
