"""What an experiment with pools for prefill and decode must say, and what it may not."""
import pytest

POOLS = "pools = [{name = 'p', role = 'prefill'}, {name = 'd', role = 'decode'}]"
SYNC = "engine.async_scheduling = false"
MOVES = "kv_transfer = {bandwidth_gb_per_s = 40.0, kv_bytes_per_token = 1e5}"


def test_pools_say_what_they_compute(load):
    experiment = load(POOLS, SYNC, MOVES)

    assert [pool.role for pool in experiment.pools] == ["prefill", "decode"]
    assert (experiment.kv_transfer.protocol, experiment.kv_transfer.habits.base_us) == ("nixl", 400.0)


@pytest.mark.parametrize(("said", "role"), [("", "both"), (", infer_type = 'neutral'", "both"),
                                            (", infer_type = 'prefill'", "prefill"), (", role = 'both'", "both"),
                                            (", role = 'prefill', infer_type = 'prefill'", "prefill")])
def test_infer_type_is_another_word_for_role(load, said, role):
    others = "{name = 'd', role = 'decode'}, {name = 'q', role = 'prefill'}"
    pool = load(f"pools = [{{name = 'p'{said}}}, {others}]", SYNC, MOVES).pools[0]

    assert (pool.role, pool.infer_type) == (role, None)


@pytest.mark.parametrize(("replicas", "ratio", "prefill"), [(4, 0.5, 2), (8, 0.3, 2), (8, 0.375, 3), (100, 0.29, 29)])
def test_a_share_of_the_replicas_is_a_pool_for_prompts(load, replicas, ratio, prefill):
    experiment = load(f"topology = {{replicas = {replicas}, pd_node_ratio = {ratio}}}", SYNC, MOVES)

    assert [(pool.name, pool.role, pool.replicas) for pool in experiment.pools] == [
        ("prefill", "prefill", prefill), ("decode", "decode", replicas - prefill)]
    assert experiment == load(f"topology.replicas = {replicas}", SYNC, MOVES, "pools = [" + ", ".join(
        f"{{name = '{role}', role = '{role}', replicas = {count}}}"
        for role, count in (("prefill", prefill), ("decode", replicas - prefill))) + "]")


def test_all_of_the_replicas_do_both(load):
    assert [pool.role for pool in load("topology = {replicas = 4, pd_node_ratio = 1.0}").all_pools()] == ["both"]


@pytest.mark.parametrize(("said", "message"), [
    (["topology = {replicas = 3, pd_node_ratio = 0.3}"],
     "topology.pd_node_ratio: expected a share that leaves replicas for both, found 0.3 of 3: none for prefill"),
    (["topology = {pd_node_ratio = 0.5}"],
     "topology.pd_node_ratio: expected a share that leaves replicas for both, found 0.5 of 1: none for prefill"),
    (["topology = {replicas = 4, pd_node_ratio = 0.5}", "pools = [{name = 'p'}]"],
     "topology.pd_node_ratio: expected none with [[pools]]: their role says which replicas compute prompts"),
    (["pools = [{name = 'p', topology = {pd_node_ratio = 0.5}}]"],
     "pools[0].topology.pd_node_ratio: expected none with [[pools]]: their role says which replicas compute prompts"),
    (["topology = {replicas = 4, pd_node_ratio = 1.5}"],
     "topology.pd_node_ratio: expected a number > 0 and <= 1, found 1.5")])
def test_a_share_that_cannot_be_split_is_refused(load, faults, said, message):
    assert faults(load, *said) == [f"--set: {message}"]


def test_the_two_words_may_not_differ(load, faults):
    assert faults(load, "pools = [{name = 'p', role = 'decode', infer_type = 'prefill'}]") == [
        '--set: pools[0]: role = "decode" and infer_type = "prefill" say different things of pool "p": give one of '
        "them"]


def test_kv_must_come_from_somewhere(load, faults):
    assert faults(load, POOLS, SYNC) == [
        'a.toml: kv_transfer: missing table; the role of pool "p" and "d" needs it for the transfer of KV from '
        'prefill to decode replicas: for instance [kv_transfer] protocol = "nixl"']


