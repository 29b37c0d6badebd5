"""As every_key_sections.py, for the keys of clients that an experiment lists."""
from support.every_key import ABSENT, acts, refuses

UNIFORM = {"distribution": "uniform", "min": 20, "max": 100}
SLOW = {"latency__base_us": 20_000.0}
OTHERS = 'load.mode = "stages": a client has timestamps or concurrency'


def client(**keys):
    """Return settings of a workload of two clients, the first with these keys."""
    plain = {"prompt_tokens": UNIFORM, "output_tokens": UNIFORM | {"min": 1, "max": 20}}
    return {"workload": {"type": "clients", "rate_per_s": 500.0, "num_requests": 30,
                         "clients": [{"id": "a"} | plain | keys, {"id": "b"} | plain]}}


def closed(**keys):
    """Return settings in which the first client has slots of its own."""
    return client(num_requests=10, load={"mode": "concurrency", "concurrency": 2} | keys)


def staged(**keys):
    """Return settings in which the first client has stages."""
    return client(load={"mode": "stages", "stages": [keys]})


def cohort(**keys):
    """Return settings in which the first client is a cohort."""
    settings = client()
    settings["workload"]["cohorts"] = [{"name": "c", "client": "a", "population": 3} | keys]
    return settings


def square(shape, **keys):
    """Return settings in which it sends at some times only; `keys` of the shape."""
    return cohort(window="square", **{shape: keys})


OF_COHORT = {
    "name": acts("c", "d", **cohort()), "client": acts("a", "b", **cohort()), "population": acts(1, 4, **cohort()),
    "join_s": acts(0.0, 0.03, **cohort()), "leave_s": acts(0.02, 10.0, **cohort()),
    "join_spread_s": acts(0.0, 0.05, **cohort()),
    "window": acts("square", "thin", **cohort(diurnal={"period_s": 0.05})),
    "diurnal.peak_hour": acts(0.0, 0.01 / 3600, **square("diurnal", period_s=0.05)),
    "diurnal.peak_to_trough": acts(1.0, 9.0, **square("diurnal", period_s=0.05)),
    "diurnal.period_s": acts(0.05, 0.03, **square("diurnal", peak_hour=0.0)),
    "spike.at_s": acts(0.0, 0.02, **square("spike", duration_s=0.03)),
    "spike.duration_s": acts(0.01, 0.03, **square("spike")),
    "drain.at_s": acts(0.0, 0.02, **square("drain", duration_s=0.05)),
    "drain.duration_s": acts(0.01, 0.1, **square("drain")),
}
OF_LOAD = {
    "mode": refuses("lanes", 'mode = "lanes" needs lanes', **client(load={})),
    "concurrency": acts(1, 3, **closed()),
    "think_time_s": acts(0.0, 0.05, **closed()),
    "think_time_s.distribution": refuses("constant", "think_time_s.mean: unknown key", **closed(
        think_time_s={"distribution": "exponential", "mean": 0.01})),
    "think_time_from": acts("end", "arrival", **closed(think_time_s=0.3)),
    "sessions_per_slot": refuses(2, "a client's requests are no sessions", **closed(unit="session")),
    "requests_per_slot": refuses(2, "requests_per_slot and ends_with take sessions_per_slot", **closed()),
    "ends_with": refuses("first_slot", "requests_per_slot and ends_with take sessions_per_slot", **closed()),
    "private_prefix_tokens": refuses(9, "load.private_prefix_tokens is of all requests", **closed()),
    "client_delay_s": acts(0.0, 0.01, **closed()),
    "ramp_up_s": acts(0.0, 0.05, **closed()),
    "max_in_flight": acts(0, 1, **client(load={}) | SLOW),
    "grace_s": refuses(1.0, "load.grace_s and load.tree_idle_cap_s are of all requests", **closed()),
    "snapshot": refuses("uniform", "does not read snapshot", **closed()),
    "recycle": refuses(True, "does not read recycle", **closed()),
    "tree_idle_cap_s": refuses(1.0, "load.grace_s and load.tree_idle_cap_s are of all requests", **closed()),
    "users": refuses(3, 'mode = "concurrency" does not read users', **closed()),
    "rate_per_s": refuses(3.0, 'mode = "concurrency" does not read rate_per_s', **closed()),
    "lanes": refuses(3, 'mode = "concurrency" does not read lanes', **closed()),
    "assign": refuses("dynamic", 'mode = "concurrency" does not read assign', **closed()),
    "stages[].concurrency": refuses(2, OTHERS, **staged(num_requests=3)),
    "stages[].rate_per_s": refuses(2.0, OTHERS, **staged(num_requests=3)),
    "stages[].process": refuses("constant", OTHERS, **staged(num_requests=3, rate_per_s=1.0)),
    "stages[].cv": refuses(2.0, OTHERS, **staged(num_requests=3, rate_per_s=1.0, process="gamma")),
    "stages[].ramp_up_s": refuses(2.0, OTHERS, **staged(num_requests=3, rate_per_s=1.0)),
    "stages[].max_in_flight": refuses(2, OTHERS, **staged(num_requests=3, rate_per_s=1.0)),
    "stages[].drain": refuses(True, OTHERS, **staged(num_requests=3, rate_per_s=1.0)),
    "stages[].num_requests": refuses(3, OTHERS, **staged(concurrency=2)),
    "stages[].duration_s": refuses(3.0, OTHERS, **staged(concurrency=2)),
    "stages[].interval_s": refuses(3.0, OTHERS, **staged(concurrency=2, num_requests=3)),
}
OF_CLIENT = {
    "id": acts("c", "d", **client()), "tenant": acts("x", ABSENT, **client()), "slo_class": acts("x", "y", **client()),
    "model": acts("x", ABSENT, **client()), "adapter": acts("x", ABSENT, **client()),
    "priority": acts(0, 5, **client()),
    "deadline_s": acts(0.005, 30.0, **client() | SLOW), "rate_share": acts(0.1, 10.0, **client()),
    "arrival.process": acts("poisson", "constant", **client()),
    "arrival.cv": acts(1.0, 3.0, **client(arrival={"process": "gamma"})),
    "prompt_tokens.distribution": acts("uniform", "zipf", **client()),
    "output_tokens.distribution": acts("uniform", "zipf", **client()),
    "prefix_group": acts("g", ABSENT, **client()), "prefix_length": acts(16, 64, **client(prefix_group="g")),
    "num_requests": acts(5, 10, **closed()),
    **{f"load.{key}": case for key, case in OF_LOAD.items()},
}
CLIENTS = {
    "workload:clients.format": refuses("servegen", "workload.rate_per_s: unknown key", **client()),
    "client_format:toml.rate_per_s": acts(100.0, 500.0, **client()),
    "client_format:toml.num_requests": acts(20, 30, **client()),
    "client_format:toml.duration_s": acts(0.02, 10.0, **client()),
    **{f"client_format:toml.clients[].{key}": case for key, case in OF_CLIENT.items()},
    **{f"client_format:toml.cohorts[].{key}": case for key, case in OF_COHORT.items()},
}
