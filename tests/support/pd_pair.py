"""Recorded prefill/decode pairs of vLLM, run by the engine and told in the words of the recorder.

A scenario has options of the two engines, `pd` with the times between them, and requests, some of which go to the
decode engine alone (`local`). Source: specification of the second part of the recorded runs, section H.
"""
from collections import Counter
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.engine.hand_over.build import Split
from simulator.engine.hand_over.plan import HandOverPlan, Pair, Port
from simulator.engine.plan import ClusterPlan, GatewayPlan, Pool
from simulator.latency.linear import Linear
from simulator.routing.disaggregation.python_decider import PythonDecider
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import Vllm
from support.log import first_difference, to_log
from support.recording import Recording, record
from support.scenario import DEFAULTS, load, nanoseconds
from support.vllm_scope import plain

SIDES = ("prefill", "decode")
PREFILL = records.LEG_ROLES.index("prefill")
REPORTS = {"finished_recving": "came", "finished_sending": "read"}
SIDE_OPTIONS = {"kv_role", "prefill", "decode"}


class Declared(PythonDecider):
    """Requests that the scenario calls local are done by the decode replica alone; `parameters`: their rows."""

    def splits_request(self, request, prefill, decode, now_ns):
        return request.row not in self.parameters


@dataclass
class Outcome:
    """What a run came to.

    recording : of the engine. ids : of its rows, those of prefill legs behind. transfers : what was handed over.
    """

    recording: Recording
    ids: list
    transfers: np.ndarray


def is_pair(description):
    """Say whether a scenario is one of two engines."""
    return any(side in description.get("options", {}) for side in SIDES)


def run(description, fast_forward=True, details=True, late=()):
    """Run a scenario on a prefill and a decode replica; return its Outcome."""
    sides = {side: load(plain(_of_side(description, side)), late) for side in SIDES}
    scenario = sides["prefill"]
    rows = {request_id: row for row, request_id in enumerate(scenario.ids)}
    local = frozenset(rows[request["id"]] for request in description["requests"] if request.get("local"))
    latency = Linear(scenario.prices)
    pools = tuple(
        Pool(Vllm, side.parameters, latency, name=name, role=name, **side.cache) for name, side in sides.items())
    plan = ClusterPlan(pools, _front(), split=_split(description, pools[1].block_size, local),
                       fast_forward=fast_forward)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())
    recording = record(workload, plan, details=details)
    return Outcome(recording, 2 * scenario.ids, recording.transfers)


def difference(description, log, outcome):
    """Return a readable account of the first difference from a recorded log, or None."""
    ours = logs_of(description, outcome)
    longest = description.get("max_steps")
    is_cut = longest is not None and sum(len(log[side]["steps"]) for side in SIDES) >= longest
    for side in SIDES:
        steps = [step | {name: sorted(step[name]) for name in REPORTS if name in step} for step in log[side]["steps"]]
        found = first_difference(log[side] | {"steps": steps}, ours[side], is_cut)      # reports are sets in vLLM
        if found:
            return f"{side}: {found}"
    return None


def logs_of(description, outcome):
    """Return the log of each engine, with the steps that the recorder kept."""
    whole = to_log(outcome.recording, outcome.ids)      # ids: of clients, then of their prefill legs
    block_size = _of_side(description, "decode")["options"].get("block_size", DEFAULTS["block_size"])
    logs = {}
    for number, side in enumerate(SIDES):
        steps = [(entry, step) for entry, step in zip(whole["steps"], outcome.recording.steps, strict=True)
                 if step["replica"] == number]
        preempted = Counter(name for entry, _ in steps for name in entry["preempted"])
        logs[side] = {"steps": _kept(steps, outcome.ids, block_size, side),
                      "requests": [told | {"preemptions": preempted[told["id"]]}
                                   for told in _of_requests(whole["requests"], outcome, side)]}
    return logs


