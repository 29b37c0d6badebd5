"""What a tier holds of texts, for who follows it from outside."""
from typing import NamedTuple


class Holdings(NamedTuple):
    """Where the chunks of a replica's tier are, ChunkStore each.

    chunk_tokens : of a chunk.
    chain_tokens : of the pieces of text over which hashes are chained; a chunk is some of them.
    host : in host memory.
    disks : on levels below that are its own.
    shared : in stores that it shares with others.
    """

    chunk_tokens: int
    chain_tokens: int
    host: tuple = ()
    disks: tuple = ()
    shared: tuple = ()
