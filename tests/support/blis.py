"""Recorded runs of BLIS under ../shared/goldens/blis, and the same requests for our engine.

A case is a folder with the command and what came of it; which version ran it stands in that, too. For the latency
models alone, BLIS forms batches as vLLM does as long as KV blocks suffice, so the engine runs them under our vLLM
scheduler with the limits of BLIS. BLIS counts whole microseconds and truncates each host time by itself; the delay
before the queue is therefore added to arrivals here, and what is added to token times, to the results. Of vLLM's
versions it is 0.10 that chunks prompts as BLIS does.
"""
import csv
import gzip
import json
import re
import shlex
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

from simulator.scheduling.vllm import VllmParameters
from simulator.workload.build import build_workload
from simulator.workload.columns import in_arrival_order
from simulator.workload.formats.native_csv import NativeCsv
from support.blis_flags import DEFAULTS_OF, left_out, options_of, settings, unknown_flags
from support.blis_yaml import read_yaml
from support.engine import record
from support.goldens import GOLDENS

FOLDER = GOLDENS / "blis"
HELD_BACK = ("batch", "background")       # classes that v0.7.1 lets in when no request of another is left
DECIDERS = {"always": "always", "never": "never", "prefix-threshold": "prefix_threshold"}   # of pools: ours
GATHERING = ("naive", "allgather_reducescatter")        # names of --moe-comm-backend; all others are all-to-all
VERSIONS = {"blis": "head", "blis-bb": "bb", "blis-old": "v071", "blis-tier": "v069"}   # by folder of the program
SPEC_KEYS = {"version", "seed", "category", "aggregate_rate", "num_requests", "clients"}    # nothing more is drawn
UNEXPLAINED_COLUMNS = ("vllm_priority",)      # of a trace: what they do to a run is not modelled
# Flags that the comparison of latency models with our vLLM scheduler understands, where they are not at their default
LATENCY_FLAGS = {
    "block-size-in-tokens", "dp", "hardware", "hardware-config", "horizon", "latency-model",
    "long-prefill-token-threshold", "max-num-batched-tokens", "max-num-seqs", "model", "model-config-folder",
    "moe-comm-backend", "tp", "trace-data", "trace-output", "cache-signal-delay", "snapshot-refresh-interval",
    "counterfactual-k", "trace-level"}


