"""vLLM's log: lines of statistics, every ten seconds, and that of the KV cache."""
import re
from datetime import UTC, datetime

from simulator.study.server_check.series import Facts, Reading

# vLLM 0.33.0, v1/metrics/loggers.py (LoggingStatLogger.log) and v1/core/kv_cache_utils.py.
STATISTICS = re.compile(
    r"(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d).*?(?:Engine (?P<engine>\d+): )?"
    r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, Avg generation throughput: (?P<output>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs(?P<rest>.*)")
USAGE = re.compile(r"KV cache usage: ([\d.]+)%")
HITS = re.compile(r"Prefix cache hit rate: ([\d.]+)%")
SIZE = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
MODE = re.compile(r"enable_prefix_caching=(True|False)")


def is_log(text: str) -> bool:
    """Return whether a text has lines of statistics."""
    return STATISTICS.search(text) is not None


def readings_of_log(text: str) -> tuple[list[Reading], Facts]:
    """Return the readings of a log; throughputs are added up to counters of tokens.

    The lines have no year: a month after December is one of the next year.
    """
    readings, totals, last_s, engines = [], {}, {}, set()
    year, month = 2000, 0
    for match in STATISTICS.finditer(text):
        year, month = year + (int(match["month"]) < month), int(match["month"])
        engine = match["engine"] or "0"
        engines.add(engine)
        time_s = datetime.strptime(f"{year}-{match['month']}-{match['day']} {match['clock']} +0000",
                                   "%Y-%m-%d %H:%M:%S %z").astimezone(UTC).timestamp()
        passed_s = time_s - last_s.get(engine, time_s)
        last_s[engine] = time_s
        for name, key in (("prompt_tokens", "prompt"), ("output_tokens", "output")):
            totals[engine, name] = totals.get((engine, name), 0.0) + float(match[key]) * passed_s
            readings.append(Reading(time_s, name, engine, totals[engine, name]))
        for name in ("running", "waiting"):
            readings.append(Reading(time_s, name, engine, float(match[name])))
        for name, pattern in (("kv_usage", USAGE), ("hit_share", HITS)):
            if (share := pattern.search(match["rest"])) is not None:
                readings.append(Reading(time_s, name, engine, float(share[1]) / 100))
    sizes = [float(size.replace(",", "")) for size in SIZE.findall(text)]
    modes = MODE.findall(text)
    return readings, Facts(sum(sizes) / len(sizes) if sizes else None, len(engines) or None, None,
                           modes[-1] == "True" if modes else None)