@pytest.mark.parametrize(("role", "message"), [
    ("prefill", '"prefill" needs a pool with role = "decode" or "both" that serves the same requests: no pool would '
                "continue its prompts"),
    ("decode", '"decode" needs a pool with role = "prefill" or "both" that serves the same requests: no pool would '
               "compute its prompts")])
def test_a_pool_for_one_part_needs_one_for_the_other(load, faults, role, message):
    pools = f"pools = [{{name = 'a', role = '{role}', serves = 'x'}}, {{name = 'b', serves = 'y'}}]"

    assert faults(load, pools, SYNC, MOVES) == [f"--set: pools[0].role: {message}"]


def test_nothing_is_said_of_hand_overs_where_there_are_none(load, faults):
    assert faults(load, MOVES, "cluster.disaggregation.decider = 'never'") == [
        '--set: kv_transfer: expected none without pools of role "prefill" or "decode": nothing would be moved',
        '--set: cluster.disaggregation: expected none without pools of role "prefill" or "decode": there would be '
        "nothing to decide"]


@pytest.mark.parametrize(("more", "message"), [
    (", engine = {block_size = 32}", "engine.block_size: expected 16, as in pool \"p\", found 32"),
    (", model = {name = 'llama-3-8b'}",
     "model: expected none, as in pool \"p\", found llama-3-8b with kv_cache_dtype auto")])
def test_blocks_must_fit(load, faults, more, message):
    pools = f"pools = [{{name = 'p', role = 'prefill'}}, {{name = 'd', role = 'decode'{more}}}]"

    assert faults(load, pools, SYNC, MOVES) == [
        f"--set: pools[1].{message}: KV blocks are moved unchanged between pools that serve the same requests"]


@pytest.mark.parametrize(("given", "message"), [
    ("kv_transfer.granularity = 'chunk'", 'granularity: expected "prompt" with kv_transfer.protocol = "nixl", '
    'found "chunk": a '
     "decode replica gets a request only when its whole prompt has been computed"),
    ("kv_transfer = {protocol = 'nixl_push', granularity = 'layer'}", 'granularity: expected "prompt" with '
     'kv_transfer.protocol = "nixl_push", found "layer": a decode replica gets a request only when its whole '
     'prompt has been computed'),
    ("kv_transfer = {protocol = 'simai', granularity = 'chunk'}", 'granularity: expected "prompt" with '
     'kv_transfer.protocol = "simai", found "chunk": a decode replica does not request KV: KV is sent to it when the '
     "whole prompt has been computed"),
    ("kv_transfer = {protocol = 'sglang', first_token = 'recompute'}", 'first_token: expected "prefill" with '
     'kv_transfer.protocol = "sglang", found "recompute": its decode replicas continue after the token sent '
     'with the KV'),
    ("kv_transfer = {protocol = 'simai', volume = 'missing'}", 'volume: expected "full_prompt" with '
     'kv_transfer.protocol = "simai", found "missing": it sends whole prompts, also blocks that are present already'),
    ("kv_transfer = {protocol = 'mooncake', answer_hop_us = 3.0}", 'answer_hop_us: expected none with '
     'kv_transfer.protocol = "mooncake", found 3.0: no answer of a prefill replica sends a request to its '
     'decode replica'),
    *((f"kv_transfer = {{protocol = 'simai', {key} = {value}}}", f'{key}: expected {usual} with '
       f'kv_transfer.protocol = "simai", found {shown}: a decode replica does not request KV: KV is sent to it')
      for key, value, shown, usual in (("handshake_ms", "2.0", "2.0", "0.0"), ("notice_us", "2.0", "2.0", "0.0"),
                                       ("noticed_at", "'end'", '"end"', "none"))),
    ("kv_transfer.num_reserved_decode_tokens = 8", 'num_reserved_decode_tokens: expected none with '
     'kv_transfer.protocol = "nixl", found 8: decode replicas admit by their scheduler\'s own rule; SGLang\'s '
     'is "sglang"'),
    ("kv_transfer.protocol = 'nixle'", 'protocol: expected one of "blis", "mooncake", "nixl", "nixl_push", "sglang", '
     '"simai", found "nixle"; did you mean nixl?')])
def test_a_protocol_has_its_limits(load, faults, given, message):
    assert faults(load, POOLS, SYNC, MOVES, given) == [f"--set: kv_transfer.{message}"]


