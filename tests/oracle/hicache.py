"""A twin of kv/radix_host and kv/tiers/hicache_store in plain Python: every question looks at every node.

Rules: sglang 0.5.23, mem_cache/unified_radix_cache.py, unified_cache/unified_tree_core.py, components/full.py,
managers/cache_controller.py. A lock in host memory, a copy, a prefetch are objects; nodes refer to them.
"""
from dataclasses import dataclass, field

from oracle import radix

FEWEST_LOADED = 10
BATCH_PAGES = 128


@dataclass(eq=False)
class Node(radix.Node):
    """A node with pages on the accelerator, in host memory, or both."""

    owner: object = None        # whose text it is
    depth: int = 0              # tokens before it
    device: bool = True
    host: bool = False
    host_locks: list = field(default_factory=list)
    writing: object = None
    loading: object = None
    text: tuple = ()            # up to its end


@dataclass(eq=False)
class Backup:
    """A copy of a node to host memory."""

    node: Node
    tokens: int


@dataclass(eq=False)
class Load:
    """A copy of a path to the accelerator."""

    node: Node
    tokens: int
    owner: object
    lock: object


class HostTree(radix.Tree):
    """Texts by their prefixes, on the accelerator and in host memory."""

    def __init__(self, page_size, policy, capacity, write_policy, has_store):
        super().__init__(page_size, policy)
        self.root = Node((), None)
        self.capacity, self.write_back, self.has_store = capacity, write_policy == "write_back", has_store
        self.threshold = 2 if write_policy == "write_through_selective" else 1
        self.backups, self.loads, self.extents, self.duplicates = [], [], [], []
        self.lent = self.host_evicted = self.refused = 0

    # ---- room

    def host_free(self):
        """Return the tokens of host memory that nothing is in."""
        return self.capacity - self.lent - sum(len(node.tokens) for node in self.nodes() if node.host)

    def host_leaves(self):
        """Return the nodes that may go from host memory."""
        return [node for node in self.nodes() if node.host and not node.device and not node.children
                and not node.locks and not node.host_locks]

    def leaves(self):
        """Return the nodes that may go from the accelerator."""
        return [node for node in self.nodes() if node.device and not node.locks
                and not any(child.device for child in node.children)]

    def first(self, nodes):
        """Return the node that goes first."""
        return min(nodes, key=lambda node: (*self.order(node), node.used))

    def evict_host(self, tokens):
        """Let nodes go from host memory until so many tokens are gained; return how many were."""
        gained = self.give_up_duplicates(tokens) if self.write_back else 0
        while gained < tokens and (leaves := self.host_leaves()):
            gained += self.remove(self.first(leaves))
        self.host_evicted += gained
        return gained

    def give_up_duplicates(self, tokens):
        """Give copies up of what is on the accelerator; first of what would not be evicted there."""
        gained = 0
        for spares in (True, False):
            for node in list(self.duplicates):
                if gained >= tokens:
                    break
                if not (node.device and node.host):
                    self.duplicates.remove(node)
                elif not (spares and node in self.leaves()) and self.is_duplicate(node) and not node.host_locks:
                    node.host = False
                    gained += len(node.tokens)
                    self.duplicates.remove(node)
        return gained

    def is_duplicate(self, node):
        return node.device and node.host and node.writing is None and node.loading is None

    def track(self, node):
        if not self.write_back:
            return
        if not self.is_duplicate(node):
            if node in self.duplicates:
                self.duplicates.remove(node)
        elif node not in self.duplicates:
            self.duplicates.append(node)

    def remove(self, node):
        node.parent.children.remove(node)
        if node in self.duplicates:
            self.duplicates.remove(node)
        return len(node.tokens)

    # ---- walks

    def match(self, text):
        """Return the tokens on the accelerator, their node, those in host memory alone, and their node."""
        text, at, done, end, found = self.whole(text), self.root, 0, self.root, 0
        if not text:
            return 0, self.root, 0, self.root
        while (child := self.child(at, text[done:])) is not None:
            common = self.common(child, text[done:])
            done += common
            at = self.split(child, common) if common < len(child.tokens) else child
            if at.device:
                end, found = at, done
            if at is not child:
                break
        time, node, steps = self.tick(), at, 0
        while node is not None:
            node.used, node, steps = (time, -steps), node.parent, steps + 1
        return found, end, done - found, at

    def insert(self, text, priority, counted, owner=None):
        """Add a text; return what was there, its end, and the tokens that were in host memory alone."""
        at, done, revived = self.root, 0, 0
        while done < len(text) and (child := self.child(at, text[done:])) is not None:
            child.used = (self.tick(), 0)
            common = self.common(child, text[done:])
            if common < len(child.tokens):
                child = self.split(child, common)
            done += common
            child.priority = max(child.priority, priority)
            if not child.device:
                child.device, revived = True, revived + common
                self.track(child)
            at = child
            if done > counted:
                self.hit(child)
        if done < len(text):
            leaf = Node(text[done:], at, (self.tick(), 0), self.tick(), priority, owner=owner, depth=done, text=text)
            at.children.append(leaf)
            if len(text) > counted:
                self.hit(leaf)
            return done, leaf, revived
        return done, at, revived

    def split(self, node, length):
        upper = Node(node.tokens[:length], node.parent, (self.tick(), 0), node.made, node.priority, node.hits,
                     node.locks, [node], node.owner, node.depth, node.device, node.host, list(node.host_locks),
                     node.writing, node.loading, node.text[:node.depth + length])
        node.parent.children.remove(node)
        node.parent.children.append(upper)
        node.tokens, node.parent, node.used = node.tokens[length:], upper, (self.tick(), 0)
        node.depth += length
        self.track(upper)
        return upper

    # ---- copies to host memory

    def hit(self, node):
        """Count that somebody has computed it, and copy it and those above it if that is often enough."""
        if self.write_back:
            return
        node.hits += 1
        if node.host or node.hits < self.threshold:
            return
        chain = []
        while node is not self.root and not node.host:
            chain.insert(0, node)
            node = node.parent
        for each in chain:
            if not self.write(each):
                break
            each.writing = self.backups[-1]
            self.lock(each, 1)

    def write(self, node):
        lacking = len(node.tokens) - self.host_free()
        if lacking > 0 and self.evict_host(lacking) < lacking:
            self.refused += 1
            return False
        node.host = True
        self.backups.append(Backup(node, len(node.tokens)))
        return True

    def finish_backup(self, backup):
        fragments = sorted((node for node in self.nodes() if node.writing is backup), key=lambda node: node.depth)
        for node in fragments:
            node.writing = None
        self.lock(backup.node, -1)
        for node in fragments if self.has_store else ():
            self.extents.append((node.text, node.depth, self.lock_host(node)))

    def lock_host(self, node):
        if node is self.root or not node.host:
            return None
        lock = object()
        node.host_locks.append(lock)
        return lock

    def unlock_host(self, lock):
        for node in self.nodes():
            if lock in node.host_locks:
                node.host_locks.remove(lock)

    # ---- the accelerator

    def evict(self):
        """Let the leaf go that goes first; return its tokens, 0: there is none."""
        if not (leaves := self.leaves()):
            return 0
        node = self.first(leaves)
        self.evicted += len(node.tokens)
        if not node.host and self.write_back and self.write(node):
            self.track(node)
        if node.host:
            node.device = False
            return len(node.tokens)
        below = [each for each in self.nodes() if self.is_below(each, node)]
        for each in sorted(below, key=lambda each: -each.depth):
            assert not (each.locks or each.host_locks or each.writing or each.loading)
            self.remove(each)
        return len(node.tokens)

    def is_below(self, node, other):
        while node is not None and node is not other:
            node = node.parent
        return node is other

    # ---- loads

    def finish_load(self, load):
        self.lock(load.node, -1)
        self.unlock_host(load.lock)
        node = load.node
        while node is not self.root:
            if node.loading is load:
                node.loading = None
                self.track(node)
            node = node.parent

    def insert_host(self, node, text, begin):
        """Put what was read behind a node in, up to the end of a text; return the tokens that were there."""
        node.used, place, spare = (self.tick(), 0), begin, 0
        while place < len(text) and (child := self.child(node, text[place:])) is not None:
            child.used = (self.tick(), 0)
            common = self.common(child, text[place:])
            node = self.split(child, common) if common < len(child.tokens) else child
            place += common
            if node.host:
                spare += common
            else:
                node.host = True
        if place < len(text) and node is not self.root and not node.host:
            return len(text) - begin
        if place < len(text):
            time = self.tick()
            node.children.append(Node(text[place:], node, (time, 0), time, node.priority, depth=place, device=False,
                                      host=True, text=text))
        return spare


