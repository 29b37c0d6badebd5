"""Changes of the prefix caches of a live fleet as KV events, by step."""
from collections.abc import Callable, Iterable

from simulator.kv.prompt_hashes import hashes_of
from simulator.live.fleet import LiveFleet, LiveRequest
from simulator.live.kv_events import GPU, GROUP, AllBlocksCleared, BlockRemoved, BlockStored, Event

NEVER_NS = 2**63 - 1            # core/clock.pxd


class Block:
    """The text of a block.

    ids : its tokens, as int32. parent : hash of the block before it; None: it is the first. adapter : its number, from
    1 on; 0: none. keys : names that its hash covers, too; None: there are none. uses : open requests and replicas that
    may refer to it.
    """

    __slots__ = ("adapter", "ids", "keys", "parent", "uses")

    def __init__(self, ids, parent: int | None, adapter: int, keys: tuple[str, ...]):
        self.ids, self.parent, self.adapter, self.keys, self.uses = ids, parent, adapter, keys or None, 0


class BlockTexts:
    """Texts of blocks by hash: of open requests, and blocks that a replica holds."""

    def __init__(self, fleet: LiveFleet, block_sizes: Iterable[int]):
        self._fleet, self._sizes = fleet, sorted(set(block_sizes))
        self._hashes: dict[int, list[int]] = {}         # row -> of the blocks of its text
        self.adapters = ["", *fleet.labels.names.get("adapter", [])]
        self.blocks: dict[int, Block] = {}

    def add(self, row: int, request: LiveRequest) -> None:
        """Take the text of a request, which has `ids`."""
        content, name = self._fleet.cluster.fleet.shared.content, request.labels.get("adapter", "")
        adapter = self.adapters.index(name) if name in self.adapters else 0     # else it names the model
        further = (self.adapters[adapter],) if adapter else ()
        hashes = self._hashes[row] = []
        for size in self._sizes:
            parent, first = None, len(hashes)
            hashes += hashes_of(content, row, size, len(request.ids) // size)
            for i, found in enumerate(hashes[first:]):
                if (block := self.blocks.get(found)) is None:
                    ids, keys = request.ids[i * size:(i + 1) * size], further
                    if i == 0 and request.salt:
                        keys += (request.salt,)
                    block = self.blocks[found] = Block(ids.copy(), parent, adapter, keys)
                block.uses += 1
                parent = found

    def drop(self, row: int) -> None:
        """Forget a request that has ended."""
        for found in self._hashes.pop(row):
            self.release(found)

    def release(self, found: int) -> None:
        """Forget a use of a block."""
        block = self.blocks[found]
        block.uses -= 1
        if block.uses == 0:
            del self.blocks[found]


class Follower:
    """The prefix cache of a replica, followed while still empty."""

    def __init__(self, replica, texts: BlockTexts):
        self.replica, self._texts = replica, texts
        self._kv = replica.rank.kv
        self.log = self._kv.follow()
        self._num_held = 0
        self.events: list[Event] = []           # of the step in flight
        self.due_ns = 0                         # when they are published

    def collect(self, changes: list[tuple[int, bool]], now_ns: int) -> None:
        """Take the changes of the log up to now.

        They are due when the step in flight ends, as vLLM's scheduler publishes them with the outputs of a step.
        """
        if not self.events:
            wake_ns = self.replica.wake_ns
            self.due_ns = wake_ns if now_ns < wake_ns < NEVER_NS else now_ns
        events = [self._removed(found) if not is_there else self._stored(found) for found, is_there in changes]
        if self._num_held == 0 and self._kv.free_blocks == self._kv.num_blocks:
            self.events = [AllBlocksCleared()]
            return
        for event in events:
            self._append(event)

    def _stored(self, found: int) -> BlockStored:
        block = self._texts.blocks[found]
        block.uses += 1
        self._num_held += 1
        name = self._texts.adapters[block.adapter] or None
        return BlockStored([found], block.parent, block.ids.tolist(), len(block.ids), block.adapter or None, GPU, name,
                           [block.keys], GROUP)

    def _removed(self, found: int) -> BlockRemoved:
        self._texts.release(found)
        self._num_held -= 1
        return BlockRemoved([found], GPU, GROUP)

    def _append(self, event: Event) -> None:
        """Add an event; blocks that go on from those of the last event join them."""
        last = self.events[-1] if self.events else None
        if (isinstance(event, BlockStored) and isinstance(last, BlockStored)
                and event.parent_block_hash == last.block_hashes[-1]):
            last.block_hashes += event.block_hashes
            last.token_ids += event.token_ids
            last.extra_keys += event.extra_keys
        else:
            self.events.append(event)


class CacheEvents:
    """Follows the prefix caches of all replicas of a fleet, from its beginning.

    publish : called with (index of the replica, instant, events) for each step with events, in order of the instants.
    """

    def __init__(self, fleet: LiveFleet, publish: Callable[[int, int, list[Event]], None]):
        replicas = fleet.cluster.replicas
        self._publish = publish
        self.texts = BlockTexts(fleet, (replica.rank.kv.block_size for replica in replicas))
        self._followers = [Follower(replica, self.texts) for replica in replicas]

    def begin(self, row: int, request: LiveRequest) -> None:
        """Take note of a request."""
        self.texts.add(row, request)

    def end(self, row: int) -> None:
        """Take note of the end of a request; changes up to then have been collected."""
        self.texts.drop(row)

    def collect(self, now_ns: int) -> None:
        """Take all changes up to now, and publish those of steps that have ended."""
        for index, follower in enumerate(self._followers):
            if follower.events:                 # of the step that has ended
                self._publish_due(index, follower, now_ns)
            if changes := follower.log.take():
                follower.collect(changes, now_ns)
                self._publish_due(index, follower, now_ns)      # changes outside of steps

    def _publish_due(self, index: int, follower: Follower, now_ns: int) -> None:
        if follower.due_ns <= now_ns:
            events, follower.events = follower.events, []
            self._publish(index, follower.due_ns, events)
