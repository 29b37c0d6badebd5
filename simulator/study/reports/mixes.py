"""The report of a search for the best mix of pools."""
from typing import Any

import numpy as np

from simulator.results.figures.chart import Chart, Labelled, Level, Panel, plural, table_of
from simulator.study.reports.page import Page, Section, section
from simulator.study.reports.texts import figure


def mix_page(name: str, content: dict[str, Any], other: dict[str, Any] | None, after: tuple[Section, ...],
             files: tuple[tuple[str, str], ...]) -> Page:
    """Return the report of a capacity search over mixes.

    Parameters
    ----------
    content : of its capacity.json. other : that of the search to compare with; None: none.
    after, files : sections and folded files at the end.
    """
    best, target = content["answer"], content["target_per_s"]
    says = (f"{_words(best)}: {plural(best['gpus'], 'GPU')}, {figure(best['price_per_hour'])} per hour, at "
            f"{figure(target)} requests/s." if best else f"No mix carries {figure(target)} requests/s.")
    more = (f"{plural(len(content['probes']), 'mix').replace('mixs', 'mixes')} tried, {content['skipped']:,} skipped, "
            f"whose bound is below the target; {len(content['undecided'])} undecided before the answer.")
    rows = [(str(number), _words(each), str(each["gpus"]), figure(each["price_per_hour"]), figure(each["bound_per_s"]),
             each["verdict"], "; ".join(each["reasons"])) for number, each in enumerate(content["probes"], 1)]
    kinds = [(kind["pool"], f"{kind['least']} to {kind['most']}", figure(kind["capacity_per_s"]),
              figure(kind["price_per_hour"]), str(kind["gpus"])) for kind in content["kinds"]]
    columns = ("pool", "replicas", "requests/s of one", "price per hour of one", "GPUs of one")
    before = [section("Pools", columns, kinds),
              section("Mixes", ("", "mix", "GPUs", "price per hour", "bound, requests/s", "verdict", "why"), rows,
                      "In the order in which they were tried.", "capacity.json")]
    before += [_against(name, content, other)] if other is not None else []
    return Page(name, says, more, best is not None, tuple(before), (_chart(content),) if rows else (), after, (),
                files)


def _words(mix: dict[str, Any]) -> str:
    return " + ".join(f"{count} {pool}" for pool, count in mix["replicas"].items() if count)


def _chart(content: dict[str, Any]) -> Chart:
    """Return the bounds of mixes against their prices."""
    probes = content["probes"]
    key = "price_per_hour" if any(each["price_per_hour"] for each in probes) else "gpus"
    label = "price per hour" if key == "price_per_hour" else "GPUs"
    marks: list[Any] = []
    for word, style in (("fail", 1), ("pass", 2)):
        chosen = [each for each in probes if each["verdict"].startswith(word)]
        if chosen:
            marks.append(Labelled(word, np.array([float(each[key]) for each in chosen]),
                                  np.array([float(each["bound_per_s"]) for each in chosen]),
                                  tuple(map(_words, chosen)), style))
    target = content["target_per_s"]
    marks.append(Level(target, f"target {figure(target)}"))
    top = 1.2 * max(target, *(each["bound_per_s"] for each in probes))
    says = (f"{len(probes)} mixes were tried in order of price, until one carried the target; the bound is what their "
            "replicas carry alone, times what a common queue may add.")
    return Chart("mixes", "What mixes carry at most, and cost", says, label,
                 (Panel("bound, requests/s", tuple(marks), (0, top)),),
                 table_of(("mix", label, "bound, requests/s", "verdict"), [_words(each) for each in probes],
                          [float(each[key]) for each in probes], [float(each["bound_per_s"]) for each in probes],
                          [each["verdict"] for each in probes]))


def _against(name: str, content: dict[str, Any], other: dict[str, Any]) -> Section:
    title = f"Against {other.get('name', '')}"
    if "kinds" not in other:
        return Section(title, (), (), "The other search is not one of mixes: nothing is compared.")
    rows = [(each_name, _words(each["answer"]) if each["answer"] else "none",
             str(each["answer"]["gpus"]) if each["answer"] else "-",
             figure(each["answer"]["price_per_hour"]) if each["answer"] else "-", figure(each["target_per_s"]))
            for each_name, each in ((name, content), (other.get("name", ""), other))]
    return section(title, ("", "best mix", "GPUs", "price per hour", "target, requests/s"), rows)
