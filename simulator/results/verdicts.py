"""The words for what became of a load, and how many requests they need."""
STABLE, GROWING, OVERLOADED = "stable", "growing", "overloaded"
UNSERVED = "unserved"           # too few requests were served, and the load does not say why
TOO_SHORT = "too short to tell"
LEAST_REQUESTS = 40             # two for each of 20 batches: fewer tell nothing about growth