def test_a_scheduler_must_know_kv_that_comes(load, faults):
    assert faults(load, POOLS, MOVES, "engine.scheduler = 'blis'") == [
        f'--set: pools[{i}].engine.scheduler: expected another with kv_transfer.protocol = "nixl", found "blis": it '
        'continues prompts of another replica only with kv_transfer.protocol = "blis"' for i in range(2)]
    assert faults(load, POOLS, SYNC, MOVES, "kv_transfer.protocol = 'blis'") == [
        f'--set: pools[{i}].engine.scheduler: expected "blis" with kv_transfer.protocol = "blis", found "vllm": it '
        "does not support blocks that are filled before a request arrives" for i in range(2)]
    experiment = load(POOLS, MOVES, "kv_transfer.protocol = 'blis'", "engine.scheduler = 'blis'")
    assert experiment.kv_transfer.habits.place == "reserved"


SIMAI = "kv_transfer.protocol = 'simai'"
SPLIT = "engine = {scheduler = 'split_wise'}"
WHY_SPLIT = ("its batches are of prompts on some replicas and of decodes on others, and vidur-alibabacloud stops on an "
             "assertion where a replica does both")
UNDIVIDED = ('engine.scheduler: expected another without pools of role "prefill" or "decode", found "split_wise": '
             f"{WHY_SPLIT}")


def test_a_scheduler_of_vidur_takes_over_only_what_comes_with_its_kv(load, faults):
    assert load(POOLS, MOVES, SIMAI, "engine = {scheduler = 'orca'}").kv_transfer.habits.place == "afterwards"
    assert faults(load, POOLS, MOVES, "engine = {scheduler = 'orca'}") == [
        f'--set: pools[{i}].engine.scheduler: expected another with kv_transfer.protocol = "nixl", found "orca": it '
        "cannot take over what another replica has computed: it allocates no blocks for KV in transit: "
        'expected kv_transfer.protocol = "simai", which delivers a request together with its KV' for i in range(2)]


@pytest.mark.parametrize(("given", "fault"), [
    ([], UNDIVIDED), (["topology = {replicas = 2, pd_node_ratio = 1.0}"], UNDIVIDED),
    ([POOLS.replace("]", ", {name = 'b'}]"), MOVES, SIMAI],
     'pools[2].role: expected "prefill" or "decode" with engine.scheduler = "split_wise", found "both": ' + WHY_SPLIT),
    ([POOLS, MOVES, SIMAI, "cluster.disaggregation.decider = 'never'"],
     'cluster.disaggregation.decider: expected "always" with engine.scheduler = "split_wise" in pool "d", found '
     f'"never": decode replicas would serve whole requests: {WHY_SPLIT}')])
def test_split_wise_takes_replicas_for_either_part(load, faults, given, fault):
    assert faults(load, SPLIT, *given) == [f"--set: {fault}"]


def test_routing_of_split_wise_takes_replicas_for_either_part(load, faults):
    policy = "cluster.routing.policy = 'split_wise'"

    assert load(POOLS, SYNC, MOVES, policy).cluster.routing.policy == "split_wise"
    assert faults(load, policy) == [
        '--set: cluster.routing.policy: expected another without pools of role "prefill" or "decode", found '
        '"split_wise": it takes turns among prefill replicas and among decode replicas; "round_robin" takes turns '
        "among all"]
    assert faults(load, POOLS, SYNC, MOVES, policy, "cluster.disaggregation.stage_order = 'prefill_first'") == [
        '--set: cluster.disaggregation.stage_order: expected "decode_first" with cluster.routing.policy = '
        '"split_wise", '
        'found "prefill_first": it chooses both replicas when a request arrives']


def test_faults_of_vidur_alibabacloud_are_those_of_its_protocol(load, faults):
    compat = "kv_transfer.upstream_compat = true"

    assert faults(load, POOLS, SYNC, MOVES, compat) == [
        '--set: kv_transfer.upstream_compat: expected false with kv_transfer.protocol = "nixl", found true: it '
        "reproduces faults of vidur-alibabacloud"]
    assert faults(load, POOLS, SYNC, MOVES, SIMAI, compat, "latency.host.queue_base_us = 3.0") == [
        "--set: pools[1].latency.host.queue_base_us: expected 0.0 with kv_transfer.upstream_compat = true, "
        "found 3.0: a "
        "request is in the queue of its decode replica when its prompt is done"]


