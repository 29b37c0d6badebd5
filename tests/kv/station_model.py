"""BLIS's station in plain Python."""
READ, WRITE = 0, 1
BLOCK_BYTES = 1000.0


class StationModel:
    """The rules, literally: all that waits and is served stands in lists; times in us."""

    def __init__(self, levels):
        self.levels, self.waiting, self.served, self.finished, self.count, self.now = levels, [], [], [], 0, 0
        self.free = [[each.readers, each.writers] for each in levels]

    def submit(self, level, way, blocks, now):
        self.done(now)
        self.count += 1
        self.waiting.append((self.count, now, level, way, blocks))
        self.assign(level, now)

    def assign(self, level, now):
        for server in (READ, WRITE):
            while self.free[level][server] and any(each[2] == level for each in self.waiting):
                here = [each for each in self.waiting if each[2] == level]
                job = next((each for each in here if each[3] == server), here[0])
                self.waiting.remove(job)
                self.free[level][server] -= 1
                number, submitted, _, way, blocks = job
                depth = 1 + sum(each[2] == level and each[3] == way for each in self.served)
                end = now + self.duration(self.levels[level], way, blocks, depth)
                self.served.append((end, submitted, level, way, number, server))

    def duration(self, level, way, blocks, depth):
        rate = (level.write_gb_per_s if way == WRITE else level.read_gb_per_s) * 1e3
        if level.full_depth >= 2 and depth < level.full_depth and level.first_frac < 1:
            rate *= level.first_frac + (1 - level.first_frac) * (depth - 1) / (level.full_depth - 1)
        return level.base_us + int(blocks * BLOCK_BYTES / rate)

    def done(self, until):
        while until > self.now and self.served and min(order(each) for each in self.served)[0] <= until:
            job = min(self.served, key=order)
            self.served.remove(job)
            self.free[job[2]][job[5]] += 1
            self.finished.append(job[4])
            self.assign(job[2], job[0])
        self.now = max(self.now, until)


def order(job):
    """Return what the end of a job is sorted by."""
    end, submitted, level, way, number, _ = job
    return end, submitted, level, way, number
