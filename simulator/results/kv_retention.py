"""Counts of KV blocks held for programs in summary.json, and in words."""
from simulator.results.summary_keys import keys_of

SUMMARY_KEYS = {
    **keys_of(kv_retention__holds="turns with blocks that were held after their end",
              kv_retention__found="holds that lasted until the next turn of the program was admitted",
              kv_retention__expired="holds that ended after ttl_s", kv_retention__open="holds at the end"),
    **keys_of("blocks", kv_retention__found_blocks="held when the next turn was admitted",
              kv_retention__given_back_blocks="held, and reused since no other block was free",
              kv_retention__over_share_blocks="given back since more than max_share would have been held",
              kv_retention__most_held_blocks="held at once and in use by no request; of several replicas the sum "
              "of the most of each"),
    **keys_of("tokens x s", kv_retention__held_token_s="tokens of the blocks times the time, of holds that were "
              "found or expired")}


def sentence(counts: dict) -> str:
    """Return the counts in words."""
    return (f"{counts['found']:,} of {counts['holds']:,} holds found by the next turn, {counts['expired']:,} expired; "
            f"{counts['given_back_blocks']:,} blocks given back under pressure")
