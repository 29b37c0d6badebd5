"""`python -m simulator support [MODEL] [GPU]`: measured prices and their substitutes, versions, errors seen."""
import argparse
import json
import sys
from typing import Any

from simulator.domain.facts import names
from simulator.domain.short_names import accelerator_named
from simulator.errors import InputErrors
from simulator.study.planning.question import model_named
from simulator.study.support import card_facts, engines, matrix, model_facts, models, pair_facts
from simulator.study.telling.said import accuracy_of, line_of
from simulator.study.telling.screen import lines_of, table_of

DONE = 0
BACKENDS = ("roofline", "operators")
IN_SUMMARY = ("products bfloat16", "experts bfloat16", "decode bfloat16")
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "makespan": "makespan", "throughput": "throughput"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help=(
        "a name of models/ or a repository on the hub; or an accelerator alone; default: all accelerators"))
    parser.add_argument("hardware", metavar="HARDWARE", nargs="?", help=(
        "accelerator, a name of hardware/ or its first parts: h100"))
    parser.add_argument("--config", metavar="FOLDER", help="folder with the model's config.json, in place of its name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> int:
    """Print the support of a model, an accelerator, or all; return the exit status.

    Raises
    ------
    InputErrors
        A model or an accelerator that is not known; both at once.
    """
    if options.model is None:
        if options.config is not None:
            raise InputErrors(["--config: expected a MODEL before it, as the name of what the folder describes"])
        return _show(options, {"hardware": matrix(), "models": models(), "engines": engines()}, _all)
    model, card, faults = None, None, []
    if options.hardware is None and options.config is None:
        card = _card_alone(options.model)
    try:
        card = card if options.hardware is None else _card(options.hardware)
    except InputErrors as errors:
        faults += errors.faults
    try:
        model = None if card is not None and options.hardware is None else model_named(options.model, options.config)
    except InputErrors as errors:
        faults += errors.faults
    if faults:
        raise InputErrors(faults)
    found: dict[str, Any] = {}
    if card is not None:
        found["hardware"] = card_facts(card)
    if model is not None:
        found["model"] = model_facts(*model)
    if card is not None and model is not None:
        found["prices"] = pair_facts(*model, card)
    found["accuracy"] = accuracy_of(BACKENDS)
    return _show(options, found | {"engines": engines()}, _some)


def _card_alone(text: str) -> str | None:
    """Return the accelerator that a word alone names; None: it names a model."""
    if text in names("model"):
        return None
    try:
        return _card(text)
    except InputErrors as errors:
        if " names " in errors.faults[0]:       # several cards
            raise
        return None


def _card(text: str) -> str:
    """Return the accelerator that a text names; other meanings of a short name are printed on stderr."""
    named = accelerator_named(text)
    if remark := named.remark(text):
        print(remark, file=sys.stderr)
    return named.name


def _show(options: argparse.Namespace, found: dict[str, Any], words_of) -> int:
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else words_of(found))
    return DONE


def _all(found: dict[str, Any]) -> str:
    """Return the summary of all accelerators, models and engines."""
    rows = [["hardware", "laws", "products", "experts", "attention", "defaults", "servers"]]
    rows += [[each["hardware"], each["laws"], *(_percent(each, name) for name in IN_SUMMARY),
              "known" if each["engine_defaults"] else "-", str(len(_servers(each["compared"])) or "-")]
             for each in found["hardware"]]
    head = ("laws: the tables of single operators behind the roofline's prices: the card's own, those of its "
            "generation, or joint laws of all others; then their mean error on 16-bit operators, without own tables "
            "that on cards left out; defaults: engines' by card; servers: data sets that predictions were compared to")
    return "\n".join([lines_of(head), "", table_of(rows, 1, (0, 1)), "", lines_of(
        f"models compared with servers: {', '.join(found['models'])}; all models of models/ are priced by their shape"),
        "", _engines(found["engines"])])


