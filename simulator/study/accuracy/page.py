"""score.md: a page made from score.json alone."""
from collections.abc import Iterable, Mapping
from statistics import median

from simulator.study.accuracy.ablation import METRICS, NOTHING, Ablated
from simulator.study.accuracy.case import NAMES
from simulator.study.accuracy.chosen import Chosen
from simulator.study.accuracy.markdown import head, line
from simulator.study.accuracy.predict import OK
from simulator.study.accuracy.rows import BURSTS, OTHER, SPLIT, Row
from simulator.study.accuracy.scoring import Overall, Score
from simulator.study.accuracy.sections import engines, ranking, worst

HEAD = """# How far predictions are from measurements

Made by `python -m simulator score`, commit {revision}{overrides}. Errors are those of runs
of a deployment, or of single requests where a replay recorded them, in per cent; n counts them. APE is |predicted /
measured - 1|, MAPE its mean; bias is the mean of predicted / measured - 1, "mean" the error of the mean, r Pearson's
correlation, KS the distance of Kolmogorov and Smirnov; "outside" the share of iterations for which tables had no answer
of their own. "-": not defined or not known. Nothing is fitted to these data unless "in sample" says so. Numbers of
others are those they published.
"""
PRICES_HEAD = """MAPE (bias) of `operators` in per cent without one price, taken away by its key, the others kept, where
prompts and decodes share replicas.
"=": as with all prices. A bias that grows without a price is explained by it; one that falls is compensated elsewhere.
"""
CHOSEN_HEAD = """Errors of `operators` in per cent, where prompts and decodes share replicas. Each deployment is left
out in turn: a price of the table above is kept if the mean error of the other deployments grows without it, and the
deployment is simulated with the prices kept. No constant of a price is fitted to a deployment: the measurements could
decide this choice alone.
"""
OWN = """## Measurements of yours

`python -m simulator import FILE --as measured --out FOLDER` converts the output of a load generator. Then FOLDER's
dataset.toml needs its `[experiment]`: the server, as in an experiment. `python -m simulator score --out BOARD --add
FOLDER` scores it beside the others, now and with each later score of BOARD. To publish a data set, send FOLDER as a new
folder of bench/accuracy, its files in it (paths begin with ./), with source, licence, machine, version, date and
purpose; or publish BOARD as it is: score.md names the commit, points.csv has each pair.
"""
COVERAGE = '"covered": runs with the measured value inside their interval, `[latency] uncertainty`, in per cent.\n'
COLUMNS = {"n": "n", "mape_pct": "MAPE", "median_ape_pct": "median APE", "bias_pct": "bias", "mean_error_pct": "mean",
           "r": "r", "p50_error_pct": "p50", "p90_error_pct": "p90", "p99_error_pct": "p99", "ks": "KS",
           "outside_pct": "outside", "noise_pct": "noise"}
COVERED = {"coverage_pct": "covered"}            # shown where some row has it
LOADS = (OTHER, BURSTS, SPLIT)
SIGNED = ("bias_pct", "mean_error_pct", "p50_error_pct", "p90_error_pct", "p99_error_pct")
PURPOSES = {"held": ("Held data", "They were not used while prices were made."),
            "development": ("Development data", "Used while prices were made: they say less than held data.")}


def page(score: Score) -> str:
    """Return the page, in Markdown."""
    overrides = f", with {', '.join(score.overrides)}" if score.overrides else ""
    parts = [HEAD.format(revision=score.revision or "unknown", overrides=overrides)]
    if any(row.coverage_pct is not None for row in score.rows):
        parts.append(COVERAGE)
    for purpose, (title, words) in PURPOSES.items():
        for is_in_sample in (False, True):
            rows = [row for row in score.rows
                    if row.status == OK and (row.purpose, row.in_sample) == (purpose, is_in_sample)]
            heading = f"## {title}{', in sample' if is_in_sample else ''}"
            note = "These predictors were fitted on the very data." if is_in_sample else words
            for level in dict.fromkeys(row.level for row in rows):
                of_level = [row for row in rows if row.level == level]
                parts.append(f"{heading}: level {level}\n\n{note}\n\n{_medians(score.overall, of_level[0])}")
                parts += [_deployment(of_level, place) for place in dict.fromkeys(map(_place, of_level))]
    parts += [engines(score), ranking(score), worst(score)]
    parts.append(_ablations(score.ablations))
    parts.append(_chosen(score))
    parts.append(_missing(score.rows))
    parts += [_measured(score), OWN]
    return "\n".join(filter(None, parts))


def in_short(score: Score, backend: str) -> str:
    """Return a line about a backend: medians over data sets that it was not fitted on."""
    found = {(each.load, each.metric): f"{each.mape_pct:.0f}" for each in score.overall
             if (each.backend, each.in_sample, each.published) == (backend, False, False)}
    parts = []
    for load in LOADS:
        if known := [metric for metric in METRICS if (load, metric) in found]:
            parts.append(f"{load} {', '.join(f'{NAMES[metric]} {found[load, metric]}' for metric in known)} %")
    return f"MAPE of real servers, median: {'; '.join(parts)}; docs/accuracy.md" if parts else ""


def _medians(overall: Iterable[Overall], like: Row) -> str:
    """Return the table of medians over data sets with the level, purpose and sample of a row."""
    lines = head(["load", "predictor", "metric", "data sets", "MAPE, median", "bias, median"], 3)
    for load in LOADS:
        lines += [line([load, each.backend, NAMES[each.metric], each.data_sets, f"{each.mape_pct:.1f}",
                        f"{each.bias_pct:+.1f}"])
                  for each in overall if (each.load, each.purpose, each.in_sample, each.level) == (
                      load, like.purpose, like.in_sample, like.level)]
    return "\n".join([*lines, ""])


