"""Two values of each key of drawn workloads that lead to different results, or one that is refused."""
import json

from support.every_key import acts, refuses

POISSON = {"process": "poisson", "rate_per_s": 500.0}
LENGTHS = {"prompt_tokens": {"distribution": "uniform", "min": 20, "max": 100},
           "output_tokens": {"distribution": "uniform", "max": 20}}
SYNTHETIC = {"type": "synthetic", "num_requests": 30}
UNIFORM = {"type": "uniform", "min_tokens": 20, "max_tokens": 100, "prefill_to_decode_ratio": 5.0}


def of(kind, entries):
    """Return entries of one registered class."""
    return {f"{kind}.{key}": case for key, case in entries.items()}


def drawn(**keys):
    """Return settings of a synthetic workload with lengths of its own."""
    return {"workload": SYNTHETIC | {"arrival": POISSON} | LENGTHS | keys}


def preset(**keys):
    """Return settings of one whose preset is chosen."""
    return {"workload": SYNTHETIC | {"arrival": POISSON} | keys}


def rated(**keys):
    """Return settings of one with a changing rate."""
    return drawn(arrival={"process": "poisson"}, rate=keys)


def vidur(**keys):
    """Return settings of Vidur's requests."""
    base = {"type": "vidur", "num_requests": 30, "interval_generator": {"type": "poisson", "qps": 500.0},
            "length_generator": UNIFORM}
    return {"workload": base | keys}


def gaps(**keys):
    """Return the same with gaps whose generator is chosen."""
    return vidur(interval_generator=keys)


def totals(**keys):
    """Return the same with lengths whose generator is chosen."""
    return vidur(length_generator=keys)


def ramps(process):
    """Return entries of a rate that rises with the number of the request."""
    def rising(**keys):
        given = {"ramp": "linear", "start_rate_per_s": 100.0, "end_rate_per_s": 1000.0} | keys
        return drawn(arrival=given)
    stretches = {} if process == "constant" else {        # whose equal gaps end at N / rate already
        "rescale_to_rate": acts(False, True, **drawn(arrival={"rate_per_s": 100.0}))}
    return of(f"arrival:{process}", {
        "ramp": acts("linear", "exponential", **rising()), "start_rate_per_s": acts(100.0, 200.0, **rising()),
        "end_rate_per_s": acts(500.0, 1000.0, **rising()), **stretches})


def tool(name, **keys):
    """Return settings of requests of one's own that the preset of a tool sends."""
    return {"workload": {"type": "synthetic", "preset": name} | LENGTHS | keys}


def of_lengths(name, **keys):
    """Return entries of what the requests are of such a preset."""
    def shared(**system):
        return tool(name, **keys, system_prompts={"num_tokens": 64} | system)
    many = {"num_prompts": 20}
    return of(f"preset:{name}", {
        "prompt_tokens.distribution": acts("uniform", "zipf", **tool(name, **keys)),
        "output_tokens.distribution": acts("uniform", "zipf", **tool(name, **keys)),
        "system_prompts.share": acts(0.1, 1.0, **shared()), "system_prompts.num_tokens": acts(32, 64, **shared()),
        "system_prompts.num_prompts": acts(1, 20, **shared()),
        "system_prompts.popularity": acts("uniform", "zipf", **shared(**many, exponent=3.0)),
        "system_prompts.exponent": acts(0.5, 5.0, **shared(**many, popularity="zipf")),
        "system_prompts.num_questions": acts(1, 2, **shared(num_prompts=3))})


def of_vllm_bench(name, **keys):
    """Return entries of what all presets of `vllm bench serve` read."""
    def sent(**more):
        return {"workload": SYNTHETIC | {"preset": name} | keys | more}
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 100.0, "ramp_up_end_rps": 1000.0}
    return of(f"preset:{name}", {
        "request_rate": acts(200.0, 500.0, **sent()), "burstiness": acts(0.3, 3.0, **sent(request_rate=500.0)),
        "max_concurrency": acts(2, 4, **sent()), "num_warmups": acts(0, 2, **sent(max_concurrency=4)),
        "ramp_up_strategy": acts("linear", "exponential", **sent(**ramp)),
        "ramp_up_start_rps": acts(100.0, 200.0, **sent(**ramp)),
        "ramp_up_end_rps": acts(500.0, 1000.0, **sent(**ramp))})


