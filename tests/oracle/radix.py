"""A twin of kv/radix in plain Python, written for reading: every token is a tuple, every question looks at every node.

Rules: sglang 0.5.23, mem_cache/unified_radix_cache.py, unified_cache/unified_tree_core.py, evict_policy.py, common.py.
"""
from dataclasses import dataclass, field

ORDERS = {                      # what goes first: the least of these; ties by time of use
    "lru": lambda node: (),
    "lfu": lambda node: (node.hits,),
    "fifo": lambda node: (node.made,),
    "mru": lambda node: (tuple(-time for time in node.used),),
    "filo": lambda node: (-node.made,),
    "priority": lambda node: (node.priority,),
    "slru": lambda node: (node.hits >= 2,),
}


@dataclass(eq=False)
class Node:
    """Whole pages of tokens, behind those of its parent."""

    tokens: tuple
    parent: "Node | None"
    used: tuple = (0, 0)        # (time, less one for each step up from the end of a walk that only looked)
    made: int = 0
    priority: int = 0
    hits: int = 0
    locks: int = 0
    children: list = field(default_factory=list)


class Tree:
    """Texts, by their prefixes."""

    def __init__(self, page_size, policy):
        self.page_size, self.order, self.root, self.time, self.evicted = page_size, ORDERS[policy], Node((), None), 0, 0

    def nodes(self):
        """Return all nodes but the root."""
        found, todo = [], [self.root]
        while todo:
            node = todo.pop()
            found.append(node)
            todo += node.children
        return found[1:]

    def tick(self):
        """Return a new instant."""
        self.time += 1
        return self.time

    def match(self, text):
        """Return the tokens found of a text, and the node where they end."""
        text = self.whole(text)
        if not text:
            return 0, self.root
        at, done = self.root, 0
        while (child := self.child(at, text[done:])) is not None:
            common = self.common(child, text[done:])
            done += common
            if common < len(child.tokens):
                at = self.split(child, common)
                break
            at = child
        time, node, steps = self.tick(), at, 0
        while node is not None:
            node.used, node, steps = (time, -steps), node.parent, steps + 1
        return done, at

    def insert(self, text, priority, counted):
        """Add a text of whole pages; return how much of it was there, and the node where it ends."""
        at, done = self.root, 0
        while done < len(text) and (child := self.child(at, text[done:])) is not None:
            child.used = (self.tick(), 0)
            common = self.common(child, text[done:])
            if common < len(child.tokens):
                child = self.split(child, common)
            done += common
            child.priority = max(child.priority, priority)
            child.hits += done > counted
            at = child
        if done < len(text):
            leaf = Node(text[done:], at, (self.tick(), 0), self.tick(), priority, int(len(text) > counted))
            at.children.append(leaf)
            return done, leaf
        return done, at

    def split(self, node, length):
        """Cut a node; return its upper part, which has its locks, hits, priority and age."""
        upper = Node(node.tokens[:length], node.parent, (self.tick(), 0), node.made, node.priority, node.hits,
                     node.locks, [node])
        node.parent.children.remove(node)
        node.parent.children.append(upper)
        node.tokens, node.parent, node.used = node.tokens[length:], upper, (self.tick(), 0)
        return upper

    def lock(self, node, change):
        """Lock, or unlock, the path to the root."""
        while node is not self.root:
            node.locks += change
            node = node.parent

    def evict(self):
        """Drop the leaf that goes first; return its tokens, 0: there is none without locks."""
        leaves = [node for node in self.nodes() if not node.children and node.locks == 0]
        if not leaves:
            return 0
        leaf = min(leaves, key=lambda node: (*self.order(node), node.used))
        leaf.parent.children.remove(leaf)
        self.evicted += len(leaf.tokens)
        return len(leaf.tokens)

    def whole(self, text):
        """Return the whole pages of a text."""
        return text[:len(text) // self.page_size * self.page_size]

    def child(self, node, text):
        """Return the child that begins with the first page of a text."""
        page = text[:self.page_size]
        return next((child for child in node.children if page and child.tokens[:self.page_size] == page), None)

    def common(self, node, text):
        """Return the tokens, whole pages, with which a node begins like a text."""
        same = 0
        while same < min(len(node.tokens), len(text)) and node.tokens[same] == text[same]:
            same += 1
        return same // self.page_size * self.page_size


@dataclass
class Hold:
    """What a sequence has: room for tokens, of which so many are in the tree, and how far it has published."""

    tokens: int
    shared: int
    counted: int
    node: Node


class Pages:
    """Free pages, a tree, and what sequences hold."""

    def __init__(self, num_pages, page_size, policy):
        self.blank, self.page_size, self.tree, self.holds = num_pages, page_size, Tree(page_size, policy), {}

    def pages(self, tokens):
        """Return the pages of so many tokens."""
        return -(-tokens // self.page_size)

    def evictable(self):
        """Return the tokens of nodes without locks."""
        return sum(len(node.tokens) for node in self.tree.nodes() if node.locks == 0)

    def protected(self):
        """Return the tokens of nodes with locks."""
        return sum(len(node.tokens) for node in self.tree.nodes() if node.locks > 0)

    def make_room(self, tokens):
        """Evict until so many tokens' pages are blank."""
        while self.blank * self.page_size < tokens and (gained := self.tree.evict()):
            self.blank += gained // self.page_size

    def begin(self, slot, text, room):
        """Begin with what is found of a text, if there is room for so many; return what was found, or -1."""
        found, node = self.tree.match(text)
        self.tree.lock(node, 1)
        need = self.pages(room) - found // self.page_size
        if need * self.page_size > self.blank * self.page_size + self.evictable():
            self.tree.lock(node, -1)
            return -1
        self.make_room(need * self.page_size)
        self.blank -= max(need, 0)
        self.holds[slot] = Hold(max(room, found), found, 0, node)
        return found

    def grow(self, slot, room):
        """Take pages for so many tokens; return whether there are any."""
        hold = self.holds[slot]
        need = self.pages(room) - self.pages(hold.tokens)
        if need * self.page_size > self.blank * self.page_size + self.evictable():
            return False
        self.make_room(need * self.page_size)
        self.blank -= need
        hold.tokens = room
        return True

    def publish(self, slot, text, prompt_tokens, priority):
        """Put a text into the tree; what was there behind the sequence's own part is free. A prompt ends a node."""
        hold, text = self.holds[slot], self.tree.whole(text)
        if not text:
            return
        there, node = self.tree.insert(text, priority, hold.counted)
        hold.counted = max(hold.counted, len(text))
        self.blank += max(there - hold.shared, 0) // self.page_size
        prompt = text[:prompt_tokens // self.page_size * self.page_size]
        if prompt and len(prompt) < len(text):
            self.tree.insert(prompt, priority + 1, len(prompt))
        self.tree.lock(hold.node, -1)
        self.tree.lock(node, 1)
        hold.node, hold.shared = node, len(text)

    def release(self, slot):
        """Free what a sequence has outside of the tree, and unlock the rest."""
        hold = self.holds.pop(slot)
        self.blank += self.pages(hold.tokens) - hold.shared // self.page_size
        self.tree.lock(hold.node, -1)
