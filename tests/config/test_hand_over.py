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


def test_the_two_words_may_not_differ(load, faults):
    assert faults(load, "pools = [{name = 'p', role = 'decode', infer_type = 'prefill'}]") == [
        '--set: pools[0]: role = "decode" and infer_type = "prefill" say different things of pool "p": give one of '
        "them"]


def test_kv_must_come_from_somewhere(load, faults):
    assert faults(load, POOLS, SYNC) == [
        'a.toml: kv_transfer: missing table; it is needed by the role of pool "p" and "d": it says how KV comes from '
        'prefill to decode replicas, [kv_transfer] protocol = "nixl" for instance']


@pytest.mark.parametrize(("role", "message"), [
    ("prefill", '"prefill" takes a pool with role = "decode" or "both" that serves the same requests: nobody would go '
                "on with its prompts"),
    ("decode", '"decode" takes a pool with role = "prefill" or "both" that serves the same requests: nobody would '
               "compute its prompts")])
def test_a_pool_for_one_part_needs_one_for_the_other(load, faults, role, message):
    pools = f"pools = [{{name = 'a', role = '{role}', serves = 'x'}}, {{name = 'b', serves = 'y'}}]"

    assert faults(load, pools, SYNC, MOVES) == [f"--set: pools[0].role: {message}"]


def test_nothing_is_said_of_hand_overs_where_there_are_none(load, faults):
    assert faults(load, MOVES, "cluster.disaggregation.decider = 'never'") == [
        '--set: kv_transfer: nothing would be moved: there is no pool with role = "prefill" or "decode"',
        '--set: cluster.disaggregation: there would be nothing to decide: there is no pool with role = "prefill" or '
        '"decode"']


@pytest.mark.parametrize(("more", "message"), [
    (", engine = {block_size = 32}", "engine.block_size: expected 16, as in pool \"p\", found 32"),
    (", model = {name = 'llama-3-8b'}",
     "model: expected none, as in pool \"p\", found llama-3-8b with kv_cache_dtype auto")])
def test_blocks_must_fit(load, faults, more, message):
    pools = f"pools = [{{name = 'p', role = 'prefill'}}, {{name = 'd', role = 'decode'{more}}}]"

    assert faults(load, pools, SYNC, MOVES) == [
        f"--set: pools[1].{message}: KV blocks are moved as they are between pools that serve the same"]


@pytest.mark.parametrize(("given", "message"), [
    ("kv_transfer.granularity = 'chunk'", 'granularity: expected "prompt", found "chunk": protocol = "nixl": a decode '
     "replica hears of a request when its whole prompt has been computed"),
    ("kv_transfer = {protocol = 'nixl_push', granularity = 'layer'}", 'granularity: expected "prompt", found "layer": '
     'protocol = "nixl_push": a decode replica hears of a request when its whole prompt has been computed'),
    ("kv_transfer = {protocol = 'simai', granularity = 'chunk'}", 'granularity: expected "prompt", found "chunk": '
     'protocol = "simai": a decode replica asks for no KV: it gets it when the whole prompt has been computed'),
    ("kv_transfer = {protocol = 'sglang', first_token = 'recompute'}", 'first_token: expected "prefill", found '
     '"recompute": protocol = "sglang": its decode replicas go on behind the token that comes with the KV'),
    ("kv_transfer = {protocol = 'simai', volume = 'missing'}", 'volume: expected "full_prompt", found "missing": '
     'protocol = "simai": it sends whole prompts, whatever is there already'),
    ("kv_transfer = {protocol = 'mooncake', answer_hop_us = 3.0}", 'answer_hop_us: expected none, found 3.0: '
     'protocol = "mooncake": no answer of a prefill replica sends a request to its decode replica'),
    *((f"kv_transfer = {{protocol = 'simai', {key} = {value}}}", f'{key}: expected none, found {shown}: protocol = '
       '"simai": a decode replica asks for no KV: it gets it') for key, value, shown in (
           ("handshake_ms", "2.0", "2.0"), ("notice_us", "2.0", "2.0"), ("noticed_at", "'end'", '"end"'))),
    ("kv_transfer.num_reserved_decode_tokens = 8", 'num_reserved_decode_tokens: expected none, found 8: protocol = '
     '"nixl": decode replicas admit by their scheduler\'s own rule; SGLang\'s is "sglang"'),
    ("kv_transfer.protocol = 'nixle'", 'protocol: expected one of "blis", "mooncake", "nixl", "nixl_push", "sglang", '
     '"simai", found "nixle"; did you mean nixl?')])
def test_a_protocol_has_its_limits(load, faults, given, message):
    assert faults(load, POOLS, SYNC, MOVES, given) == [f"--set: kv_transfer.{message}"]


def test_a_scheduler_must_know_kv_that_comes(load, faults):
    assert faults(load, POOLS, MOVES, "engine.scheduler = 'blis'") == [
        f'--set: pools[{i}].engine.scheduler: "blis" takes over what another replica has computed with '
        'kv_transfer.protocol = "blis" alone, found "nixl"' for i in range(2)]
    assert faults(load, POOLS, SYNC, MOVES, "kv_transfer.protocol = 'blis'") == [
        f'--set: pools[{i}].engine.scheduler: "vllm" does not know blocks that were filled before a request comes: '
        'kv_transfer.protocol = "blis" takes scheduler = "blis"' for i in range(2)]
    experiment = load(POOLS, MOVES, "kv_transfer.protocol = 'blis'", "engine.scheduler = 'blis'")
    assert experiment.kv_transfer.habits.place == "reserved"


@pytest.mark.parametrize("protocol", ["mooncake", "sglang", "simai"])
def test_a_decode_replica_that_is_chosen_at_once(load, faults, protocol):
    assert faults(load, POOLS, SYNC, MOVES, f"kv_transfer.protocol = '{protocol}'",
                  "cluster.disaggregation.stage_order = 'prefill_first'") == [
        '--set: cluster.disaggregation.stage_order: expected "decode_first", found "prefill_first": protocol = '
        f'"{protocol}" has the decode replica chosen when a request comes']


@pytest.mark.parametrize("decider", ["prefix_threshold", "isl_bounding", "prefill_load", "isl_or_load"])
def test_a_decider_that_goes_by_the_decode_replica_needs_one(load, faults, decider):
    chosen = f"cluster.disaggregation = {{decider = '{decider}', stage_order = 'prefill_first'}}"

    assert faults(load, POOLS, SYNC, MOVES, chosen) == [
        '--set: cluster.disaggregation.stage_order: expected "decode_first", found "prefill_first": decider = '
        f'"{decider}" goes by the decode replica that a request would get']


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