def guidellm(**keys):
    """Return settings of a profile of GuideLLM."""
    return tool("guidellm", **{"num_requests": 30} | keys)


def in_stages(*stages, **keys):
    """Return settings of inference-perf."""
    return tool("inference_perf", stages=list(stages), **{"interval_s": 0.1} | (keys or {"workers": 1}))


def aiperf(**keys):
    """Return settings of AIPerf."""
    return tool("aiperf", **{"num_requests": 30} | keys)


SYSTEM = drawn(system_prompts={"num_tokens": 64})
MANY = {"num_tokens": 64, "num_prompts": 20}
SPIKES = {"base_per_s": 500.0, "spikes": [{"at_s": 0.01, "duration_s": 0.02, "factor": 5.0}]}
STATES = {"rates_per_s": [100.0, 1000.0], "leave_per_s": [20.0, 20.0], "start": 0}
DAY = {"mean_per_s": 500.0, "period_s": 0.1, "peak_hour": 0.0}
STEPS = {"times_s": [0.0, 0.02], "rates_per_s": [200.0, 900.0]}
RANDOM = {"input_len": 60, "output_len": 10}
GROUPS = {"num_prefixes": 3, "prefix_len": 64, "suffix_len": 20, "output_len": 10}
SLOTS = {"type": "synthetic", "isl": 80, "osl": 10, "concurrency": 3}
ZIPF = {"min_tokens": 20, "max_tokens": 100, "prefill_to_decode_ratio": 5.0}

BOTH = {"profile": "concurrent", "streams": 3, "duration_s": 0.5}
TEN = {"rate_per_s": 100.0, "duration_s": 0.1}
SLOTTED = in_stages({"concurrency_level": 2, "num_requests": 5}, load_type="concurrent")
WARM = {"request_rate": 500.0, "warmup_request_count": 5}
WARM_SLOTS = {"concurrency": 4, "warmup_request_count": 5}

