"""The files of a plan: the experiment, and the studies over it, as people would write them."""
from simulator.study.planning.deployments import Deployment
from simulator.study.planning.question import SGLANG, VLLM, Question, quoted

EXPERIMENT = "experiment.toml"
STUDY, LARGEST, ROUTERS = "study.toml", "largest.toml", "routers.toml"
SERVER, SERVER_STUDY = "server.toml", "server_study.toml"
PART = "part_of_"               # begins the name of a study of fewer GPUs
MIN_TAIL = 10                   # requests beyond a percentile of a bound
REL_TOL = 0.03                  # of a largest rate
TIMES_IN_SYSTEM = 12            # a run lasts so many times as long as a request at the bounds of latencies
LEAST_REQUESTS = 4000           # of a run: MSER-5 cuts half at most, and a 99th percentile has MIN_TAIL beyond it
MOST_REQUESTS = {False: 10_000, True: 80_000}       # of a run, by whether it is one of a given rate
FEWEST = {"gpus": "min"}
FASTEST = {"ttft_ms.mean": "min"}              # of routers
HELD = {"rate": "max"}
SECONDS_OF_REQUEST = 10.0       # where no bound says how long a request may take


def experiment_text(question: Question, count: int) -> str:
    """Return the experiment: one replica of one GPU, which points of studies change.

    count : requests of a run.
    """
    version = {"vllm_version": question.version} if question.version and question.engine == VLLM else {}
    tables = {
        "model": question.model, "hardware": {"name": question.card},
        "engine": {"scheduler": question.engine, **version, "max_model_len": question.max_model_len},
        "cluster.routing": {"policy": "least_loaded"}, "latency": {"backend": "roofline"},
        **requests_tables(question, count)}
    return "\n".join(["# Written by `python -m simulator plan`: change it, and run the studies beside it again.",
                      "# Each run of a study has its own layout, replicas and rate, in place of those below.",
                      f"name = {quoted(question.name)}", "seed = 1", *lines_of_tables(tables), ""])


def requests_tables(question: Question, count: int) -> dict[str, dict]:
    """Return the tables of an experiment with requests and prices."""
    requests = question.requests
    workload = {"type": "synthetic", "num_requests": count,
                "arrival": {"process": "poisson", "rate_per_s": float(requests.rate or 1.0)},
                "prompt_tokens": {"distribution": "constant", "tokens": requests.prompt},
                "output_tokens": {"distribution": "constant", "tokens": requests.output}}
    return {"workload": workload} | ({} if question.price is None else {"prices": question.price})


def lines_of_tables(tables: dict[str, dict]) -> list[str]:
    """Return tables as lines of TOML."""
    return [line for name, table in tables.items()
            for line in ("", f"[{name}]", *(f"{key} = {quoted(value)}" for key, value in table.items()))]


def num_requests(question: Question, rate: float, is_offered: bool) -> int:
    """Return the requests of a run: for percentiles, and a steady state at a rate.

    is_offered : the rate is given, not searched for, which takes more runs.
    """
    limits = {key: min((each.limit for each in question.bounds.bounds if each.is_most and each.key.startswith(key)),
                       default=None) for key in ("ttft_ms", "tpot_ms")}
    seconds = SECONDS_OF_REQUEST
    if limits["tpot_ms"] is not None:
        seconds = ((limits["ttft_ms"] or 0.0) + limits["tpot_ms"] * question.requests.output) / 1000
    return int(min(max(LEAST_REQUESTS, TIMES_IN_SYSTEM * seconds * rate), MOST_REQUESTS[is_offered]))


def study_text(question: Question, name: str, deployments: list[Deployment], is_offered: bool, count: int,
               objectives: dict[str, str] | None = None) -> str:
    """Return a study of kind "tune" over deployments.

    Parameters
    ----------
    is_offered : at rates that are given; else each at its own largest rate.
    count : requests of a run.
    objectives : None: the fewest GPUs, or the largest rate.
    """
    kinds = ['kind = "tune"', 'layouts = ["aggregated", "disaggregated"]', 'design = "list"', 'search = "exhaustive"',
             f"limits = {{gpus = {question.gpus}}}"]
    if is_offered:
        kinds += ['load = "offered"', f"objectives = {quoted(objectives or FEWEST)}", *_looks(question, count)]
    else:
        kinds += largest_lines(question, count)
    lines = [*_heading(name), f'extends = "{EXPERIMENT}"', f"name = {quoted(question.name)}",
             f"workload = {{num_requests = {count}}}", *_transfer(question, deployments), "", "[study]", *kinds]
    for each in deployments:
        lines += ["", f"[[study.points]]                # {each.words}",
                  *(f"{quoted(key)} = {quoted(value)}" for key, value in each.point.items())]
    return "\n".join([*lines, ""])


def server_text(question: Question, count: int) -> str:
    """Return the study of the largest rate of a server as it is."""
    return "\n".join([*_heading(SERVER_STUDY), f'extends = "{SERVER}"', "", "[study]", 'kind = "tune"',
                      *largest_lines(question, count), ""])


def largest_lines(question: Question, count: int) -> list[str]:
    """Return the lines of [study] about each deployment's largest rate."""
    return ['load = "capacity"', 'objectives = {rate = "max"}', f"rel_tol = {REL_TOL}", "min_seeds = 1",
            "max_seeds = 1", *_looks(question, count)]


def _heading(name: str) -> list[str]:
    return ["# Written by `python -m simulator plan`; run it again, changed or not, with",
            f"#     python -m simulator tune {name} --out {name.removesuffix('.toml')}"]


def _looks(question: Question, count: int) -> list[str]:
    """Return the lines of [study.statistics] and [study.slo]."""
    risk = [] if question.model_confidence is None else [f"model_confidence = {question.model_confidence!r}"]
    return ["", "[study.statistics]", f"min_tail = {MIN_TAIL}", f"max_requests = {4 * count}", *risk, "",
            "[study.slo]", *_bounds(question)]


def _bounds(question: Question) -> list[str]:
    sides: dict[str, dict[str, float]] = {}
    for each in question.bounds.bounds:
        sides.setdefault(each.key, {})["max" if each.is_most else "min"] = each.limit
    backlog = [] if question.bounds.wants_stable else ['backlog = "any"']
    return [*(f"{quoted(key)} = {quoted(value)}" for key, value in sides.items()), *backlog]


def _transfer(question: Question, deployments: list[Deployment]) -> list[str]:
    """Return [kv_transfer] of split deployments, by the engine."""
    if question.engine != SGLANG or not any("pools.0.replicas" in each.point for each in deployments):
        return []
    return ['kv_transfer = {protocol = "sglang"}']
