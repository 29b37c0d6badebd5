"""Names of the files of studies."""
PLAN = "plan.jsonl"                 # of a sweep: its runs, a line each
STUDY = "study.toml"                # the study as it was given; base and overrides in it
PROVENANCE = "provenance.json"      # of the last program that ran it; without times and machines
LOOK = "look.json"                  # of a search: warm-up, metrics and confidence of its runs
CAPACITY, CURVE = "capacity.json", "curve.csv"
TUNE, RANKING, FRONT, WINNERS = "tune.json", "ranking.csv", "pareto.csv", "winners"
CALIBRATION, PAIRS, CALIBRATED = "calibration.json", "pairs.csv", "calibrated.toml"
EVALUATIONS = "evaluations.jsonl"   # of a calibration: its simulations so far