PRESETS = {
    **of("preset:none", {
        "prompt_tokens.distribution": acts("uniform", "zipf", **drawn()),
        "output_tokens.distribution": acts("uniform", "zipf", **drawn()),
        "system_prompts.share": acts(0.1, 1.0, **SYSTEM), "system_prompts.num_tokens": acts(32, 64, **SYSTEM),
        "system_prompts.num_prompts": acts(1, 20, **SYSTEM),
        "system_prompts.popularity": acts("uniform", "zipf", **drawn(system_prompts=MANY | {"exponent": 3.0})),
        "system_prompts.exponent": acts(0.5, 5.0, **drawn(system_prompts=MANY | {"popularity": "zipf"})),
        "system_prompts.num_questions": acts(1, 2, **drawn(system_prompts={"num_tokens": 64, "num_prompts": 3}))}),
    **of("preset:vllm_random", {
        "input_len": acts(40, 80, **preset(**RANDOM)), "output_len": acts(5, 10, **preset(**RANDOM)),
        "input_range_ratio": acts(0.0, 0.5, **preset(**RANDOM)),
        "output_range_ratio": acts(0.0, 0.5, **preset(**RANDOM)), "prefix_len": acts(0, 64, **preset(**RANDOM)),
        "seed": acts(0, 1, **preset(**RANDOM, input_range_ratio=0.5)),
        "special_tokens": acts(0, 20, **preset(**RANDOM))}),
    **of("preset:vllm_prefix_repetition", {
        "num_prefixes": acts(3, 10, **preset(**GROUPS)), "prefix_len": acts(32, 64, **preset(**GROUPS)),
        "suffix_len": acts(20, 40, **preset(**GROUPS)), "output_len": acts(5, 10, **preset(**GROUPS)),
        "seed": acts(0, 1, **preset(**GROUPS))}),
    **of("preset:inferencex", {
        "isl": acts(60, 80, workload=SLOTS), "osl": acts(5, 10, workload=SLOTS),
        "ratio": acts(0.5, 1.0, workload=SLOTS), "concurrency": acts(2, 3, workload=SLOTS)}),
    **of_vllm_bench("vllm_random", **RANDOM), **of_vllm_bench("vllm_prefix_repetition", **GROUPS),
    **of_lengths("guidellm", num_requests=30, profile="constant", rate_per_s=500.0),
    **of("preset:guidellm", {
        "profile": acts("constant", "poisson", **guidellm(rate_per_s=500.0)),
        "rate_per_s": acts(200.0, 500.0, **guidellm(profile="constant")),
        "streams": acts(2, 4, **guidellm(profile="concurrent")),
        "max_concurrency": acts(2, 4, **guidellm(profile="throughput")),
        "rampup_s": acts(0.0, 0.1, **guidellm(profile="constant", rate_per_s=500.0)),
        "random_seed": acts(42, 43, **guidellm(profile="poisson", rate_per_s=500.0)),
        "warmup_phase": acts(0.0, 0.2, **guidellm(profile="synchronous")),
        "warmup_phase_mode": acts("duration", "requests", **guidellm(**BOTH, warmup_phase=0.3)),
        "cooldown_phase": acts(0.0, 0.2, **guidellm(profile="synchronous")),
        "cooldown_phase_mode": acts("duration", "requests", **guidellm(**BOTH, cooldown_phase=0.3))}),
    **of_lengths("inference_perf", workers=1, stages=[TEN]),
    **of("preset:inference_perf", {
        "load_type": acts("constant", "poisson", **in_stages(TEN)),
        "stages[].rate_per_s": acts(100.0, 200.0, **in_stages(TEN)),
        "stages[].duration_s": acts(0.1, 0.2, **in_stages(TEN)),
        "stages[].concurrency_level": acts(1, 3, **SLOTTED),
        "stages[].num_requests": acts(5, 8, **SLOTTED),
        "interval_s": acts(0.1, 0.2, **in_stages(TEN, TEN)),
        "workers": acts(1, 2, **in_stages(TEN, workers=1, worker_max_concurrency=1)),
        "worker_max_concurrency": acts(1, 2, **in_stages(TEN))}),
    **of_lengths("aiperf", num_requests=30, request_rate=500.0),
    **of("preset:aiperf", {
        "request_rate": acts(200.0, 500.0, **aiperf()), "concurrency": acts(2, 4, **aiperf()),
        "arrival_pattern": acts("poisson", "constant", **aiperf(request_rate=500.0)),
        "arrival_smoothness": acts(0.3, 3.0, **aiperf(request_rate=500.0, arrival_pattern="gamma")),
        "request_rate_ramp_duration_s": acts(0.0, 0.2, **aiperf(request_rate=500.0)),
        "concurrency_ramp_duration_s": acts(0.0, 0.2, **aiperf(concurrency=4)),
        "user_centric_rate": acts(50.0, 100.0, **aiperf(num_users=4)),
        "num_users": acts(2, 4, **aiperf(user_centric_rate=100.0)),
        "prefill_concurrency": refuses(2, "hears of the end of others, not of their first token", **aiperf(
            concurrency=4)),
        "benchmark_grace_period_s": acts(0.0, 1.0, **aiperf(concurrency=4, duration_s=0.1)),
        "request_cancellation_rate": acts(0.0, 50.0, **aiperf(request_rate=500.0)),
        "request_cancellation_delay_s": acts(0.0, 0.02, **aiperf(request_rate=500.0, request_cancellation_rate=50.0)),
        "warmup_request_count": acts(2, 4, **aiperf(concurrency=4)),
        "warmup_duration_s": acts(0.02, 0.2, **aiperf(request_rate=100.0)),
        "warmup_request_rate": acts(50.0, 100.0, **aiperf(**WARM)),
        "warmup_arrival_pattern": acts("poisson", "constant", **aiperf(**WARM)),
        "warmup_request_rate_ramp_duration_s": acts(0.0, 0.2, **aiperf(**WARM)),
        "warmup_concurrency": acts(1, 3, **aiperf(**WARM_SLOTS)),
        "warmup_concurrency_ramp_duration_s": acts(0.0, 0.2, **aiperf(**WARM_SLOTS))}),
    "preset:vllm_burstgpt.path": refuses("no-such.csv", "no-such.csv", **preset()),
    "preset:vllm_sharegpt.path": refuses("no-such.csv", "no-such.csv", **preset()),
}
RATES = {
    **of("rate:piecewise", {
        "times_s": acts([0.0, 0.01], [0.0, 0.03], **rated(**STEPS)),
        "rates_per_s": acts([200.0, 900.0], [300.0, 900.0], **rated(**STEPS)),
        "interpolate": acts("step", "linear", **rated(**STEPS))}),
    **of("rate:diurnal", {
        "mean_per_s": acts(400.0, 500.0, **rated(**DAY)), "peak_hour": acts(0.0, 1e-5, **rated(**DAY)),
        "peak_to_trough": acts(2.0, 8.0, **rated(**DAY)), "period_s": acts(0.1, 0.2, **rated(**DAY))}),
    **of("rate:spike", {
        "base_per_s": acts(400.0, 500.0, **rated(**SPIKES)), "spikes[].at_s": acts(0.01, 0.02, **rated(**SPIKES)),
        "spikes[].duration_s": acts(0.002, 0.02, **rated(**SPIKES)),
        "spikes[].factor": acts(2.0, 5.0, **rated(**SPIKES))}),
    **of("rate:mmpp", {
        "rates_per_s": acts([100.0, 1000.0], [200.0, 1000.0], **rated(**STATES)),
        "leave_per_s": acts([20.0, 20.0], [90.0, 20.0], **rated(**STATES)),
        "matrix_per_s": acts([[0.0, 20.0], [20.0, 0.0]], [[0.0, 90.0], [20.0, 0.0]], **rated(
            rates_per_s=[100.0, 1000.0], start=0)),
        "start": acts(0, 1, **rated(**STATES))}),
    "rate:counts.path": refuses("no-such.csv", "no-such.csv", workload=SYNTHETIC | LENGTHS),
}
VIDUR = {
    **of("workload:vidur", {
        "num_requests": acts(20, 30, **vidur()), "duration_s": acts(0.02, 0.04, **vidur()),
        "seed": acts(1, 2, **vidur()),
        "interval_generator.type": acts("poisson", "gamma", **vidur()),
        "length_generator.type": acts("uniform", "zipf", **vidur())}),
    "vidur_interval:poisson.qps": acts(400.0, 500.0, **gaps()),
    **of("vidur_interval:gamma", {"qps": acts(400.0, 500.0, **gaps()), "cv": acts(1.0, 2.0, **gaps(qps=500.0))}),
    **of("vidur_length:fixed", {
        "prefill_tokens": acts(40, 80, **totals(decode_tokens=10)),
        "decode_tokens": acts(5, 10, **totals(prefill_tokens=40))}),
    **{f"vidur_length:{name}.{key}": acts(*values, **totals(**ZIPF)) for name in ("uniform", "zipf")
       for key, values in {
           "min_tokens": (20, 50), "max_tokens": (80, 100), "prefill_to_decode_ratio": (2.0, 5.0)}.items()},
    **of("vidur_length:zipf", {
        "theta": acts(0.2, 0.9, **totals(**ZIPF)), "scramble": acts(False, True, **totals(**ZIPF)),
        "seed": acts(1, 2, **totals(**ZIPF))}),
}
DRAWN_WORKLOADS = PRESETS | RATES | VIDUR | {
    **of("workload:synthetic", {
        "num_requests": acts(20, 30, **drawn()), "duration_s": acts(0.02, 10.0, **drawn()),
        "time_scale": acts(1.0, 2.0, **drawn()), "arrival.process": acts("poisson", "constant", **drawn()),
        "rate.kind": refuses("diurnal", "workload.rate.mean_per_s: missing", **drawn()),
        "preset": refuses("vllm_random", "workload.prompt_tokens: unknown key", **drawn())}),
    **ramps("constant"), **ramps("gamma"), **ramps("poisson"), **ramps("weibull"),
}
OF_BENCH = ("request_rate", "burstiness", "max_concurrency", "num_warmups", "ramp_up_strategy", "ramp_up_start_rps",
            "ramp_up_end_rps")
