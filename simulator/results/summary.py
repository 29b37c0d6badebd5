"""summary.json: identity and metrics of a run."""
import json

from simulator.domain.run import Run
from simulator.results.metrics import SCHEMA, summarise


def summary_of(run: Run, name: str, seed: int, bounds) -> dict:
    """Return the content of summary.json.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None.
    """
    return {"schema": SCHEMA, "name": name, "seed": seed, **summarise(run, bounds)}


def json_text(content: dict) -> str:
    """Return JSON in the order of `content`; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
