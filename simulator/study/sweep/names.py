"""What the files of studies are called."""
PLAN = "plan.jsonl"                 # of a sweep: its runs, a line each
STUDY = "study.toml"                # as it was asked; base and overrides in it
PROVENANCE = "provenance.json"      # of the last that ran it; times and machines are not in it
LOOK = "look.json"                  # of a search: how its runs are looked at
CAPACITY, CURVE = "capacity.json", "curve.csv"
TUNE, RANKING, FRONT, WINNERS = "tune.json", "ranking.csv", "pareto.csv", "winners"
CALIBRATION, PAIRS, CALIBRATED = "calibration.json", "pairs.csv", "calibrated.toml"
EVALUATIONS = "evaluations.jsonl"   # of a calibration: what was simulated so far