FILE_KEYS = (
    "workload:trace.time_origin", *(f"trace_format:csv.{key}" for key in ("columns", "time_unit", "on_bad_row")),
    *(f"preset:vllm_{dataset}.{key}" for dataset in ("burstgpt", "sharegpt") for key in OF_BENCH),
    "arrival:trace.path", "arrival:trace.column", "rate:counts.bin_s", "rate:counts.scale", "rate:counts.inside",
    "preset:vllm_burstgpt.seed", "preset:vllm_sharegpt.output_len", "preset:vllm_sharegpt.seed",
    "length_distribution:trace.path", "length_distribution:trace.column", "length_distribution:trace.min",
    "length_distribution:trace.max", "vidur_interval:trace.trace_file", "vidur_interval:trace.start_time",
    "vidur_interval:trace.end_time", "vidur_interval:trace.time_scale_factor", "vidur_length:trace.trace_file",
    "vidur_length:trace.prefill_scale_factor", "vidur_length:trace.decode_scale_factor",
    "vidur_length:trace.max_tokens", "vidur_length:trace.seed",
    *(f"workload:vllm_multi_turn.{key}" for key in (
        "path", "seed", "least_user_tokens", "num_clients", "max_active_conversations", "max_num_requests", "max_turns",
        "request_rate_per_s", "warmup_step", "early_stop", "conversation_sampling", "request_timeout_s")))