def test_a_token_that_comes_with_kv_may_be_computed_again_where_prefixes_are_cached(load):
    given = [POOLS, SYNC, MOVES, "kv_transfer.first_token = 'prefill'", "kv_transfer.failure_policy = 'recompute'"]

    assert load(*given).kv_transfer.failure_policy == "recompute"


@pytest.mark.parametrize("protocol", ["mooncake", "sglang", "simai"])
def test_a_decode_replica_that_is_chosen_at_once(load, faults, protocol):
    assert faults(load, POOLS, SYNC, MOVES, f"kv_transfer.protocol = '{protocol}'",
                  "cluster.disaggregation.stage_order = 'prefill_first'") == [
        '--set: cluster.disaggregation.stage_order: expected "decode_first" with kv_transfer.protocol = '
        f'"{protocol}", found "prefill_first": it needs the decode replica when a request arrives']


@pytest.mark.parametrize("decider", ["prefix_threshold", "isl_bounding", "prefill_load", "isl_or_load"])
def test_a_decider_that_goes_by_the_decode_replica_needs_one(load, faults, decider):
    chosen = f"cluster.disaggregation = {{decider = '{decider}', stage_order = 'prefill_first'}}"

    assert faults(load, POOLS, SYNC, MOVES, chosen) == [
        '--set: cluster.disaggregation.stage_order: expected "decode_first" with cluster.disaggregation.decider = '
        f'"{decider}", found "prefill_first": it needs the decode replica of a request']


def test_bytes_and_rates_must_be_known(write, tmp_path):
    import simulator
    from simulator.errors import InputErrors

    text = ("[engine]\nmax_model_len = 64\nnum_gpu_blocks = 100\nasync_scheduling = false\n"
            "[latency]\nbackend = 'linear'\n[workload]\ntype = 'trace'\npath = 't.csv'\n"
            "[kv_transfer]\nnics_per_transfer = 'all'\n"
            "[[pools]]\nname = 'p'\nrole = 'prefill'\n[[pools]]\nname = 'd'\nrole = 'decode'\n")
    write("arrived_at,num_prefill_tokens,num_decode_tokens\n0,8,1\n", "t.csv")
    with pytest.raises(InputErrors) as caught:
        simulator.run(write(text))

    assert [str(fault).partition(": ")[2] for fault in caught.value.faults] == [
        "kv_transfer.kv_bytes_per_token: missing; expected a number, or [model] and [hardware]",
        "kv_transfer.bandwidth_gb_per_s: missing; expected a number, or hardware whose network is known",
        'kv_transfer.nics_per_transfer: "all" takes [topology] node, which says how many cards there are']


@pytest.mark.parametrize(("pools", "policy", "message"), [
    (POOLS, "blis", "BLIS's analyser knows replicas that do whole requests"),
    (POOLS, "slo_attainment", "what requests keep or miss is the work of both their replicas")])
def test_policies_that_cannot_decide_on_one_part_of_requests(load, faults, pools, policy, message):
    given = {"blis": "", "slo_attainment": ", ttft_ms = 1.0"}[policy]

    assert faults(load, pools, SYNC, MOVES, f"autoscaling = {{policy = '{policy}'{given}}}") == [
        f'--set: autoscaling.policy: expected another with pools of role "prefill" or "decode", found "{policy}": '
        f"{message}"]


@pytest.mark.parametrize("more", [[], [POOLS.replace("]", ", {name = 'b'}]"), MOVES]])
def test_the_planner_takes_pools_for_either_part_alone(load, faults, more):
    points = ("prefill_profile = [{prompt_tokens = 1, ttft_ms = 1.0, tokens_per_s = 1.0}], decode_profile = "
              "[{context_tokens = 1, concurrency = 1, itl_ms = 1.0, tokens_per_s = 1.0}]")

    assert faults(load, SYNC, *more, f"autoscaling = {{policy = 'planner', itl_ms = 1.0, {points}}}") == [
        '--set: autoscaling.policy: expected another with other pools than of role "prefill" and "decode", found '
        '"planner": it balances these two']


