"""A recording in the format of the recorded logs, and the first difference between two of them.

Times in logs are seconds rounded to 6 or 9 decimals, and durations and arrivals of the recorded scenarios are whole
numbers of microseconds. So a rounded time is the exact time: comparing round(t * 1e9) with our nanoseconds is exact.
"""
STEP_FIELDS = ("t", "scheduled", "dur", "preempted", "hits", "drafts", "running", "waiting", "free_blocks", "evicted",
               "cached_hashes", "blocks", "free_queue", "waiting_remote", "kv_loads", "finished", "free_blocks_end",
               "free_queue_end", "finished_recving", "finished_sending", "reads", "sends", "launch", "start", "stores",
               "loads", "flush", "completed", "cpu", "cpu_order", "cpu_evicted", "encoder", "encoder_evicted",
               "encoder_free")
TIMES = ("t", "dur", "launch", "start")
# Our name of what only a KV connector has
OF_TIERS = {"waiting_remote": "held", "finished_recving": "came", "finished_sending": "read"}
REQUEST_FIELDS = ("prompt_len", "first_scheduled", "first_token", "finish", "n_out", "cached_tokens", "preemptions",
                  "token_times")


def to_log(recording, ids, contents=()):
    """Return `{"requests": [...], "steps": [...]}` with text ids; times are integers in ns.

    contents : names of what items show, by code.
    """
    return {"requests": [_request_entry(recording, row, ids[row]) for row in range(len(recording.requests))],
            "steps": [_step_entry(step, ids, number, contents) for number, step in enumerate(recording.steps)]}


def _request_entry(recording, row, request_id):
    record = recording.requests[row]

    def when(name):
        return int(record[name]) if record[name] >= 0 else None

    return {"id": request_id, "prompt_len": int(record["prompt_tokens"]),
            "first_scheduled": when("scheduled_ns"), "first_token": when("first_token_ns"),
            "finish": when("completed_ns"), "n_out": int(record["output_tokens"]),
            "preemptions": int(record["preemptions"]),
            "cached_tokens": int(record["cached_tokens"]) if record["scheduled_ns"] >= 0 else None,
            "token_times": [int(time) for time in recording.token_times.get(row, ())]}


def _step_entry(step, ids, number, contents):
    entry = {"step": number, "t": int(step["t_ns"]), "dur": int(step["duration_ns"]),
             "scheduled": [[ids[row], tokens] for row, tokens in step["scheduled"]]}
    for name in ("preempted", "running", "waiting", "finished"):
        if step.get(name) is not None:
            entry[name] = [ids[row] for row in step[name]]
    for name in ("hits", "drafts", "blocks"):
        if step.get(name) is not None:
            entry[name] = {ids[row]: value for row, value in step[name].items()}
    for theirs, name in OF_TIERS.items():
        if name in step:
            entry[theirs] = [ids[row] for row in step[name]]
            entry[theirs] = sorted(entry[theirs]) if theirs.startswith("finished") else entry[theirs]
    if "loads" in step:
        entry["kv_loads"] = [[ids[row], tokens, later] for row, tokens, later in step["loads"]]
    if "begin_ns" in step:
        entry["start"] = step["begin_ns"]
    for theirs, name in (("launch", "launch_ns"), ("end", "end_ns")):
        if name in step:
            entry[theirs] = step[name]
    if "encoder" in step:
        entry["encoder"] = {ids[row]: items for row, items in step["encoder"].items()}
        entry["encoder_evicted"] = [contents[code] for code in step["encoder_evicted"]]
    for name in ("free_blocks", "evicted", "cached_hashes", "free_queue", "free_blocks_end", "free_queue_end",
                 "encoder_free"):
        if step.get(name) is not None:
            entry[name] = step[name]
    return entry | (_copy_fields(step, ids) if "copies" in step else {})


def _copy_fields(step, ids):
    """Return what only a tier that copies has; `dur` is filled in where the log is known."""
    copies = step["copies"]

    def listed(kind):
        for number, row, *of_copy in copies[kind]:
            if len(of_copy) == 2:               # of layers in groups: slots, blocks
                slots, blocks = of_copy
                yield [number, ids[row], slots, blocks] if kind == "loads" else [number, ids[row], blocks, slots]
                continue
            chunks, slots, num_blocks, left_blocks = of_copy
            table = left_blocks or step["blocks"][row]
            if kind == "loads":                 # it may begin within a chunk
                end = _loaded_blocks(step, row, num_blocks, len(table))
                yield [number, ids[row], slots, table[end - num_blocks:end]]
            else:
                size = num_blocks // len(chunks)
                yield [number, ids[row], [table[chunk * size + i] for chunk in chunks for i in range(size)], slots]

    return {"stores": list(listed("stores")), "loads": list(listed("loads")), "flush": copies["flushed"],
            "completed": copies["done"], "cpu": copies["counts"], "cpu_order": copies["order"],
            "finished": [ids[row] for row in step.get("finished", ())], "cpu_evicted": copies["evicted"],
            "finished_recving": [ids[row] for row in step.get("came", ())]}


