"""Small experiments whose decisions agents make, and agents."""
FLEET = """
name = "fleet"
seed = 7
[topology]
replicas = 3
[engine]
max_num_seqs = 4
max_model_len = 2000
num_gpu_blocks = 300
[latency]
backend = "linear"
[slo]
e2el_ms = 150
[workload]
type = "synthetic"
num_requests = 60
[workload.arrival]
process = "poisson"
rate_per_s = 40
[workload.prompt_tokens]
distribution = "uniform"
min = 50
max = 500
[workload.output_tokens]
distribution = "uniform"
min = 1
max = 30
"""
POOLS = FLEET.replace("[topology]\nreplicas = 3", """[autoscaling]
policy = "queue"
target_waiting = 1.0
interval_s = 0.25
max_replicas = 3
provisioning_delay = {mean_s = 0.1}
[[pools]]
name = "few"
replicas = 1
cost_per_hour = 2.0
[[pools]]
name = "many"
replicas = 2
max_replicas = 4
cost_per_hour = 3.0""")
TENANTS = FLEET[:FLEET.index("[workload]")] + """[workload]
type = "trace"
path = "tenants.csv"
"""
ROWS = "".join(f"{number * 0.02:g},{100 + 7 * number},{5 + number % 9},{'ab'[number % 3 == 0]}\n"
               for number in range(40))
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n" + ROWS


def written(folder, text):
    """Return the path of an experiment file with a text."""
    path = folder / "experiment.toml"
    (folder / "tenants.csv").write_text(TRACE, encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    return path


def steps_of(episode, act):
    """Play an episode to its end; return its decisions' times and rows. act : from the number of a decision."""
    found = []
    episode.begin()
    while episode.decision is not None:
        found.append((episode.decision.now_ns, episode.decision.row))
        episode.answer(act(len(found) - 1, episode.decision))
    return found
