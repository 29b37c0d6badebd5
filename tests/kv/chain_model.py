"""BLIS's chain of host memory and levels below it in plain Python: sets, lists and counts, nothing indexed."""
from kv.station_model import READ, WRITE, StationModel

ABSENT, HELD, COMING, BELOW = range(4)
NO_WAIT, IS_PUT_OFF, WAS_PUT_OFF = range(3)
LOOKS_UP, FETCHES, OVER = "looks up", "fetches", "over"


class ChainModel:
    """Blocks are keys; `references` of one: -1 on the way, 0 idle, else the writes under way."""

    def __init__(self, capacity, levels, ranks):
        self.capacity, self.ranks, self.station = capacity, ranks, StationModel(levels)
        self.references, self.idle, self.known, self.episodes, self.jobs = {}, [], set(), {}, {}
        self.below, self.refusals = [set() for _ in levels], [0] * len(levels)
        self.kept = self.refused = self.evicted = self.now = 0
        self.run, self.level = [], -1

    # ---- what is where

    def level_of(self, key):
        return next((i for i, keys in enumerate(self.below) if key in keys), -1)

    def place_of(self, key):
        if key in self.references:
            return COMING if self.references[key] == -1 else HELD
        return BELOW if self.level_of(key) >= 0 else ABSENT

    def reload(self, key):
        if self.references[key] == 0:
            self.idle.remove(key)
            self.idle.append(key)

    def keep(self, key):
        if key in self.references:
            self.reload(key)
            return
        if len(self.references) == self.capacity and not self.idle:
            self.refused += 1
            return
        if len(self.references) == self.capacity:
            self.evict()
        self.references[key], self.kept = 0, self.kept + 1
        self.idle.append(key)
        for level in range(len(self.below)):
            if self.references[key] == 0:
                self.idle.remove(key)
            self.references[key] += 1
            self.submit(level, WRITE, [key], 1)

    def evict(self):
        del self.references[self.idle.pop(0)]
        self.evicted += 1

    # ---- copies

    def submit(self, level, way, keys, blocks):
        self.station.submit(level, way, blocks, self.now)
        self.jobs[self.station.count] = way, level, keys

    def promote(self, run, level):
        fresh = [key for key in run if key not in self.references]
        lacking = len(fresh) - (self.capacity - len(self.references))
        if not fresh or lacking > len(self.idle):
            self.refusals[level] += 1
            return False
        for _ in range(lacking):
            self.evict()
        self.references |= dict.fromkeys(fresh, -1)
        self.submit(level, READ, run, len(fresh))
        return True

    def begins(self, now):
        self.now = now
        self.station.done(now)
        for number in self.station.finished:
            way, level, keys = self.jobs.pop(number)
            for key in keys:
                if way == WRITE:
                    self.below[level].add(key)
                    self.references[key] -= 1
                elif self.references.get(key) == -1:
                    self.references[key] = 0
                else:
                    continue
                if self.references[key] == 0:
                    self.idle.append(key)
        self.station.finished.clear()

    # ---- runs, and who waits for one

    def gather(self, keys):
        self.level = self.level_of(keys[0]) if self.place_of(keys[0]) == BELOW else -1
        self.run = keys[:1]
        for key in keys[1:]:
            if self.level < 0 or self.place_of(key) != BELOW or self.level_of(key) != self.level:
                break
            self.run.append(key)
        return len(self.run)

    def fetch(self):
        self.promote(self.run, self.level)

    def put_off(self, row):
        stage = FETCHES
        if self.level >= 0 and not self.known.issuperset(self.run):
            stage = LOOKS_UP
        elif self.level >= 0 and not self.promote(self.run, self.level):
            stage = OVER
        self.episodes[row] = [stage, self.run, self.level]

    def look_again(self):
        for row in sorted(self.episodes, key=self.ranks.__getitem__):
            stage, run, level = self.episodes[row]
            places = [self.place_of(key) for key in run]
            if stage == LOOKS_UP:
                self.known |= set(run)
                self.episodes[row][0] = FETCHES
                if not {ABSENT, BELOW}.isdisjoint(places) and self.promote(run, level):
                    continue
            if stage != OVER and (COMING not in places or not {ABSENT, BELOW}.isdisjoint(places)):
                self.episodes[row][0] = OVER

    def wait_of(self, row):
        if row not in self.episodes:
            return NO_WAIT
        return WAS_PUT_OFF if self.episodes[row][0] == OVER else IS_PUT_OFF
