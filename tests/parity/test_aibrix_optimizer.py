"""AIBrix's optimizer: the cost of each mix of GPUs, as recorded; the counts need not be unique."""
import json

import numpy as np
import pytest

from simulator.scaling.mix import cheapest
from support import goldens

FOLDER = goldens.GOLDENS / "cluster_2026"
PATHS = sorted(FOLDER.glob("aibrix_optimizer*.jsonl"))
pytestmark = pytest.mark.skipif(not PATHS, reason=f"no recorded mixes aibrix_optimizer under {FOLDER}")


def test_mixes_cost_what_they_cost():
    for path in PATHS:
        for case in map(json.loads, filter(str.strip, path.read_text().splitlines())):
            gpus = case["gpus"].values()
            costs, demand = [gpu["cost"] for gpu in gpus], np.array(case["workload_distribution"], float)
            counts = cheapest(costs, [gpu["tputs"] for gpu in gpus], demand * case["total_request_rate"],
                              case["slice_factor"])

            assert np.dot(counts, costs) == pytest.approx(case["result"]["cost"], rel=1e-9), case["seed"]