def _some(found: dict[str, Any]) -> str:
    """Return the facts of an accelerator, of a model, and of both together."""
    parts = []
    if "model" in found:
        each = found["model"]
        experts = ", experts" if each["experts"] else ""
        parts.append(f"{each['model']}: {each['parameters'] / 1e9:.1f}e9 weights; {', '.join(each['mixers'])}{experts}")
    if "hardware" in found:
        parts.append("\n".join(_card_lines(found["hardware"])))
    parts += [_prices(each) for each in found.get("prices", ())]
    parts.append(_errors(found))
    parts.append("\n".join(lines_of(line_of(each)) for each in found["accuracy"]))
    return "\n\n".join(lines_of(part) for part in [*parts, _engines(found["engines"])])


def _card_lines(each: dict[str, Any]) -> list[str]:
    tables = f"own tables of single operators, {each['tables']}" if each["tables"] else (
        "no tables of its own: joint laws of other generations" if each["laws"] == "joint" else
        f"no tables of its own: laws of the generation {each['generation']}")
    errors = ", ".join(f"{name} {value['mean_error']:.0%}" for name, value in each["errors"].items())
    return [f"{each['hardware']}: {each['title'] or each['architecture']}, {each['memory_gb']:.1f} GB, facts: "
            f"{each['data_sheet']}", f"roofline: {tables}; mean errors: {errors}", f"shares of peak: {each['shares']}",
            "single operators of this project: " + ("measured" if each["single_operators"] else "none measured yet"),
            "defaults of engines by card: " + ("known" if each["engine_defaults"] else
                                               "not known: engines' defaults without a card hold")]


def _prices(each: dict[str, Any]) -> str:
    if each["refusal"] is not None:
        return f"{each['backend']}: no prices: {each['refusal']}"
    rows = [["operator", "source"], *([name, how] for name, how in each["sources"].items())]
    body = table_of(rows, 1, (0, 1)) if each["sources"] else "sources of its operators are not told"
    return "\n".join([f"{each['backend']}:", body, *(f"replaced: {note}" for note in each["notes"])])


def _errors(found: dict[str, Any]) -> str:
    """Return errors of predictions: of the pair, else of the model elsewhere and of other models on the accelerator."""
    by_card, by_model = (found.get(key, {}).get("compared", []) for key in ("hardware", "model"))
    own = [row for row in by_card if row in by_model]
    shown = own or [*by_model, *by_card]
    if not shown:
        return "errors against servers: none seen, no server with either was compared"
    lead = "errors against servers, in per cent:" if own or "prices" not in found else (
        "errors against servers, in per cent: none seen of this pair; nearest:")
    rows = [["model", "hardware", "engine", "backend", "metric", "runs", "MAPE (bias)"]]
    rows += [[row["model"], row["hardware"], f"{row['engine']} {row['version']}".split(",")[0], row["backend"],
              METRICS.get(row["metric"], row["metric"]) + "*" * row["in_sample"], str(row["runs"]),
              f"{row['mape_pct']:.1f} ({row['bias_pct']:+.1f})"] for row in shown]
    alike = [number for number in range(2) if len({row[number] for row in rows[1:]}) == 1]     # once is enough
    rows = [[cell for number, cell in enumerate(row) if number not in alike] for row in rows]
    named = f" {', '.join(shown[0][('model', 'hardware')[number]] for number in alike)}" if alike else ""
    note = ["* fitted on these very runs"] if any(row["in_sample"] for row in shown) else []
    return "\n".join([f"{lead}{named}", table_of(rows, 2, range(len(rows[0]) - 2)), *note])


def _engines(rows: list[dict[str, Any]]) -> str:
    table = [["engine", "version", "flags", "recorded runs", "compared"]]
    for row in rows:
        counts = [f"{row['recorded']:,}", f"{row['compared']:,}"] if row["recorded"] else ["none", "-"]
        version = row["version"] + " (default)" * row["is_default"]
        table.append([row["engine"], version, "all" if row["flags"] else "-", *counts])
    return table_of(table, 2, (0, 1, 2))


def _servers(rows: list[dict[str, Any]]) -> set[tuple]:
    return {(row["model"], row["engine"], row["version"]) for row in rows}


def _percent(card: dict[str, Any], operator: str) -> str:
    return f"{card['errors'][operator]['mean_error']:.0%}"