def _loaded_blocks(step, row, num_blocks, size):
    """Return the blocks of a table of `size` that a load fills, up to its end: all, unless the step waits for it."""
    tokens = next((tokens for each, tokens, comes_later in step["loads"] if each == row and not comes_later), None)
    return size if tokens is None else step["hits"][row] // (tokens // num_blocks)


def first_difference(recorded, ours, is_cut=False):
    """Return a readable account of the first difference between a recorded log and `to_log` of ours, or None.

    A field that the recorder did not log (or logged as a count) is not compared (or compared by count). Zero-token
    steps of async runs are left out of logs, but those in which requests leave whose grammar has failed. A log that was
    cut says nothing about what comes after.
    """
    theirs = recorded["steps"]
    steps = ours["steps"]
    is_async = recorded["options"]["async_scheduling"]
    if is_async and not any("launch" in step for step in theirs):
        failed = {request["id"] for request in recorded["requests"] if request.get("finish_reason") == "error"}
        steps = [step for step in steps if step["scheduled"] or failed.intersection(step.get("finished") or ())]
    for step in steps if any("launch" in step for step in theirs) else ():
        step["dur"] = step["end"] - step["start" if is_async else "t"]
    for number, step in enumerate(theirs):
        if number >= len(steps):
            return f"step {number} of {len(theirs)} is missing; it is {_brief(step)}"
        is_last = is_cut and number >= len(theirs) - 2      # the ends of iterations in flight at the cut
        for name in STEP_FIELDS:
            difference = name in step and _field_difference(name, step, steps[number], is_last)
            if difference:
                return f"step {number}, t = {step['t']} s, {name}: {difference}"
    if len(steps) > len(theirs) and not is_cut:
        return f"step {len(theirs)} is one too many: {_brief(steps[len(theirs)])}"
    return _request_difference(recorded, ours, is_cut)


def _field_difference(name, step, our_step, is_last):
    if is_last and (name == "finished" or name.endswith("_end")):
        return None
    expected, found = step[name], our_step.get(name)
    if name == "finished" and not step["scheduled"]:        # nothing ran; only who cannot be served has ended
        found = found or []
    if found is None and not step["scheduled"] and name.endswith("_end"):       # likewise: all stands as it was
        found = our_step.get(name.removesuffix("_end"))
    if name in TIMES:
        expected = nanoseconds(expected)
    elif isinstance(expected, int) and isinstance(found, list):
        found = len(found)
    if expected == found:
        return None
    return f"recorded {_changed(expected, found)}, ours {_changed(found, expected)}"


def _request_difference(recorded, ours, is_cut):
    by_id = {request["id"]: request for request in ours["requests"]}
    for request in recorded["requests"]:
        mine = by_id[request["id"]]
        for name in REQUEST_FIELDS:
            if name == "finish" and request.get("finish_reason") == "error":
                continue        # ours is of answers; when the request left, its step tells
            if name not in request or (is_cut and (request[name] is None or name in ("n_out", "preemptions"))):
                continue
            expected, found = request[name], mine[name]
            if name in ("first_scheduled", "first_token", "finish") and expected is not None:
                expected = nanoseconds(expected)
            elif name == "token_times":
                expected = [nanoseconds(time) for time in expected]
                found = found[:len(expected)] if is_cut else found
            if expected != found:
                return (f"request {request['id']}, {name}: recorded {_changed(expected, found)}, "
                        f"ours {_changed(found, expected)}")
    return None


def nanoseconds(seconds):
    return round(seconds * 1e9)


def _changed(value, other):
    """Return `value`, or of a long collection only the neighbourhood of what differs from `other`."""
    if isinstance(value, list) and isinstance(other, list) and len(value) > 12:
        at = next((i for i, (a, b) in enumerate(zip(value, other)) if a != b), min(len(value), len(other)))
        return f"[{len(value)} entries; from {at}: {value[at:at + 6]}]"
    if isinstance(value, dict) and isinstance(other, dict):
        return {key: item for key, item in value.items() if key not in other or other[key] != item}
    return value


def _brief(step):
    return {name: step[name] for name in ("t", "scheduled", "preempted") if name in step}
