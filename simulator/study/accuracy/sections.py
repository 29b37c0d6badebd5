"""Sections of the page that go over all data sets: engines and accelerators, ranking, worst rows."""
from statistics import median

from simulator.study.accuracy.case import NAMES
from simulator.study.accuracy.markdown import head, line
from simulator.study.accuracy.predict import OK
from simulator.study.accuracy.rows import Row
from simulator.study.accuracy.scoring import Score

WORST = 10
UNKNOWN = "not understood"
ENGINES_HEAD = """Medians over the data sets of an engine on an accelerator; "in sample" rows are left out.
"""
RANKING_HEAD = """Kendall's tau-b of predicted and measured values over the runs of a deployment, 1: the same order.
Choice: for each limit on TPOT between two measured values, the run (layout and clients) with the most clients per GPU
and TPOT that is predicted to keep it. "none": limits for which no run is predicted to keep it; "broken": chosen runs
that break the limit; "regret": throughput lost by the others beside the best run; all in per cent.
"""
WORST_HEAD = """Largest mean errors of one model and metric, with the cause where it is known.
"""


def engines(score: Score) -> str:
    """Return the table of medians by engine, version and accelerator."""
    says = {each["name"]: each for each in score.data_sets}
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in score.rows:
        if row.status == OK and row.mape_pct is not None and not row.in_sample:
            said = says[row.data_set]
            key = said["engine"], said["version"], row.gpu, row.load, row.metric, row.backend
            groups.setdefault(key, []).append(row)
    if not groups:
        return ""
    names = ["engine", "version", "accelerator", "load", "metric", "predictor", "data sets", "n", "MAPE, median",
             "bias, median"]
    lines = ["## Engines and accelerators", "", ENGINES_HEAD, *head(names, 6)]
    for key, rows in sorted(groups.items()):
        lines.append(line([*key[:4], NAMES[key[4]], key[5], len({row.data_set for row in rows}),
                           sum(row.n for row in rows),
                           f"{median(row.mape_pct for row in rows):.1f}",
                           f"{median(row.bias_pct for row in rows):+.1f}"]))
    return "\n".join([*lines, ""])


def ranking(score: Score) -> str:
    """Return the table of rankings."""
    if not score.rankings:
        return ""
    names = ["deployment", "predictor", "runs", "tau TTFT", "tau TPOT", "limits", "none", "broken", "regret"]
    lines = ["## Ranking", "", RANKING_HEAD, *head(names, 2)]
    for each in score.rankings:
        taus = [f"{each.kendall[metric]:.2f}" if metric in each.kendall else "-" for metric in ("ttft", "tpot")]
        shares = ["-" if value is None else f"{value:.1f}"
                  for value in (each.unanswered_pct, each.broken_pct, each.regret_pct)]
        lines.append(line([f"{each.model}, {each.gpu} ({each.data_set})", each.backend, each.runs, *taus,
                           each.questions or "-", *shares]))
    return "\n".join([*lines, ""])


def worst(score: Score) -> str:
    """Return the table of the worst rows of each backend, with their causes."""
    says = {each["name"]: each for each in score.data_sets}
    rows = []
    for backend in score.backends:
        mine = [row for row in score.rows if row.backend == backend and row.status == OK and row.mape_pct is not None]
        rows += sorted(mine, key=lambda row: -row.mape_pct)[:WORST]
    if not rows:
        return ""
    names = ["predictor", "deployment", "metric", "cause", "n", "MAPE", "bias"]
    lines = ["## Worst rows", "", WORST_HEAD, *head(names, 4)]
    lines += [line([row.backend, f"{row.model}, {row.gpu} ({row.data_set})", NAMES[row.metric],
                    _cause(says[row.data_set], row), row.n, f"{row.mape_pct:.1f}", f"{row.bias_pct:+.1f}"])
              for row in rows]
    return "\n".join([*lines, ""])


def _cause(said: dict, row: Row) -> str:
    return next((each["cause"] for each in said.get("causes", ())
                 if row.metric in each["metrics"] and each["model"] in (None, row.model)
                 and each["backend"] in (None, row.backend)), UNKNOWN)
