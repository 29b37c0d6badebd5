"""The texts that a tier holds, for followers outside the replica."""
from typing import NamedTuple


class Holdings(NamedTuple):
    """The stores with the chunks of a replica's tier, ChunkStore each.

    chunk_tokens : tokens of a chunk.
    chain_tokens : tokens of each piece of text over which hashes are chained; a chunk is one or more pieces.
    host : in host memory.
    disks : on lower levels of the replica's own.
    shared : in stores that replicas share.
    """

    chunk_tokens: int
    chain_tokens: int
    host: tuple = ()
    disks: tuple = ()
    shared: tuple = ()