LLUMNIX = "cluster.routing = {policy = 'llumnix'}"
ADAPTIVE = "cluster.routing = {policy = 'llumnix', scheduling_policy = 'slo', enable_adaptive_pd = true}"
STAGED = "cluster.disaggregation.stage_order = 'prefill_first'"
ROUND_ROBIN = "cluster.disaggregation.decode = {policy = 'round_robin'}"


@pytest.mark.parametrize(("given", "fault"), [
    (["pools = [{name = 'p', role = 'prefill'}, {name = 'b'}]", LLUMNIX, ROUND_ROBIN],
     'cluster.routing.policy: expected another with a pool of role "both", found "llumnix": it sends a request to one '
     "replica, or to one for its prompt and another for its output"),
    ([POOLS, ADAPTIVE],
     'cluster.routing.policy: expected another with cluster.disaggregation.stage_order = "decode_first", found '
     '"llumnix": its account needs each choice before the next one, but gets a decode replica that is chosen in '
     "advance only when the prompt has been computed"),
    ([POOLS, "cluster.disaggregation.prefill = {policy = 'llumnix', scheduling_policy = 'slo', "
             "enable_adaptive_pd = true}"],
     'cluster.disaggregation.prefill.enable_adaptive_pd: expected false with pools of role "prefill" or "decode", '
     "found true: with it one scheduler chooses the replicas for both parts of a request; give it in "
     "[cluster.routing], without this table"),
    ([POOLS, "cluster.rescheduling = {policy = 'rebalance', interval_s = 1.0, kv_bytes_per_token = 1.0, "
             "bandwidth_gb_per_s = 1.0}"],
     'cluster.rescheduling: expected none with pools of role "prefill" or "decode": a migrating request would leave '
     "its lease and the KV that it reads behind")])
def test_what_is_not_built_says_why(load, faults, given, fault):
    assert faults(load, SYNC, MOVES, *given) == [f"--set: {fault}"]


TIERS = "kv_tiers = {cpu_gib = 1.0, kv_bytes_per_token = 1e3, d2h_gb_per_s = 1.0, h2d_gb_per_s = 1.0}"


@pytest.mark.parametrize("protocol", ["nixl", "nixl_push", "mooncake", "sglang"])
def test_replicas_may_have_tiers_besides(load, protocol):
    experiment = load(POOLS, SYNC, MOVES, TIERS, f"kv_transfer.protocol = '{protocol}'")

    assert [pool.kv_tiers.protocol for pool in experiment.pools] == ["vllm_offload"] * 2


@pytest.mark.parametrize(("given", "why"), [
    (["kv_transfer.protocol = 'simai'", TIERS], '"simai": vidur-alibabacloud has no KV beyond the blocks of its '
                                                "replicas"),
    (["kv_transfer.protocol = 'blis'", "engine = {scheduler = 'blis', upstream_compat = true}",
      "kv_tiers = {protocol = 'blis_mirror', cpu_blocks = 9}"],
     '"blis": what BLIS\'s tiers do with blocks that are reserved for a prompt from elsewhere is not recorded, and not '
     "built")])
def test_a_protocol_without_tiers(load, faults, given, why):
    assert faults(load, POOLS, *([SYNC] if "simai" in why[:8] else []), MOVES, *given) == [
        f"--set: pools[{i}].kv_tiers: expected none with kv_transfer.protocol = {why}" for i in range(2)]


def test_with_a_tier_a_replica_looks_when_an_iteration_starts(load, faults):
    assert faults(load, POOLS, SYNC, MOVES, TIERS, "kv_transfer.noticed_at = 'end'") == [
        '--set: kv_transfer.noticed_at: expected "start" with [kv_tiers] in pool "p", found "end": an iteration starts '
        "copies, and looks for KV, when it is launched"]


def test_llumnix_sends_either_part(load):
    assert load(POOLS, SYNC, MOVES, LLUMNIX).cluster.routing.policy == "llumnix"      # it counts what it promises
    assert load(POOLS, SYNC, MOVES, LLUMNIX, STAGED).cluster.routing.policy == "llumnix"
    assert load(POOLS, SYNC, MOVES, LLUMNIX, ROUND_ROBIN).cluster.routing.policy == "llumnix"


BECAUSE = "with cluster.routing.enable_adaptive_pd = true"


