"""A day of the world: each plan of configs/world/world.toml in each cell, and the cheapest plan that keeps the bound.

`python tools/world.py --out DIR` writes two studies of kind "sweep": DIR/alone.toml with a point for each model, plan
and region, and DIR/joined.toml with a point for each model and plan that joins all regions; each cell is a seed.
`python -m simulator sweep` runs them, in parallel, and again only the runs that are missing. `--cells N` simulates N of
the cells, `--hours H` the beginning of the day, `--models`, `--regions` and `--plans` a part of the world; words that
this script does not know are those of `sweep`, for instance `--shard 0/3`, `--stop-after 8h`, `--dry-run`.

The share of the requests within the bound is of all requests of a model, so that 99 % within it are a p99 within it.
Costs are those of the simulated cells, times all cells over simulated ones.
"""
import argparse
import contextlib
import csv
import io
import json
import math
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator import cli, load_study
from simulator.study.planning.question import quoted
from simulator.study.sweep.trial import DONE, STATUSES

WORLD = Path(__file__).parents[1] / "configs/world/world.toml"
HOURS, HOUR_S = 24, 3600
NODES = {"h100-sxm-80gb": "dgx-h100", "h200-sxm-141gb": "hgx-h200"}
TOTALS = {"cost": "cost.total", "electricity": "energy.electricity_cost", "kwh": "energy.facility_kwh",
          "carbon_g": "energy.carbon_g"}
COUNTS = {name: f"requests.{name}" for name in ("injected", "waiting", "running")}
HEADS = ("model", "plan", "replicas", "within bound, %", "worst p99 TTFT, ms", "cost", "electricity", "t CO2", "")


class Point(NamedTuple):
    """A cell of one region, or the cells of all regions that a plan joins.

    keys : those that it lays over the cell's file.
    """

    model: str
    plan: str
    keys: dict[str, Any]


class Study(NamedTuple):
    """A study of cells that stay alone, or of joined cells, which take more memory."""

    cell: Path
    directory: Path
    points: list[Point]
    is_joined: bool


def studies_of(world: Mapping[str, Any], cell: Path, out: Path) -> list[Study]:
    """Return the studies that the chosen plans need."""
    mtbf_s = tomllib.loads(cell.read_text(encoding="utf-8"))["failures"][0]["mtbf_s"]
    joined, points = {plan["name"]: plan.get("is_joined", False) for plan in world["plans"]}, points_of(world, mtbf_s)
    parts: dict[bool, list[Point]] = {False: [], True: []}
    for point in points:
        parts[joined[point.plan]].append(point)
    return [Study(cell, out / ("joined" if is_joined else "alone"), own, is_joined)
            for is_joined, own in parts.items() if own]


def points_of(world: Mapping[str, Any], mtbf_of_gpu_s: float) -> Iterator[Point]:
    """Yield the points, model by model and plan by plan.

    mtbf_of_gpu_s : mean time between failures of one accelerator.
    """
    for model in world["models"]:
        for plan in world["plans"]:
            together = [world["regions"]] if plan.get("is_joined") else [[region] for region in world["regions"]]
            for regions in together:
                keys = keys_of(world, model, plan, regions)
                gpus = model["tensor_parallel"]
                yield Point(model["name"], plan["name"], keys | {"failures.0.mtbf_s": mtbf_of_gpu_s / gpus})


