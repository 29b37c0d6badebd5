"""summary.json: identity and metrics of a run."""
import json

from simulator.domain.run import Run
from simulator.results.cluster import PoolFacts
from simulator.results.fitness import fitness
from simulator.results.metrics import SCHEMA, summarise


def summary_of(run: Run, name: str, seed: int, bounds, pools: tuple[PoolFacts, ...] = (), weights=None) -> dict:
    """Return the content of summary.json.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None.
    pools : as the experiment has them; empty: it has none.
    weights : object with the keys of [fitness]; None: no fitness.
    """
    chunks = run.workload.chunks
    numbers = summarise(run, bounds, pools) if chunks is None else chunks.taker.summary(run)
    summary = {"schema": SCHEMA, "name": name, "seed": seed, **numbers}
    for part in run.parts:
        summary = _with_entries(summary, part.summary(run, summary), part.summary_before)
    return summary if weights is None else summary | {"fitness": fitness(summary, weights)}


def _with_entries(summary: dict, entries: dict, before: str) -> dict:
    """Return a summary with more entries in front of one of its keys; "": at its end.

    Remarks are appended; other entries that the summary has are replaced.
    """
    if not entries:
        return summary
    place, keys = list(summary).index(before) if before else len(summary), list(summary)
    order = dict.fromkeys([*keys[:place], *(key for key in entries if key not in summary), *keys[place:]])
    return order | summary | entries | {"diagnosis": [*summary["diagnosis"], *entries.get("diagnosis", ())]}


def json_text(content: dict) -> str:
    """Return JSON in the order of `content`; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