def test_any_replica_may_do_either_part(load):
    assert load(POOLS, SYNC, MOVES, ADAPTIVE, STAGED).cluster.routing.parameters.enable_adaptive_pd


@pytest.mark.parametrize(("given", "fault"), [
    ("cluster.routing.scheduling_policy = 'load-balance'",
     f'cluster.routing.scheduling_policy: expected "slo" {BECAUSE}, found "load-balance": other policies do not '
     "support it"),
    ("cluster.routing.snapshot_refresh_interval_s = 0.5",
     f"cluster.routing.snapshot_refresh_interval_s: expected 0.0 {BECAUSE}, found 0.5: status_push_interval_s and "
     "status_poll_interval_s set the age of its statuses"),
    ("cluster.disaggregation.prefill = {policy = 'round_robin'}",
     f"cluster.disaggregation.prefill: expected none {BECAUSE}: one scheduler chooses for both "
     "parts"),
    (ROUND_ROBIN, f"cluster.disaggregation.decode: expected none {BECAUSE}: one scheduler chooses "
                  "for both parts"),
    ("cluster.disaggregation.decider = 'never'",
     f'cluster.disaggregation.decider: expected "always" {BECAUSE}, found "never": Llumnix splits every request, also '
     "one that stays at the replica of its prompt"),
    ("kv_transfer.protocol = 'nixl_push'",
     f'kv_transfer.protocol: expected "nixl" {BECAUSE}, found "nixl_push": only "nixl" supports a replica that '
     "continues its own prompt"),
    ("failures = [{kind = 'stop', at_s = 1.0}]",
     f"failures: expected none {BECAUSE}: failures with reservations and both parts of a request at a replica are not "
     "supported"),
    ("autoscaling = {policy = 'queue'}",
     f"autoscaling: expected none {BECAUSE}: scaling of pools of which any replica may compute either part is not "
     "supported"),
    ("pools[1].topology = {data_parallel = 2}",
     f"pools[1].topology.data_parallel: expected 1 {BECAUSE}, found 2: Llumnix's statuses are of single "
     "engines, and not of a group that chooses a rank itself; or give "
     'engine.data_parallel.load_balancing = "external"'),
    ("pools[1].engine = {enable_prefix_caching = false}",
     f"pools[1].engine.enable_prefix_caching: expected true {BECAUSE}, found false: a request that stays at the "
     "replica of its prompt finds the prompt in the prefix cache"),
    ("pools[0].kv_tiers = {cpu_gib = 1.0, kv_bytes_per_token = 1e3, d2h_gb_per_s = 1.0, h2d_gb_per_s = 1.0}",
     f"pools[0].kv_tiers: expected none {BECAUSE}: a status does not separate prompts from other requests that wait "
     "for KV of the host")])
def test_what_does_not_go_with_that(load, faults, given, fault):
    pools = POOLS
    if given.startswith("pools["):
        index, _, rest = given.removeprefix("pools[").partition("].")
        name = "pd"[int(index)]
        pools, given = POOLS.replace(f"name = '{name}'", f"name = '{name}', {rest}"), ""

    assert faults(load, pools, SYNC, MOVES, ADAPTIVE, STAGED, *([given] if given else [])) == [f"--set: {fault}"]


MOONCAKE = 'expected none with kv_transfer.protocol = "mooncake"'
SETTLED = f'{MOONCAKE}: KV transfer from or to a replica that stops is supported for protocol = "nixl" alone'
FAILS, SCALES = "failures = [{kind = 'stop', at_s = 1.0}]", "autoscaling = {policy = 'queue'}"


@pytest.mark.parametrize(("given", "path", "message"), [
    ("kv_transfer.lease_s = 3.0", "kv_transfer.lease_s", f"{MOONCAKE}, found 3.0: it has no leases"),
    (FAILS, "failures", SETTLED), (SCALES, "autoscaling", SETTLED)])
def test_leases_are_those_of_nixl(load, faults, given, path, message):
    found = faults(load, POOLS, SYNC, MOVES, "kv_transfer.protocol = 'mooncake'", given)

    assert found == [f"--set: {path}: {message}"]


def test_nixl_goes_with_failures_and_autoscaling(load):
    assert load(POOLS, SYNC, MOVES, FAILS, SCALES, "kv_transfer.lease_s = 3.0").kv_transfer.lease_s == 3.0
