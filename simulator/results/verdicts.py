"""The words of the verdict on a load, and the number of requests that it needs."""
STABLE, GROWING, OVERLOADED = "stable", "growing", "overloaded"
UNSERVED = "unserved"           # too few requests were served, for another reason than the load
TOO_SHORT = "too short to tell"
LEAST_REQUESTS = 40             # two for each of 20 batches: fewer show no growth
