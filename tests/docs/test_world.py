"""A day of the world in small: each plan in some cells, the sums over cells, the choice of the cheapest plan."""
import importlib.util
import json

import numpy as np
import pytest
import tomli

from simulator.config.load import load_experiment
from support.pages import ROOT

SPEC = importlib.util.spec_from_file_location("world", ROOT / "tools/world.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
SMALL = ("--cells=1", "--hours=0.005", "--regions=virginia,tokyo", "--plans=fixed,hpa_lean,joined", "--jobs=1",
         "--models=llama-3.1-8b,deepseek-v3")


@pytest.fixture
def world():
    return tomli.loads(tool.WORLD.read_text())


def runs_of(*rows):
    """Return runs; each row (injected, running, share within the bound, cost)."""
    names = ["slo_attainment", "ttft_ms.p99", *tool.COUNTS.values(), *tool.TOTALS.values()]
    table = np.zeros(len(rows), [("status", "i1"), *((name, "f8") for name in names)])
    table["status"] = tool.STATUSES.index(tool.DONE)
    for record, (injected, running, share, cost) in zip(table, rows, strict=True):
        record["requests.injected"], record["requests.running"] = injected, running
        record["slo_attainment"], record["cost.total"], record["ttft_ms.p99"] = share, cost, cost / 10
    return table


def test_all_plans_run_in_small_and_a_second_call_runs_nothing_again(tmp_path, capsys):
    words = [f"--out={tmp_path}/small", *SMALL]

    first = tool.main(words), capsys.readouterr().out
    segments = set((tmp_path / "small").glob("*/segments/*"))
    again = tool.main(words), capsys.readouterr().out

    content = json.loads((tmp_path / "small/world.json").read_text())
    assert first == again
    assert first[0] == 0
    assert first[1].startswith("| model | plan |")
    assert set((tmp_path / "small").glob("*/segments/*")) == segments
    assert [(row["model"], row["plan"]) for row in content["rows"]] == [
        (model, plan) for model in ("llama-3.1-8b", "deepseek-v3") for plan in ("fixed", "hpa_lean", "joined")]
    fixed = content["rows"][0]      # 18 s of 8 H100 at 7 pm in Virginia and 9 am in Tokyo, times 50 cells
    assert fixed["cost"] == pytest.approx(50 * 8 * 3.0 * (1.0 * 1.0 + 1.2 * 1.1) * 18 / 3600)
    assert fixed["replicas"] == 800
    assert min(row["carbon_g"] for row in content["rows"]) > 0


def test_the_whole_world_has_ten_thousand_replicas_and_its_plans_are_experiments(world):
    points = list(tool.points_of(world, 1e8))

    assert len(points) == 3 * (4 * 5 + 2)
    fixed = [pool for point in points if point.plan == "fixed" for pool in point.keys["pools"]]
    assert 50 * sum(pool["replicas"] for pool in fixed) == 10_000
    joined = next(point.keys for point in points if point.plan == "joined_lean")
    assert [pool["replicas"] for pool in joined["pools"]] == [6] * 5         # 0.7 of 8, rounded up
    assert [pool["starts_at_hour"] for pool in joined["pools"]] == [19, 16, 1, 9, 21]
    keys = {key: value for key, value in joined.items() if not key.startswith("failures")}
    assert load_experiment(tool.WORLD.with_name("cell.toml")).pools[0].starts_at_hour == 19
    assert load_experiment(tool.WORLD.with_name("cell.toml"), keys).cluster.regions.latency_ms[1][0] == 30.0


def test_sums_weigh_cells_by_their_requests_and_are_scaled_to_all(world):
    tool.choose(world, {"models": "llama-3.1-8b", "regions": "virginia,tokyo", "plans": "fixed,fixed_lean"})
    points = list(tool.points_of(world, 1e8))
    # two cells of virginia and two of tokyo; 100 requests ran when the day ended
    fixed = [(1000, 0, 1.0, 50.0), (1000, 0, 1.0, 50.0), (1100, 100, 0.89, 60.0), (2000, 0, 1.0, 60.0)]
    lean = [(1000, 0, 0.98, 40.0)] * 4

    rows = tool.rows_of(world, points, runs_of(*fixed, *lean), 2)

    assert [row["cost"] for row in rows] == [220 * 25, 160 * 25]
    assert [row["within_share"] for row in rows] == pytest.approx([(4000 + 979) / 5000, 0.98])
    assert [row["is_kept"] for row in rows] == [True, False]
    assert [row["worst_p99_ttft_ms"] for row in rows] == [6.0, 4.0]
    assert tool.answer_of(rows) == {"llama-3.1-8b": "fixed"}
    assert tool.answer_of([row | {"is_kept": True} for row in rows]) == {"llama-3.1-8b": "fixed_lean"}
    assert tool.answer_of([row | {"is_kept": False} for row in rows]) == {"llama-3.1-8b": None}
    assert "| `fixed` | 800 | 99.58 | 6 | 5,500 | 0 | 0.0 | cheapest |" in tool.text_of(rows, tool.answer_of(rows))


def test_missing_runs_and_unknown_names_are_refused(world):
    runs = runs_of((1000, 0, 1.0, 50.0))
    runs["status"] = -1

    with pytest.raises(ValueError, match="1 of 1 runs are missing"):
        tool.rows_of(world, list(tool.points_of(world, 1e8)), runs, 1)
    with pytest.raises(SystemExit, match=r"--plans: expected some of fixed, .* found cheap"):
        tool.choose(world, {"plans": "fixed,cheap"})
