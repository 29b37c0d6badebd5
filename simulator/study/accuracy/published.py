"""The published results of LLMServingSim's authors for a replay: means and percentiles, measured and predicted.

Source: casys-kaist/LLMServingSim, validation_summary.txt beside each run:

    Metric                           vLLM         Sim     Diff%
    TTFT Mean                      7097.2      6815.7     -4.0%
"""
import re
from pathlib import Path

METRICS = {"TTFT": "ttft", "TPOT": "tpot", "Latency": "e2e"}
STATISTICS = {"Mean": "mean", "Median": "p50", "P90": "p90", "P99": "p99"}
ROW = re.compile(r"(?P<metric>[A-Za-z]+) (?P<statistic>Mean|Median|P\d+) +(?P<measured>[\d.]+) +(?P<predicted>[\d.]+) ")


def summary_of(path: Path, faults: list[str]) -> dict[str, dict[str, float]]:
    """Return the predictions, ms, by metric and statistic.

    faults : receives a fault if the file has none.
    """
    found: dict[str, dict[str, float]] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{path}: cannot be read: {error}")
        return {}
    for row in ROW.finditer(text):
        if row["metric"] in METRICS and row["statistic"] in STATISTICS:
            found.setdefault(METRICS[row["metric"]], {})[STATISTICS[row["statistic"]]] = float(row["predicted"])
    if not found:
        faults.append(f'{path}: no line like "TTFT Mean 7097.2 6815.7 -4.0%"')
    return found