class Case:
    """One recorded run.

    version : "head", "bb" (v0.7.10), "v071", "v069" or an older one. options : {flag: text} of the command; settings :
    of the command, the policy file and the version's defaults. requests : rows of its trace, with whole prompts.
    num_blocks : of the KV cache. step_us : start of every step. results : what it reported, by request id.
    """

    def __init__(self, folder):
        self.name, self.folder = folder.name, folder
        place, command, *_ = (folder / "command.txt").read_text(encoding="utf-8").splitlines()
        words = shlex.split(command)
        self.command, self.options = words[1], options_of(words[2:])
        program = Path(place).name
        self.version = self.output.get("binary") or VERSIONS.get(program, program)

    def __str__(self):
        return self.name

    # ---- what was asked for

    @cached_property
    def settings(self):
        return settings(self.options, self.version, self.policies)

    @cached_property
    def policies(self):
        return read_yaml(self.file("policy-config").read_text(encoding="utf-8")) if self.file("policy-config") else {}

    @cached_property
    def lora(self):
        """Return what its file says of LoRA adapters; empty: there is none."""
        path = self.file("lora-config")
        return read_yaml(path.read_text(encoding="utf-8"))["lora"] if path else {}

    @cached_property
    def header(self):
        path = self.file("trace-header") or self.exported(".yaml")
        return read_yaml(path.read_text(encoding="utf-8")) if path else {}

    @property
    def kv_offload(self):
        """Return what the header of the trace says of a chain of KV tiers; None: there is none."""
        return self.header.get("kv_offload")

    @property
    def levels(self):
        """Return what it says of those below host memory."""
        return (self.kv_offload or {}).get("secondary_tiers") or []

    @cached_property
    def spec(self):
        return read_yaml(self.file("workload-spec").read_text(encoding="utf-8")) if self.file("workload-spec") else {}

    def file(self, flag):
        """Return the file or folder that a flag names, which lies in the case's folder or in _unit; None: none does."""
        name = Path(self.options.get(flag, "")).name
        found = (folder / name for folder in (self.folder, FOLDER / "_unit"))
        return next((path for path in found if name and path.exists()), None)

    def exported(self, suffix):
        """Return a file of the trace that `run` exported; None: it did not."""
        path = self.folder / (Path(self.options.get("trace-output", "")).name + suffix)
        return path if self.command == "run" and path.name != suffix and path.exists() else None

    @cached_property
    def trace_path(self):
        return self.file("trace-data") or self.exported(".csv")

    @cached_property
    def rows(self):
        with open(self.trace_path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @cached_property
    def requests(self):
        return _requests(self.rows)

    @property
    def is_closed_loop(self):
        """Say whether a turn of a session comes after the end of the one before it."""
        return self.settings["session-mode"] == "closed-loop"

    @property
    def num_users(self):
        """Return the users of `run` who send one request after the other."""
        return self.number("concurrency") if self.command == "run" else 0

    @property
    def is_specified(self):
        """Say whether the requests of `run` are those of its workload spec, in which nothing is drawn."""
        clients = self.spec.get("clients") or ()
        kinds = {(each.get("arrival") or {}).get("process") for each in clients} | {
            each[what].get("type") for each in clients for what in ("input_distribution", "output_distribution")}
        return self.trace_path is None and not self.spec.keys() - SPEC_KEYS and kinds == {"constant"}

    @cached_property
    def num_requests(self):
        if self.num_users or self.is_specified:
            return int(self.number("num-requests") or self.spec["num_requests"])
        return len(self.requests)

    @cached_property
    def rounds(self):
        """Return (session, round) of those requests that have one, by our name."""
        if self.num_users:
            return {self.our_name(each["id"]): _round_of(each["id"]) for each in self.output["requests"]}
        return {f"request_{row['request_id']}": (row["session_id"], int(row["round_index"]))
                for row in ([] if self.is_specified else self.rows) if row["session_id"]}

    def our_name(self, name):
        """Return what a request of BLIS's is called here.

        Who is sent because another ended is `session_<session>_round_<round>_<number>` there, numbered from 1 as they
        are made. Here it is a row of the trace; of users, who are all alike, the next one.
        """
        made = re.fullmatch(r"session_(.*)_round_(\d+)_(\d+)", name)
        if self.num_users or self.is_specified:
            return str(self.num_users - 1 + int(made[3]) if made else int(name.removeprefix("request_")))
        return self._rows_by_round[made[1], int(made[2])] if made and self.is_closed_loop else name

    @cached_property
    def _rows_by_round(self):
        return {place: name for name, place in self.rounds.items()}

    @property
    def seed(self):
        """Return the seed of the run, of which that of the router follows."""
        return int(self.options.get("seed") or self.spec.get("seed") or 42)

    @property
    def latency_model(self):
        """Return the backend: as given; else, up to v0.7.10, blackbox where there are coefficients."""
        if self.settings["latency-model"]:
            return self.settings["latency-model"]
        if self.version == "head":
            return "trained-physics"
        return "blackbox" if "alpha-coeffs" in self.options and "beta-coeffs" in self.options else "roofline"

    def number(self, flag):
        return int(self.settings[flag])

    def is_on(self, flag):
        return self.settings[flag] not in ("false", "False", "0", "f", "F")

    # ---- what came of it

    @cached_property
    def output(self):
        return json.loads((self.folder / "output.json").read_bytes())

    @cached_property
    def results(self):
        return {self.our_name(each["id"]): each for each in self.output["requests"]}

    def reports(self):
        """Yield (replica, what was reported of it), first of the whole run: None."""
        yield None, self.output["aggregate"]
        for each in self.output.get("per_instance") or ():
            yield int(each["instance_id"].removeprefix("instance_")), each

    @cached_property
    def num_blocks(self):
        return int(next(self.log(r"with (\d+) KV blocks")))

    @cached_property
    def alpha(self):
        """Return the host times that held, from the log."""
        return self._coefficients("alpha")

    @cached_property
    def beta(self):
        return self._coefficients("beta")

    @cached_property
    def max_model_len(self):
        """Return the longest text: as given, else as BLIS worked it out from model and KV cache; None: any length."""
        derived = [*self.log(r"auto-derived max-model-len=(\d+)"), *self.log(r"capping to (\d+) tokens")]
        return self.number("max-model-len") or (int(derived[-1]) if derived else None)

    @cached_property
    def held_back(self):
        """Ids of the requests that waited until no other was left."""
        return set(self.log(r"req (\w+) deferred"))

    @cached_property
    def step_us(self):
        return [int(at) for at in self.log(r"<< StepEvent at (\d+) ticks")]

    @cached_property
    def left_us(self):
        """When the last token of a request left the engine, by id; that of the part after its prompt, if it has two."""
        return {self.our_name(name.removesuffix("_decode")): int(at)
                for name, at in self.log(r"<< RequestLeft: (\w+) at (\d+) ticks")}

    @cached_property
    def pools(self):
        """Replicas for prompts, for what follows, and for both, as the log tells; None: all are alike."""
        found = [*self.log(r"PD disaggregation enabled: (\d+) prefill, (\d+) decode, (\d+) shared")]
        return tuple(map(int, found[0])) if found else None

    @cached_property
    def legs_scheduled_us(self):
        """When the two parts of a request were scheduled, {(id, "prefill" or "decode"): time}."""
        return {(name, part): int(at) for name, part, at in self.log(
            r"<< Schedule: (\w+)_(prefill|decode) at (\d+) ticks")}

    @property
    def overlaps_itself(self):
        """Say whether a step began while the last one of all other requests was still executing.

        BLIS lets a batch go when its step begins. If all its requests complete in it and none waits, a request that
        queues before the end starts a step at once, beside the one that still executes.
        """
        end_us = 0
        for step, completed in self.log(r"(?:<< StepEvent at (\d+) ticks|Finished req: ID: (\w+) )"):
            if step and int(step) < end_us:
                return True
            end_us = max(end_us, self.left_us.get(completed, 0))
        return False

    def _coefficients(self, name):
        return tuple(map(float, next(self.log(rf"{name}Coeffs=\[([^\]]*)\]")).split()))

    def log(self, pattern):
        """Yield what the pattern finds, line by line: its group, or a tuple of them."""
        with gzip.open(self.folder / "events.log.gz", "rt", encoding="utf-8") as log:
            yield from (found[1] if len(found.groups()) == 1 else found.groups()
                        for found in map(re.compile(pattern).search, log) if found)

    # ---- what is compared

    def obstacle(self):
        """Return why the case is not repeated; None if it is. Told by what the case holds."""
        unknown = unknown_flags(self.options)
        assert not unknown, f"{self}: flags of which nothing is known here: --{', --'.join(unknown)}"
        reason = left_out(self.options, self.policies)
        if reason:
            return reason
        if any(float(each.get("latency_jitter_stddev") or 0) for each in self.levels):
            return "times of copies that BLIS draws"
        if self.version not in DEFAULTS_OF:
            return f"a version with rules of its own: {self.version}"
        if self.num_users:
            return self._obstacle_in_users()
        if self.is_specified:
            return self._obstacle_in_results()
        if self.trace_path is None:
            return "a workload that BLIS draws itself, and does not export"
        if self.latency_model == "trained-roofline":
            return "trained-roofline is no backend of ours"
        return self._obstacle_in_rows() or self._obstacle_in_results()

    def _obstacle_in_users(self):
        bounds = [(self.options.get(f"{what}-tokens-min"), self.options.get(f"{what}-tokens-max"))
                  for what in ("prompt", "output")]
        if any(low is None or low != high for low, high in bounds):
            return "lengths that BLIS draws"
        return None

    def _obstacle_in_rows(self):
        columns = [name for name in UNEXPLAINED_COLUMNS if any(row.get(name) for row in self.rows)]
        columns += ["adapter"] * (not self.lora and any(row.get("adapter") for row in self.rows))
        if columns:
            return f"columns of the trace whose effect is not modelled: {', '.join(columns)}"
        if any(row["model"] not in ("", self.settings["model"]) for row in self.rows):
            return "requests of a model that no replica serves"
        if self.command == "run" and any(row["session_id"] for row in self.rows):
            return "closed-loop sessions: a turn arrives when the one before it is complete"
        if any(int(row.get("slo_target_us") or 0) for row in self.rows):
            return "SLO targets of single requests"
        return None

    def _obstacle_in_results(self):
        found = self.output["aggregate"]
        stuck = found["preemption_count"] or found["still_queued"] or found["still_running"]
        if self.version == "v071" and stuck:
            return "v0.7.1 under KV pressure: blocks lose their hashes otherwise, and a run may never end"
        return None

    def experiment_obstacle(self):
        """Return why an experiment file of ours cannot say what was run; None if it can."""
        if self.pools and self.settings["pd-decider"] not in DECIDERS:
            return f"the decider {self.settings['pd-decider']}"
        if self.number("dp") > 1:
            return "data-parallel ranks that form one batch: ours form one each"
        return None

    def latency_obstacle(self):
        """Return why our vLLM scheduler cannot stand in for BLIS here; None if it can."""
        defaults = settings({}, self.version, {})
        foreign = {flag for flag, value in self.settings.items() if value != defaults[flag]} - LATENCY_FLAGS
        if foreign:
            return f"not part of this comparison: --{', --'.join(sorted(foreign))}"
        size = self.number("block-size-in-tokens")
        if sum(-(-(each.prompt_tokens + each.output_tokens) // size) for each in self.requests) > self.num_blocks:
            return "KV blocks may not suffice, and BLIS has an answer of its own to that"
        if self.held_back:
            return "v0.7.1 lets batch and background requests in when no other is left"
        if any(each.output_tokens == 0 or each.deadline_us for each in self.requests):
            return "requests without output or with a deadline"
        if any(each.shared_tokens == each.prompt_tokens for each in self.requests):
            return "BLIS computes nothing of a prompt that is wholly in the cache, vLLM its last token"
        if self.overlaps_itself:
            return "BLIS runs two steps of one instance at once"
        return None


def cases():
    """Return all recorded cases, in order of name: folders with a command and what came of it."""
    folders = sorted(path.parent for path in FOLDER.rglob("command.txt"))
    return [Case(folder) for folder in folders if (folder / "output.json").exists()]


def run(case, latency, queue_us):
    """Run a case on our engine; return its `Recording` and, by row, the ids of its requests.

    queue_us : returns, for the tokens of a prompt, the whole microseconds before it queues.
    """
    trace = NativeCsv().read("trace.csv", _trace_text(case.requests, queue_us).encode())
    workload = build_workload(in_arrival_order(trace))
    latency.set_host(0.0, 1.0)
    parameters = VllmParameters(
        max_num_seqs=case.number("max-num-seqs"), max_num_batched_tokens=case.number("max-num-batched-tokens"),
        long_prefill_token_threshold=case.number("long-prefill-token-threshold"), vllm_version="0.10")
    recording = record(workload, parameters, latency, details=False, block_size=case.number("block-size-in-tokens"),
                       max_model_len=131_072, num_gpu_blocks=case.num_blocks + 1)
    return recording, [int(name) for name in workload.request_ids]


def found_results(case, recording, ids, output_us, completion_us):
    """Return {BLIS's id: (first scheduled, TTFT, E2E latency)} in microseconds, as BLIS reports them.

    output_us : what BLIS adds to TTFT and to every gap between tokens. completion_us : to E2E latency, once.
    """
    found = {}
    for number, row in zip(ids, recording.requests, strict=True):
        request = case.requests[number]
        scheduled, first, last = (int(row[name]) / 1000 for name in ("scheduled_ns", "first_token_ns", "completed_ns"))
        found[request.id] = (
            scheduled, first - request.arrival_us + output_us,
            last - request.arrival_us + output_us * request.output_tokens + completion_us)
    return found


def expected_results(case):
    """Return what BLIS reported, as `found_results` does."""
    return {name: (each["schedule_ticks"][0], each["ttft_us"], each["e2e_us"]) for name, each in case.results.items()}


def _requests(rows):
    """Return the requests; a prompt is its group's prefix, as long as the first row of it says, and its own tokens."""
    lengths, found = {}, []
    for row in rows:
        group = row["prefix_group"]
        shared = lengths.setdefault(group, int(row["prefix_length"]) if group else 0)
        own = (0 if group else int(row["server_input_tokens"])) or int(row["input_tokens"])
        found.append(SimpleNamespace(
            id=f"request_{row['request_id']}", arrival_us=int(row["send_time_us"]) or int(row["arrival_time_us"]),
            group=group, shared_tokens=shared, prompt_tokens=shared + own, output_tokens=int(row["output_tokens"]),
            deadline_us=int(row["deadline_us"])))
    return found


def _round_of(name):
    """Return session and round of a user's request by BLIS's name of it."""
    made = re.fullmatch(r"session_(.*)_round_(\d+)_\d+", name)
    return (made[1], int(made[2])) if made else (
        f"concurrency_distribution_user_{name.removeprefix('request_')}", 0)


def _trace_text(requests, queue_us):
    lines = ["request_id,arrived_at,num_prefill_tokens,num_decode_tokens,prompt"]
    for number, each in enumerate(requests):
        arrival_us = each.arrival_us + queue_us(each.prompt_tokens)
        shared = f"{each.group}:{each.shared_tokens}/" if each.shared_tokens else ""
        lines.append(f"{number},{arrival_us // 10**6}.{arrival_us % 10**6:06d},{each.prompt_tokens},"
                     f"{each.output_tokens},{shared}:{each.prompt_tokens - each.shared_tokens}")
    return "\n".join(lines) + "\n"
