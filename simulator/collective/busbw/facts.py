"""Facts of SimAI's analytical model about links and collectives, restated.

Source: aliyun/SimAI at cef83f9d (1.7), astra-sim-alibabacloud: the automatic bus bandwidth, and the tables of
inputs/ratio/{nvlink,nic,ata}_ratio.csv.
"""

# GB/s that a GPU reaches over NVLink: links x bandwidth of one, as SimAI takes it (20 to 20.6 of 25 GB/s).
GPU_GB_PER_S = {"A100": 240.0, "A800": 160.0, "H100": 370.8, "H20": 370.8, "H800": 164.8}
# GB/s that one network card reaches: ConnectX-6 (200 Gbit/s), ConnectX-7 and BlueField-3 (400 Gbit/s).
NIC_GB_PER_S = {"cx6": 23.5, "cx7": 48.5, "bf3": 48.5}
# The same as shares of the link's rate, for hardware that SimAI does not know: 20.6 of 25 and 48.5 of 50 GB/s.
SCALEUP_SHARE = 0.824
SCALEOUT_SHARE = 0.97

SMALL_BYTES = 1 << 20       # below this, a time by group size alone
SMALL_US = {2: 10.0, 4: 12.0, 8: 15.0, 16: 66.0, 32: 135.0, 64: 200.0, 128: 320.0}

# Bus bandwidth by message size, as a share of the peak: row i is for 16 MiB x 2^i, up to 16 GiB.
FIRST_BYTES = 1 << 24
NUM_SIZES = 11
_NVLINK = {     # collectives that NVLink limits, by number of nodes
    1: (.45, .55, .65, .69, .73, .76, .77, .78, .79, .80, .81),
    2: (.55, .68, .74, .80, .84, .86, .87, .87, .88, .88, .88),
    4: (.34, .60, .71, .74, .79, .86, .87, .87, .88, .88, .88),
    8: (.16, .34, .62, .70, .78, .82, .86, .87, .88, .88, .88),
    16: (.08, .16, .33, .65, .72, .75, .83, .86, .88, .88, .88),
}
_NIC = {        # collectives that network cards limit
    1: (.45, .55, .65, .69, .73, .76, .77, .78, .79, .80, .81),
    2: (.32, .47, .50, .67, .85, .89, .92, .94, .95, .95, .96),
    4: (.24, .38, .53, .67, .77, .85, .93, .94, .95, .96, .96),
    8: (.13, .24, .39, .54, .69, .78, .90, .94, .95, .96, .96),
    16: (.05, .11, .21, .38, .57, .73, .76, .92, .95, .96, .96),
    32: (.044, .052, .106, .205, .387, .562, .74, .758, .923, .953, .957),
    64: (.021, .042, .051, .107, .209, .384, .563, .745, .755, .914, .958),
    128: (.0087, .021225, .04405, .0533, .1027, .1902, .314575, .553525, .740175, .7648, .919175),
}
_ALL_TO_ALL = {
    1: (.44, .51, .60, .65, .70, .71, .74, .76, .77, .78, .78),
    2: (.52, .63, .72, .76, .79, .80, .81, .81, .80, .80, .80),
    4: (.67, .68, .83, .90, .92, .94, .94, .95, .95, .95, .95),
    8: (.64, .67, .82, .85, .87, .89, .92, .93, .94, .94, .94),
    16: (.62, .66, .66, .72, .75, .81, .85, .88, .89, .90, .90),
}
# All-to-all between GPUs of which each has a node of its own ("Multi 16").
_ONE_PER_NODE = (.86, .92, .94, .94, .94, .95, .96, .96, .96, .96, .96)
TABLES = {"nvlink": _NVLINK, "nic": _NIC, "all_to_all": _ALL_TO_ALL}


def ratios(table: str, num_nodes: int, exactly: bool = False) -> tuple[float, ...]:
    """Return the share of bus bandwidth by message size, 1 at 16 GiB.

    Parameters
    ----------
    table : a key of `TABLES`.
    exactly : as SimAI looks it up: counts from 32 nodes that are left empty are 1, counts not listed are those of 16.
        Otherwise the column of the largest count not above `num_nodes`.
    """
    columns = TABLES[table]
    if not exactly:
        return _normal(columns[max(count for count in columns if count <= num_nodes)])
    if num_nodes == 9:              # the ninth column of its files is this one
        return ratios_one_per_node()
    if num_nodes in (32, 64, 128) and num_nodes not in columns:
        return (1.0,) * NUM_SIZES
    return _normal(columns.get(num_nodes, columns[16]))


def ratios_one_per_node() -> tuple[float, ...]:
    """Return `ratios` of all-to-all between GPUs that share no node."""
    return _normal(_ONE_PER_NODE)


def _normal(column: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(value / column[-1] for value in column)