def keys_of(world: Mapping[str, Any], model: Mapping[str, Any], plan: Mapping[str, Any],
            regions: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keys of a model's cells in some regions."""
    card = model["accelerator"]
    replicas = replicas_of(model, plan)
    keys = {
        "model.name": model["name"], "hardware.name": card, "topology.tensor_parallel": model["tensor_parallel"],
        "topology.node": NODES[card], "slo.ttft_ms": model["ttft_ms"],
        "workload.rate_per_s": model["rate_per_s"] * len(regions),
        "workload.clients": [client_of(world["client"], region) for region in regions],
        "workload.cohorts": [cohort_of(region, world["peak_to_trough"]) for region in regions],
        "pools": [pool_of(world, region, card, replicas) for region in regions]}
    if plan.get("is_joined"):
        keys["cluster.regions"] = {
            "names": [region["name"] for region in regions], "pools": [[region["name"]] for region in regions],
            "latency_ms": [region["latency_ms"] for region in regions],
            "column": "tenant", "spill_at": world["spill_at"] * model["full_requests"]}
    if "busy" in plan:
        keys["autoscaling"] = world["autoscaling"] | {
            "targets": [{"metric": "requests", "average_value": plan["busy"] * model["full_requests"]}],
            "min_replicas": math.ceil(plan["least"] * replicas), "loading_delay": {"mean_s": model["load_s"]}}
    return keys


def replicas_of(model: Mapping[str, Any], plan: Mapping[str, Any]) -> int:
    """Return the replicas of a cell at time 0; of an autoscaled one, at most."""
    return math.ceil(plan["share"] * model["replicas"] - 1e-9)


def client_of(lengths: Mapping[str, Any], region: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client with all users of a region; its random streams go by its name."""
    return {"id": region["name"], "tenant": region["name"], **lengths}


def cohort_of(region: Mapping[str, Any], peak_to_trough: float) -> dict[str, Any]:
    """Return the course of a region's day: the peak is at 15:00 there."""
    peak_hour = (15 - region["utc_offset_h"]) % HOURS
    return {"name": region["name"], "client": region["name"], "population": 1, "window": "thin",
            "diurnal": {"peak_hour": float(peak_hour), "peak_to_trough": peak_to_trough}}


def pool_of(world: Mapping[str, Any], region: Mapping[str, Any], card: str, replicas: int) -> dict[str, Any]:
    """Return the replicas of a cell in a region, with the prices and emissions there."""
    price = world["prices"][card] * region["price_factor"]
    return {"name": region["name"], "replicas": replicas, "starts_at_hour": region["utc_offset_h"] % HOURS,
            "price_per_gpu_hour": [round(price * factor, 4) for factor in world["prices"]["by_hour"]],
            "carbon_g_per_kwh": [float(each) for each in region["carbon_g_per_kwh"]],
            "electricity_per_kwh": region["electricity_per_kwh"]}


def study_of(study: Study, cells: int) -> str:
    """Return a study as TOML."""
    lines = ["# Written by tools/world.py.", f"extends = {quoted(str(study.cell.resolve()))}", 'name = "world"', "",
             "[study]", 'kind = "sweep"', 'design = "list"', f"seeds = {cells}", "", "[study.statistics]",
             f"metrics = {quoted(['slo_attainment', 'ttft_ms.p99', *COUNTS.values(), *TOTALS.values()])}"]
    for point in study.points:
        lines += ["", "[[study.points]]", *(f"{quoted(key)} = {quoted(value)}" for key, value in point.keys.items())]
    return "\n".join(lines) + "\n"


def rows_of(world: Mapping[str, Any], points: list[Point], runs: np.ndarray, cells: int) -> list[dict[str, Any]]:
    """Return the results of each model and plan, scaled from the simulated cells to all.

    runs : /runs of the study, the cells of a point one after the other. cells : simulated, of each point.

    Raises
    ------
    ValueError
        A run is missing.
    """
    missing = int((runs["status"] != STATUSES.index(DONE)).sum())
    if missing or len(runs) != len(points) * cells:
        raise ValueError(f"{missing} of {len(runs)} runs are missing or failed: run the same command again")
    rows, scale = [], world["cells"] / cells
    plans = {point.plan for point in points}
    for model in world["models"]:
        for plan in (plan for plan in world["plans"] if plan["name"] in plans):
            own = np.repeat([(point.model, point.plan) == (model["name"], plan["name"]) for point in points], cells)
            found = {name: math.fsum(runs[own][key]) for name, key in (COUNTS | TOTALS).items()}
            ended = found["injected"] - found["waiting"] - found["running"]     # the others ran when the day ended
            within = math.fsum(runs[own]["slo_attainment"] * runs[own]["requests.injected"]) / ended
            rows.append({
                "model": model["name"], "plan": plan["name"], "simulated_requests": int(found["injected"]),
                "replicas": replicas_of(model, plan) * len(world["regions"]) * world["cells"], "within_share": within,
                "worst_p99_ttft_ms": float(runs[own]["ttft_ms.p99"].max()), "is_kept": within >= world["bound_share"],
                **{name: found[name] * scale for name in TOTALS}})
    return rows


def answer_of(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the cheapest plan of each model that keeps the bound; None: no plan does."""
    answer: dict[str, str | None] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        kept = [row for row in rows if row["model"] == model and row["is_kept"]]
        answer[model] = min(kept, key=lambda row: row["cost"])["plan"] if kept else None
    return answer


def text_of(rows: list[dict[str, Any]], answer: Mapping[str, str | None]) -> str:
    """Return the results as a table of Markdown, the chosen plan of each model marked."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    for row in rows:
        chosen = "cheapest" if answer[row["model"]] == row["plan"] else "" if row["is_kept"] else "misses"
        lines.append(f"| {row['model']} | `{row['plan']}` | {row['replicas']:,} | {100 * row['within_share']:.2f} | "
                     f"{row['worst_p99_ttft_ms']:,.0f} | {row['cost']:,.0f} | {row['electricity']:,.0f} | "
                     f"{row['carbon_g'] / 1e6:,.1f} | {chosen} |")
    return "\n".join(lines)


def walls_of(study: Study, cells: int) -> dict[str, float]:
    """Return the wall seconds of the runs of each plan, one process each."""
    with (study.directory / "timings.csv").open(encoding="utf-8") as file:
        walls_s = [float(row["wall_s"]) for row in csv.DictReader(file)]
    plans = [point.plan for point in study.points for _ in range(cells)]
    return {plan: math.fsum(each for name, each in zip(plans, walls_s, strict=True) if name == plan)
            for plan in dict.fromkeys(plans)}


def choose(world: dict[str, Any], chosen: Mapping[str, str | None]) -> None:
    """Keep the tables of each list with a chosen name; names have commas between, None: all are kept."""
    for key, names in chosen.items():
        if names is None:
            continue
        known = {table["name"]: number for number, table in enumerate(world[key])}
        if unknown := set(names.split(",")) - known.keys():
            raise SystemExit(f"--{key}: expected some of {', '.join(known)}, found {', '.join(sorted(unknown))}")
        numbers = [number for name, number in known.items() if name in names.split(",")]
        world[key] = [world[key][number] for number in numbers]
        if key == "regions":
            for region in world[key]:
                region["latency_ms"] = [region["latency_ms"][number] for number in numbers]


def simulated(study: Study, options: argparse.Namespace, others: list[str]) -> int:
    """Run the missing cells of a study; return the exit status of `sweep`.

    others : further words of `sweep`.
    """
    file = study.directory.with_name(f"{study.directory.name}.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(study_of(study, options.cells), encoding="utf-8")
    span = [f"--set={key}={options.hours * HOUR_S}" for key in ("horizon_s", "workload.duration_s")]
    jobs = options.joined_jobs if study.is_joined else options.jobs
    words = ["sweep", str(file), "--out", str(study.directory), "--quiet", "--jobs", jobs, *span, *others]
    if "--dry-run" in others:
        return cli.main(words)
    with contextlib.redirect_stdout(io.StringIO()):         # the points, with all keys of their pools
        return cli.main(words)


def main(words: list[str] | None = None, file: Path = WORLD) -> int:
    """Run the missing cells and print the answer; return the exit status of `sweep`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/world"), help="directory of both studies")
    parser.add_argument("--cells", type=int, help="cells to simulate of each model in each region; default: all")
    parser.add_argument("--hours", type=float, default=float(HOURS), help="simulated part of the day")
    parser.add_argument("--jobs", default="cores", help="processes side by side; default: the cores")
    parser.add_argument("--joined-jobs", default="1", help="of joined cells, each with the memory of a cell a region")
    for key in ("models", "regions", "plans"):
        parser.add_argument(f"--{key}", help=f"names of the {key} to simulate, with commas between; default: all")
    options, others = parser.parse_known_args(words)
    world = tomllib.loads(file.read_text(encoding="utf-8"))
    choose(world, {key: getattr(options, key) for key in ("models", "regions", "plans")})
    options.cells = options.cells or world["cells"]
    studies = studies_of(world, file.parent / world["cell"], options.out)
    status = max(simulated(study, options, others) for study in studies)
    if status or {"--dry-run", "--shard"} & {word.partition("=")[0] for word in others}:
        return status
    rows = [row for study in studies
            for row in rows_of(world, study.points, load_study(study.directory).runs, options.cells)]
    names = [model["name"] for model in world["models"]]
    rows.sort(key=lambda row: names.index(row["model"]))
    answer, walls_s = answer_of(rows), {}
    for study in studies:
        walls_s |= walls_of(study, options.cells)
    content = {"cells": options.cells, "of_cells": world["cells"], "hours": options.hours, "rows": rows,
               "answer": answer, "wall_s": walls_s}
    (options.out / "world.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(text_of(rows, answer))
    print(f"\n{options.cells} of {world['cells']} cells of each model in each region, {options.hours:g} h; "
          "processes ran " + ", ".join(f"{name} {wall_s:,.0f} s" for name, wall_s in walls_s.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