# A file of vLLM's multi-turn benchmark: conversations of two to five turns.
CONVERSATIONS = {
    "filetype": "generate_conversations", "num_conversations": 12, "text_files": ["a.txt"],
    "prompt_input": {"num_turns": {"distribution": "uniform", "min": 3, "max": 9},
                     "prefix_num_tokens": {"distribution": "constant", "value": 32},
                     "num_tokens": {"distribution": "uniform", "min": 10, "max": 30}},
    "prompt_output": {"num_tokens": {"distribution": "uniform", "min": 2, "max": 12}}}

def multi_turn(path):
    """Return the entries of vLLM's multi-turn benchmark, whose file of conversations lies at `path`."""
    def turns(**keys):
        return {"workload": {"type": "vllm_multi_turn", "path": path, "num_clients": 2,
                             "max_active_conversations": 4} | keys}

    return {
        "path": refuses("no-such.json", "no-such.json", **turns()), "seed": acts(0, 1, **turns()),
        "least_user_tokens": acts(1, 25, **turns()), "num_clients": acts(1, 2, **turns()),
        "max_active_conversations": acts(2, 6, **turns()), "max_num_requests": acts(6, 12, **turns()),
        "max_turns": acts(2, 4, **turns()), "request_rate_per_s": acts(2.0, 5.0, **turns()),
        "warmup_step": acts(False, True, **turns()), "early_stop": acts(False, True, **turns(num_clients=3)),
        "conversation_sampling": refuses("random", "would have to be drawn while requests are served", **turns()),
        "request_timeout_s": acts(0.05, 120.0, **turns())}


