"""Recorded histories of what Llumnix keeps count of: the in-flight account and lite mode."""
from simulator.routing.llumnix.candidates import Candidates
from support.llumnix import ACCOUNT_FIELDS, indexed
from support.llumnix_faces import AccountFace, LiteFace


def trimmed(name):
    """Return what is left of a request id in a status, where it may carry the name of an endpoint and a suffix."""
    for prefix in ("cmpl-", "chatcmpl-"):
        if name.startswith(prefix):
            name = name[len(prefix):]
            break
    return name.partition("+")[0] if "+" in name else name.rpartition("-")[0] or name


def local_account(given, upstream_compat):
    ordered, index = indexed(given["instances"])
    candidates, rows = Candidates(len(ordered)), {}
    account = AccountFace(len(ordered), 64, candidates, is_cache_aware=given["cache_aware"], leaks=upstream_compat,
                          staleness_s=given["request_local_account_staleness_seconds"])
    states, gone = [], {}       # what upstream throws away stays as it was; the recording still shows it
    for op in given["ops"]:
        apply_account_op(op, account, candidates, index, rows)
        if op["op"] == "forget_instance":
            gone[op["instance"]] = account_state(account, candidates, index[op["instance"]], rows)
        states.append({
            "instances": {name: account_state(account, candidates, i, rows) for name, i in index.items()} | gone,
            "reverse_index": {name: [ordered[i]["id"] for i in account.replicas_of(row)]
                              for name, row in rows.items() if account.replicas_of(row)}})
    return {"after_each_op": states}


def apply_account_op(op, account, candidates, index, rows):
    replica, row = index.get(op.get("instance")), rows.setdefault(op["request"], len(rows)) if "request" in op else None
    if op["op"] == "add":
        account.note_sent(row, replica, op["infer_type"], op["num_tokens"], op["prefix_hit_tokens"])
    elif op["op"] == "revert_prefill":
        account.note_reverted(row, replica)
    elif op["op"] == "remove":
        account.note_left(row)
    elif op["op"] != "forget_instance" and op.get("update_id", candidates.array["step"][replica] + 1) > (
            candidates.array["step"][replica]):
        candidates.array["step"][replica] = op.get("update_id", candidates.array["step"][replica] + 1)
        candidates.array["waiting_prefill_tokens"][replica] = op.get("num_uncomputed_tokens_all_waiting_prefills", 0)
        shown = [[rows.get(each, rows.get(trimmed(each), -1)) for each in op.get(key, ())]
                 for key in ("recent_waiting_requests", "waiting_requests")]
        account.note_status(replica, *shown, 10**6 * op.get("now_offset_ms", 0))


def account_state(account, candidates, replica, rows):
    values, ids = candidates.array[replica], {row: name for name, row in rows.items()}
    state = {flag: int(values[field]) for flag, field in ACCOUNT_FIELDS.items()}
    state["status_num_uncomputed_tokens_all_waiting_prefills"] = int(values["waiting_prefill_tokens"])
    state["requests"] = {
        ids[row]: {"infer_type": role, "num_tokens": tokens, "num_uncomputed_tokens": uncomputed, "found_in_cms": seen}
        for row, (role, tokens, uncomputed, seen) in account.dispatches(replica).items()}
    return state


def lrs(given, _):
    numbers = {kind: {name: i for i, name in enumerate(sorted({op[kind] for op in given["ops"] if kind in op}))}
               for kind in ("instance", "gateway", "request")}
    state, states = LiteFace(max(1, len(numbers["instance"])), max(1, len(numbers["request"]))), []
    for op in given["ops"]:
        replica, gateway, row = (numbers[kind].get(op.get(kind)) for kind in ("instance", "gateway", "request"))
        error = False
        try:
            apply_lite_op(op, state, replica, gateway, row)
        except KeyError:
            error = True
        counts = {name: state.counts_of(i) for name, i in numbers["instance"].items()}
        names = ("num_requests", "num_tokens", "num_waiting_requests", "num_waiting_tokens")
        states.append({"error": error, "instances": {name: dict(zip(names, each, strict=True))
                                                     for name, each in counts.items() if each is not None}})
    return {"after_each_op": states}


def apply_lite_op(op, state, replica, gateway, row):
    if op["op"] == "add_instance":
        state.register_replica(replica, op["version"])
    elif op["op"] == "remove_instance":
        state.deregister_replica(replica)
    elif op["op"] == "add_gateway":
        state.gateways.add(gateway)
    elif op["op"] == "remove_gateway":
        state.deregister_gateway(gateway)
    elif op["op"] == "allocate":
        state.note_sent(row, replica, gateway, op["num_tokens"])
    elif op["op"] == "update":
        state.note_tokens(row, replica, gateway, op["num_tokens"])
    elif op["op"] == "prefill_done":
        state.note_prefilled(row, replica, gateway)
    else:
        assert op["op"] == "release"
        state.note_left(row, replica)
