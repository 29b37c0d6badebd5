"""Rows that got worse since an earlier score: a regression gate, and no statement about accuracy."""
from simulator.study.accuracy.predict import OK
from simulator.study.accuracy.scoring import Score


def losses(now: Score, before: Score, tolerance: float) -> list[str]:
    """Return a sentence for each row that is worse, or missing.

    Worse: its MAPE grew by more than `tolerance` percentage points, or pairs are missing. Published rows of others are
    ignored.
    """
    rows = {row.key: row for row in now.rows if row.status == OK}
    losses_found = []
    for row in before.rows:
        if row.status != OK or row.published:
            continue
        place = ", ".join(row.key)
        found = rows.get(row.key)
        if found is None or (found.mape_pct is None) != (row.mape_pct is None):
            losses_found.append(f"{place}: the row is gone{_why(now, row)}")
        elif row.mape_pct is not None and found.mape_pct - row.mape_pct > tolerance:
            losses_found.append(f"{place}: MAPE grew from {row.mape_pct:.2f} to {found.mape_pct:.2f} %, by more than "
                                f"{tolerance:g} points")
        elif found.n < row.n:
            losses_found.append(f"{place}: {row.n - found.n} of {row.n} pairs are gone")
    return losses_found


def _why(now: Score, row) -> str:
    reasons = [each.reason for each in now.rows if each.status != OK and each.key[:2] == row.key[:2]
               and each.model in ("", row.model) and each.metric in ("", row.metric)]
    return f": {reasons[0]}" if reasons else ""
