"""What can happen in a cluster, in the order in which it does at one instant."""

cdef enum EventKind:            # kind and priority in one: at equal times the lowest goes first
    SAMPLE = 0                  # replicas are looked at: as they stand before anything happens at this instant
    OUTAGE = 1                  # a replica, node or link fails, slows down or recovers
    LIFECYCLE = 2               # a replica is ready, or its health becomes known
    ARRIVAL = 3                 # a request comes; never in the queue, the workload has it
    ADMIT = 4                   # the admission policy decides
    ROUTE = 5                   # the router decides
    RECALL = 6                  # a request is taken off its replica for a more urgent one
    EXPIRE = 7                  # a request has waited too long at the gateway
    DISPATCH = 8                # the gateway tries to pass a request on: a tick
    SCALE = 9                   # the autoscaler looks
    ACTUATE = 10                # what it decided takes effect
    RESCHEDULE = 11             # the rescheduler looks
    MIGRATE = 12                # a stage of a migration ends
    ENQUEUE = 13                # a request reaches the waiting queue of its replica
    TAKE_OFF = 14               # an iteration ends after which requests are taken off their replica
    REPLICAS = 15               # replicas act; never in the queue, it only shows that they do so between the two
    TIME_OUT = 16               # the client of a request gives up
    NUM_KINDS = 17