class HostPages(radix.Pages):
    """Free pages, such a tree, and what sequences hold."""

    def __init__(self, num_pages, page_size, policy, *host):
        super().__init__(num_pages, page_size, policy)
        self.tree = HostTree(page_size, policy, *host)

    def evictable(self):
        return sum(len(node.tokens) for node in self.tree.nodes() if node.locks == 0 and node.device)

    def protected(self):
        return sum(len(node.tokens) for node in self.tree.nodes() if node.locks > 0 and node.device)

    def available(self):
        return self.blank * self.page_size + self.evictable()

    def keep(self, slot, node, found):
        self.tree.lock(node, 1)
        self.holds[slot] = radix.Hold(found, found, 0, node)

    def take(self, slot, tokens):
        self.blank -= self.pages(tokens) - self.pages(self.holds[slot].tokens)
        assert self.blank >= 0
        self.holds[slot].tokens = tokens

    def load_back(self, slot, node, tokens, owner):
        """Bring what was found up to a node back; False: it is too little, or there is no room."""
        hold, lock = self.holds[slot], self.tree.lock_host(node)
        self.tree.lock(node, 1)
        if has_room := tokens >= FEWEST_LOADED:
            self.make_room(tokens)
            has_room = self.blank * self.page_size >= tokens
        self.tree.lock(node, -1)
        if not has_room:
            self.tree.unlock_host(lock)
            return False
        load = Load(node, tokens, owner, lock)
        self.tree.loads.append(load)
        at = node
        while not at.device:
            at.device, at.loading = True, load if self.tree.write_back else None
            at = at.parent
        self.tree.lock(node, 2)                         # for the load, and for the sequence
        self.tree.lock(hold.node, -1)
        self.blank -= tokens // self.page_size
        hold.node, hold.tokens = node, hold.tokens + tokens
        hold.shared = hold.tokens
        return True

    def publish(self, slot, text, prompt_tokens, priority, owner=None):
        hold, text = self.holds[slot], self.tree.whole(text)
        if not text:
            return
        there, node, revived = self.tree.insert(text, priority, hold.counted, owner)
        hold.counted = max(hold.counted, len(text))
        self.blank += (max(there - hold.shared - revived, 0)) // self.page_size
        prompt = text[:prompt_tokens // self.page_size * self.page_size]
        if prompt and len(prompt) < len(text):
            self.tree.insert(prompt, priority + 1, len(prompt))
        self.tree.lock(hold.node, -1)
        self.tree.lock(node, 1)
        hold.node, hold.shared = node, len(text)