def _place(row: Row | Ablated | Chosen) -> tuple[str, str, str]:
    return row.data_set, row.model, row.gpu


def _deployment(rows: list[Row], place: tuple[str, str, str]) -> str:
    data_set, model, gpu = place
    mine = [row for row in rows if _place(row) == place]
    columns = COLUMNS | (COVERED if any(row.coverage_pct is not None for row in mine) else {})
    lines = [f"### {model}, {gpu} ({data_set})", "", *head(["metric", "predictor", *columns.values()], 2)]
    for metric in NAMES:
        lines += [line([NAMES[metric], row.backend, *(_text(row, name) for name in columns)])
                  for row in mine if row.metric == metric]
    if lost := sorted({(row.backend, row.not_completed) for row in mine if row.not_completed}):
        lines += ["", "; ".join(f"{backend}: {count} requests did not end, and are in no number"
                                for backend, count in lost) + "."]
    return "\n".join([*lines, ""])


def _ablations(ablations: Iterable[Ablated]) -> str:
    """Return the table of the score without each price; all deployments."""
    found = {(each.without, each.data_set, each.model, each.gpu, each.metric): each for each in ablations}
    if not found:
        return ""
    places = list(dict.fromkeys(key[1:4] for key in found))
    columns = [(place, metric) for place in places for metric in METRICS
               if (NOTHING, *place, metric) in found and found[NOTHING, *place, metric].mape_pct is not None]
    lines = ["## Contribution of each price", "", PRICES_HEAD,
             *head(["without", "by", *(f"{place[0]} {NAMES[metric]}" for place, metric in columns)], 2)]
    for name, overrides in dict.fromkeys((each.without, each.overrides) for each in found.values()):
        cells = [_without(found, name, place, metric) for place, metric in columns]
        lines.append(line([name or "nothing: all prices", " ".join(f"`{each}`" for each in overrides) or "-", *cells]))
    return "\n".join([*lines, ""])


def _chosen(score: Score) -> str:
    """Return the table of deployments left out of the choice of prices, beside all prices."""
    if not score.chosen:
        return ""
    with_all = {(*_place(each), each.metric): each for each in score.ablations if each.without == NOTHING}
    lines = ["## Deployments left out", "", CHOSEN_HEAD,
             *head(["deployment", "metric", "prices that the others drop", "MAPE, all prices", "MAPE, left out",
                   "median APE, left out", "bias, left out"], 3)]
    for each in score.chosen:
        before = with_all[(*_place(each), each.metric)]
        if each.mape_pct is not None:
            lines.append(line([f"{each.model}, {each.gpu} ({each.data_set})", NAMES[each.metric],
                               ", ".join(each.dropped) or "none", f"{before.mape_pct:.1f}", f"{each.mape_pct:.1f}",
                               f"{each.median_ape_pct:.1f}", f"{each.bias_pct:+.1f}"]))
    lines += ["", *(_median_left_out(score.chosen, metric) for metric in METRICS)]
    return "\n".join([*lines, ""])


def _median_left_out(chosen: Iterable[Chosen], metric: str) -> str:
    """Return a line: the median over deployments of the median error, each left out."""
    errors = [each.median_ape_pct for each in chosen if each.metric == metric and each.median_ape_pct is not None]
    if not errors:
        return f"- {NAMES[metric]}: none compared."
    return f"- {NAMES[metric]}, median APE: {median(errors):.1f} % (median of {len(errors)} deployments left out)."


def _without(found: Mapping[tuple, Ablated], name: str, place: tuple[str, str, str], metric: str) -> str:
    all_prices, each = found[NOTHING, *place, metric], found.get((name, *place, metric))
    if each is None or each.mape_pct is None:
        return "refused"
    same = name != NOTHING and (each.mape_pct, each.bias_pct) == (all_prices.mape_pct, all_prices.bias_pct)
    return "=" if same else f"{each.mape_pct:.1f} ({each.bias_pct:+.1f})"


def _missing(rows: Iterable[Row]) -> str:
    names = ["data set", "predictor", "model, GPU", "metric", "status", "runs", "reason"]
    lines = ["## Not compared", "", *head(names, len(names))]
    missing = [row for row in rows if row.status != OK]
    lines += [line([row.data_set, row.backend, ", ".join(filter(None, (row.model, row.gpu))) or "all",
                     NAMES.get(row.metric, "all"), row.status, row.n or "-", row.reason.replace("|", "/")])
              for row in missing]
    return "\n".join([*lines, ""]) if missing else ""


def _measured(score: Score) -> str:
    lines = ["## Measurements", ""]
    for each in score.data_sets:
        fits = ", ".join(each["fits"]) or "none"
        lines.append(f"- **{each['name']}** ({each['purpose']}, {each['level']}): "
                     f"{each['measured']}. {each['machine']}; "
                     f"{each['engine']}, version: {each['version']}; date: {each['date']}. "
                     f"Source: {each['source']}; {each['licence']}. In the sample of: {fits}." + "".join(
                         f" {peer['name']}: {peer['version']}." for peer in each["peers"]))
        lines += [f"  - `{file['path']}`, SHA-256 {file['sha256']}" for file in each["files"]]
    return "\n".join([*lines, ""])


def _text(row: Row, name: str) -> str:
    value = getattr(row, name)
    if value is None:
        return "-"
    if name == "n":
        return f"{value:,}"
    if name in ("r", "ks"):
        return f"{value:.3f}"
    return f"{value:+.1f}" if name in SIGNED else f"{value:.1f}"