def of_tables(written):
    """Return the entries of tables of requests, which `written` writes."""
    late = {"workload": {"type": "trace", "path": written("late.csv", [
        "arrived_at,num_prefill_tokens,num_decode_tokens", "0.5,9,9", "0.6,9,9"])}}
    log = {"workload": {"type": "trace", "path": written("log.csv", ["a,b,isl,osl", "0,0,9,9", "10,20,9,9"]),
                        "columns": {"arrived_at": "a"}}}
    bad = {"workload": {"type": "trace", "path": written("bad.csv", ["time,isl,osl", "0,9,9", "x,9,9"])}}
    return {
        **of("trace_format:csv", {
            "columns": acts({"arrived_at": "a"}, {"arrived_at": "b"}, **log), "time_unit": acts("s", "ms", **log),
            "on_bad_row": refuses("refuse", "expected a number of seconds", **bad)}),
        "workload:trace.time_origin": acts("first_arrival", "trace", **late),
    }


def of_files(folder):
    """Return the entries of `FILE_KEYS`, whose files lie in a folder."""
    def written(name, lines):
        (folder / name).write_text("\n".join(lines) + "\n")
        return str(folder / name)
    table = written("drawn.csv", ["arrived_at,b,num_prefill_tokens,num_decode_tokens", *(
        f"{i / 500},{i / 250},{20 + i % 7 * 9},{5 + i % 5}" for i in range(40))])
    counts = written("counts.csv", ["count", "9", "21"])
    burst = written("burst.csv", ["Timestamp,Model,Request tokens,Response tokens", *(
        f"{i},GPT-4,{20 + i},{5 + i % 5}" for i in range(50))])
    stamps = written("stamps.csv", ["arrival_time", *(f"1970-01-04 12:00:{i:02}" for i in range(1, 60))])
    times, column = drawn(arrival={"path": table}), drawn(output_tokens={"path": table, "column": "num_decode_tokens"})
    bins = {"workload": {"type": "synthetic", "rate": {"path": counts, "bin_s": 0.05}} | LENGTHS}
    stamped, rows = gaps(trace_file=stamps), totals(trace_file=table)
    del stamped["workload"]["num_requests"]
    talks = written("talks.json", [json.dumps(CONVERSATIONS)])
    return {
        **of_tables(written),
        **of("workload:vllm_multi_turn", multi_turn(talks)),
        **of("arrival:trace", {"path": refuses("no-such.csv", "no-such.csv", **drawn(arrival={})),
                               "column": acts("arrived_at", "b", **times)}),
        **of("rate:counts", {"bin_s": acts(0.05, 0.1, **bins), "scale": acts(1.0, 2.0, **bins),
                             "inside": acts("even", "uniform", **bins)}),
        "preset:vllm_burstgpt.seed": acts(0, 1, **preset(path=burst)),
        **of_vllm_bench("vllm_burstgpt", path=burst), **of_vllm_bench("vllm_sharegpt", path=table),
        **of("preset:vllm_sharegpt", {"output_len": acts(5, 9, **preset(path=table)),
                                      "seed": acts(0, 1, **preset(path=table))}),
        **of("length_distribution:trace", {
            "path": refuses("no-such.csv", "no-such.csv", **drawn(output_tokens={"column": "b"})),
            "column": acts("num_decode_tokens", "num_prefill_tokens", **column),
            "min": acts(0, 20, **column), "max": acts(6, 200, **column)}),
        **of("vidur_interval:trace", {
            "trace_file": refuses("no-such.csv", "no-such.csv", **gaps()),
            "start_time": acts("1970-01-04 12:00:00", "1970-01-04 12:00:55", **stamped),
            "end_time": acts("1970-01-04 12:00:30", "1970-01-04 12:00:40", **stamped),
            "time_scale_factor": acts(0.01, 0.02, **stamped)}),
        **of("vidur_length:trace", {
            "trace_file": refuses("no-such.csv", "no-such.csv", **totals()),
            "prefill_scale_factor": acts(1.0, 2.0, **rows), "decode_scale_factor": acts(1.0, 2.0, **rows),
            "max_tokens": acts(50, 100, **rows), "seed": acts(1, 2, **rows)}),
    }