def finds_all_at_once(outcome):
    """Say whether a decode replica found all that a prefill replica had computed in its own prefix cache."""
    legs = outcome.recording.legs
    return bool(((legs["role"] != PREFILL) & (legs["external_tokens"] == 0) & (legs["cached_tokens"] > 0)).any())


def _of_side(description, side):
    options = description["options"]
    common = {key: value for key, value in options.items() if key not in SIDE_OPTIONS}
    return description | {"options": common | options.get(side, {})}


def _front():
    return GatewayPlan(RoundRobin, RoundRobinParameters())


def _split(description, block_size, local):
    times = description.get("pd", {})
    transfer = times.get("transfer", {})
    block_ns = nanoseconds(transfer.get("per_block", 0.0))
    port = Port(outer_bytes_per_s=block_size / block_ns * 1e9 if block_ns else 1e30)
    groups = len(description["options"].get("groups") or ())
    pair = Pair(token_bytes=1.0, block_bytes=(float(block_size),) * groups)
    return Split(HandOverPlan(
        (port, port), {(0, 1): pair}, _front(), _front(), Declared, local,
        contention="fifo" if transfer.get("fifo", True) else "none", base_ns=nanoseconds(transfer.get("base", 0.0)),
        hop_ns=nanoseconds(times.get("route", 0.0)), notice_ns=nanoseconds(times.get("notify", 0.0)),
        notices_at_start=True))


def _kept(steps, ids, block_size, side):
    """Return the steps that did something, in the recorder's words, numbered anew."""
    kept = []
    for entry, step in steps:
        held = {ids[row]: table for row, table in (step.get("held_blocks") or {}).items()}
        reads = [[ids[row], _read(held[ids[row]], tokens, block_size) if held else None]
                 for row, tokens, _ in step["loads"]]
        sends = [name for before in kept if before["end"] <= entry["t"] for name in before.pop("unsent", ())]
        entry = entry | {"reads": reads, "sends": sorted(sends)}
        entry |= {name: sorted(ids[row] for row in step.get(ours, ())) for name, ours in REPORTS.items()}
        for name in ("finished_recving", "finished_sending", "finished"):
            entry.setdefault(name, [])
        for name in ("free_blocks", "free_queue"):
            if name in entry:
                entry.setdefault(f"{name}_end", entry[name])
        kept.append(entry | {"step": len(kept)} | ({"unsent": entry["finished"]} if side == "prefill" else {}))
    return kept


def _read(table, tokens, block_size):
    """Return the last blocks, which hold so many tokens; of groups of layers, those of each."""
    if table and isinstance(table[0], list):
        return [[block for block in own[-blocks_of(tokens, block_size):] if block] for own in table]
    return table[-blocks_of(tokens, block_size):]


def _of_requests(requests, outcome, side):
    """Yield what is known of the requests that came to one engine, in the recorder's words."""
    legs = {}
    for leg in outcome.recording.legs:
        legs[int(leg["request"]), "prefill" if leg["role"] == PREFILL else "decode"] = leg
    for row, request in enumerate(requests[:len(outcome.transfers)]):
        if (row, side) not in legs:
            continue
        leg, told = legs[row, side], {"id": request["id"], "prompt_len": request["prompt_len"]}
        if leg["scheduled_ns"] >= 0:
            told["first_scheduled"] = int(leg["scheduled_ns"])
            told["cached_tokens"] = int(leg["cached_tokens"] + leg["external_tokens"])
        if side == "prefill":
            done_ns = int(outcome.transfers["prefill_done_ns"][row])
            yield told | {"first_token": done_ns, "finish": done_ns, "n_out": 1, "token_times": [done_ns]}
        else:
            yield told | {name: request[name] for name in ("first_token", "finish", "n_out", "token_times")}


def blocks_of(tokens, block_size):
    """Return the blocks that hold so many tokens."""
    return -(-tokens // block_size)
