"""The largest numbers a workload may hold, and the mark of a missing value."""
MISSING = -2**63                    # in int64 columns: an empty cell of an optional column
MAX_TIME_NS = 9 * 10**18            # 9e9 s, 285 years: sums with durations stay inside int64
MAX_TOKENS = 2**31 - 1              # int32, as in simulator/domain/request.pxd
