"""Wave messages of ranks in lock step, between their front end, a coordinator and the ranks."""
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize

cdef enum Kind:
    FIRST_REQUEST               # to the coordinator: requests arrive though the front end believes all ranks idle
    WAVE_COMPLETE               # to the coordinator
    WAVE_BEGAN                  # to the coordinator
    FRONT_COMPLETE              # to the front end
    FRONT_BEGAN

cdef enum Noted:                # kinds of messages in the log
    ORDER
    COMPLETE
    BEGAN

NOTED = ("start_dp_wave", "wave_complete", "start_wave")


@cython.final
cdef class Waves:
    """The messages of some ranks.

    num_ranks : their number.
    hop_ns : duration of each message.
    engines_start : the rank with the first request starts a wave, as in vLLM 0.33; else the front end does.
    """

    def __init__(self, num_ranks, hop_ns, engines_start=False):
        self._num_ranks, self._hop_ns, self._engines_start = num_ranks, hop_ns, engines_start
        self._events = EventQueue()
        self._inboxes = <Inbox*>calloc(num_ranks, sizeof(Inbox))
        self._is_running = <int8_t*>calloc(num_ranks, sizeof(int8_t))
        self._wave = <int32_t*>calloc(num_ranks, sizeof(int32_t))
        if self._inboxes == NULL or self._is_running == NULL or self._wave == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_ranks if self._inboxes != NULL else 0):
            free(self._inboxes[i].messages)
        free(self._inboxes)
        free(self._is_running)
        free(self._wave)

    def keep_log(self):
        """From now on log the coordinator's orders, and the begins and ends of waves."""
        self._log = []

    @property
    def log(self):
        """Return the logged messages, each as (time_ns, kind, wave, rank)."""
        return self._log

    @property
    def waves(self):
        """Return the wave that each rank believes to be in."""
        return [self._wave[i] for i in range(self._num_ranks)]

    cdef int _note(self, int64_t now_ns, int kind, int32_t wave, int32_t rank) except -1 nogil:
        if self._log is not None:
            with gil:
                self._log.append((now_ns, NOTED[kind], wave, None if rank < 0 else rank))
        return 0

    # ---- the front end

    cdef int arrive(self, int32_t rank, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Message message
        self.deliver(now_ns - 1)
        message.time_ns, message.wave, message.row, message.excluded = now_ns, self._front_wave, row, -1
        self._put(rank, message)
        if not self._front_believes and not self._engines_start:
            self._front_believes = True
            return self._events.push(now_ns + self._hop_ns, 0, FIRST_REQUEST, rank, self._front_wave)
        return 0

    cdef void forget(self, int32_t rank, int32_t row) noexcept nogil:
        cdef Inbox* inbox = &self._inboxes[rank]
        cdef int32_t i
        for i in range(inbox.size):
            if inbox.messages[i].row == row:
                inbox.size -= 1
                inbox.num_requests -= 1
                memmove(inbox.messages + i, inbox.messages + i + 1, (inbox.size - i) * sizeof(Message))
                return

    cdef int _put(self, int32_t rank, Message message) except -1 nogil:
        """Put a message into the queue of a rank, behind earlier and simultaneous ones."""
        cdef Inbox* inbox = &self._inboxes[rank]
        cdef int32_t i = inbox.size
        if inbox.size == inbox.room:
            resize(&inbox.messages, (2 * inbox.room + 4) * sizeof(Message))
            inbox.room = 2 * inbox.room + 4
        while i > 0 and inbox.messages[i - 1].time_ns > message.time_ns:
            inbox.messages[i] = inbox.messages[i - 1]
            i -= 1
        inbox.messages[i] = message
        inbox.size += 1
        inbox.num_requests += message.row >= 0
        return 0

    # ---- the coordinator

    cdef int _deliver(self, int64_t now_ns) except -1 nogil:
        while self._events.next_time() <= now_ns:
            self._hear(self._events.pop())
        return 0

    cdef int _hear(self, Event event) except -1 nogil:
        cdef int32_t wave = <int32_t>event.payload
        if event.kind == FRONT_COMPLETE:
            self._front_wave, self._front_believes = wave + 1, False
        elif event.kind == FRONT_BEGAN:
            self._front_wave, self._front_believes = wave, True
        elif event.kind == FIRST_REQUEST:
            if not self._coordinator_believes:
                self._start(event.time_ns, self._coordinator_wave,
                            -1 if wave < self._coordinator_wave else event.replica)
        elif event.kind == WAVE_COMPLETE:
            if wave >= self._coordinator_wave:
                self._coordinator_wave, self._coordinator_believes = wave + 1, False
                self._events.push(event.time_ns + self._hop_ns, 0, FRONT_COMPLETE, -1, wave)
        elif wave > self._coordinator_wave or (wave == self._coordinator_wave and not self._coordinator_believes):
            self._coordinator_wave, self._coordinator_believes = wave, True
            self._start(event.time_ns, wave, event.replica)
            self._events.push(event.time_ns + self._hop_ns, 0, FRONT_BEGAN, -1, wave)
        return 0

    cdef int _start(self, int64_t now_ns, int32_t wave, int32_t excluded) except -1 nogil:
        cdef Message message
        cdef int32_t i
        self._note(now_ns, ORDER, wave, excluded)
        message.time_ns, message.wave, message.row, message.excluded = now_ns + self._hop_ns, wave, -1, excluded
        for i in range(self._num_ranks):
            self._put(i, message)
        return 0

    # ---- ranks

    cdef int64_t next_of(self, int32_t rank) noexcept nogil:
        return self._inboxes[rank].messages[0].time_ns if self._inboxes[rank].size > 0 else NEVER_NS

    cdef int _take(self, int32_t rank, int64_t now_ns) except -1 nogil:
        cdef Inbox* inbox = &self._inboxes[rank]
        cdef const Message* message
        cdef int32_t count = 0
        while count < inbox.size and inbox.messages[count].time_ns <= now_ns:
            message = &inbox.messages[count]
            count += 1
            inbox.num_requests -= message.row >= 0
            if message.row < 0:
                if message.excluded != rank and message.wave >= self._wave[rank]:
                    self._wave[rank], self._is_running[rank] = message.wave, True
                continue
            self._wave[rank] = max(self._wave[rank], message.wave)
            if (self._engines_start or message.wave < self._wave[rank]) and not self._is_running[rank]:
                self._is_running[rank] = True
                self._note(now_ns, BEGAN, self._wave[rank], rank)
                self._events.push(now_ns + self._hop_ns, 0, WAVE_BEGAN, rank, self._wave[rank])
        inbox.size -= count
        memmove(inbox.messages, inbox.messages + count, inbox.size * sizeof(Message))
        return 0

    cdef int end_step(self, bint goes_on, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if goes_on and self._ran:
            return 0
        if goes_on:
            self._note(now_ns, BEGAN, self._wave[0], 0)
            self._events.push(now_ns + self._hop_ns, 0, WAVE_BEGAN, 0, self._wave[0])
        else:
            self._note(now_ns, COMPLETE, self._wave[0], 0)
            self._events.push(now_ns + self._hop_ns, 0, WAVE_COMPLETE, 0, self._wave[0])
        self._ran = goes_on
        for i in range(self._num_ranks):
            self._is_running[i] = goes_on
            self._wave[i] += not goes_on
        return 0

    cdef void go_on(self) noexcept nogil:
        memset(self._is_running, True, self._num_ranks)

    cdef void stand_still(self) noexcept nogil:
        cdef int32_t wave = 0, i
        self._events.clear()
        self._ran = self._front_believes = self._coordinator_believes = False
        memset(self._is_running, False, self._num_ranks)
        for i in range(self._num_ranks):
            self._inboxes[i].size = self._inboxes[i].num_requests = 0
            wave = max(wave, self._wave[i])
        self._front_wave = self._coordinator_wave = wave
        for i in range(self._num_ranks):
            self._wave[i] = wave
