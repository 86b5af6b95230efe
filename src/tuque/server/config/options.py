"""Every option of the server, once: type, unit, default, range, runtime flag and help.

CONFIG GET/SET/REWRITE, `--help`, the sample file, the docs and all error texts are made from
this table. An option `max_body_bytes` is written `max-body-bytes` everywhere outside the code.

Must not know: how values are found (config.py), what the server does with them.
"""

import difflib
from typing import Annotated, Final, get_type_hints

import msgspec

from tuque.server.config.kinds import (
    KEEP_ALIVE_S,
    Addresses,
    Bool,
    Choice,
    ClusterSecret,
    ConfigError,
    FileName,
    Int,
    KeepAlive,
    Memory,
    MemoryShare,
    Octal,
    Opt,
    OutputLimit,
    Percent,
    Secret,
    Text,
)

# Annotations are read at run time to make the table: no `from __future__ import annotations`.

MB: Final = 1 << 20
GB: Final = 1 << 30

NODE_MIN_MS: Final = 500  # five heartbeats: with fewer, healthy nodes suspect each other
VOTERS_MIN: Final = 3  # as tubes/model/voter_state.py has it
VOTERS_MAX: Final = 7
LEASE_MIN_MS: Final = 500  # an election takes some syncs of disks
LEASE_MAX_MS: Final = 3_600_000
NAME_SHOWN: Final = 128  # characters of an unknown option shown in an error

# Keys by section in a TOML file: [journal] fsync = "always".
ALIASES: Final = {
    "journal_enabled": "appendonly",
    "journal_fsync": "appendfsync",
    "journal_dir": "appenddirname",
    "events_enabled": "events",
    "server_port": "port",
    "server_bind": "bind",
    "server_dir": "dir",
}


# ---- Options about TLS (SPEC X)


class TlsOptions(msgspec.Struct, kw_only=True):
    """Part of Config."""

    tls_port: Annotated[
        int,
        Opt(
            Int(0, 65535),
            "TCP port of the clients with TLS; 0 = none; with `port` 0 it is the only one",
        ),
    ] = 0
    iproto_tls_port: Annotated[
        int, Opt(Int(0, 65535), "TCP port of IPROTO clients with TLS; 0 = none")
    ] = 0
    metrics_tls: Annotated[bool, Opt(Bool(), "metrics-port speaks TLS only")] = False
    tls_cert_file: Annotated[
        str,
        Opt(
            Text(),
            "certificate of the node, and those between it and the root, in PEM; read again when "
            "it changes",
        ),
    ] = ""
    tls_key_file: Annotated[
        str, Opt(Text(), "key of the certificate, in PEM, without a passphrase")
    ] = ""
    tls_ca_cert_file: Annotated[
        str, Opt(Text(), "certificates of the authorities of clients, in PEM")
    ] = ""
    tls_auth_clients: Annotated[
        str,
        Opt(
            Choice("no", "optional", "yes"),
            "ask clients for a certificate; its common name is their user",
        ),
    ] = "no"
    tls_min_version: Annotated[str, Opt(Choice("1.2", "1.3"), "oldest version of TLS spoken")] = (
        "1.2"
    )
    tls_ciphers: Annotated[
        str,
        Opt(Text(), "ciphers of TLS 1.2, as OpenSSL lists them; empty = its own choice"),
    ] = ""
    tls_cluster: Annotated[
        bool,
        Opt(
            Bool(),
            "links to other nodes speak TLS, and both ends show a certificate; the same for all "
            "nodes",
        ),
    ] = False
    tls_cluster_ca_cert_file: Annotated[
        str,
        Opt(
            Text(),
            "certificates of the authorities of nodes, in PEM; every certificate that they sign "
            "makes a node",
        ),
    ] = ""


# ---- Options about users and log-ins (SPEC N)


class AccessOptions(TlsOptions, kw_only=True):
    """Part of Config, with those of TLS; comes after its own options in every list."""

    users_file: Annotated[
        str,
        Opt(
            Text(),
            "users and their rights, one a line as ACL SAVE writes it; read again when it changes",
        ),
    ] = ""
    acllog_max_len: Annotated[int, Opt(Int(0, 10_000), "entries kept by ACL LOG", runtime=True)] = (
        128
    )
    audit: Annotated[
        bool, Opt(Bool(), "keep what administrators do, one line of JSON for each act")
    ] = False
    audit_dir: Annotated[str, Opt(Text(), "directory of the audit")] = "audit"
    audit_keep_bytes: Annotated[
        int, Opt(Memory(1 << 20, 1 << 40), "audit kept; the oldest files go first")
    ] = 100 << 20
    login_timeout: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "close connections that must log in and have not; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = 10
    login_connections: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "connections of one address that must log in and have not, at most; 0 = unlimited",
            runtime=True,
        ),
    ] = 100


# ---- All options


class Config(AccessOptions, kw_only=True):
    """The effective options of one server, and where each came from."""

    # In the order of Disque's CONFIG GET; ours follow `bind`.
    requirepass: Annotated[
        str,
        Opt(Secret(512), "password that clients must send with AUTH; empty = none", runtime=True),
    ] = ""
    unixsocket: Annotated[str, Opt(Text(107), "path of a unix socket to listen on")] = ""
    logfile: Annotated[str, Opt(Text(), "log to this file; empty = standard output")] = ""
    pidfile: Annotated[str, Opt(Text(), "written when daemonized")] = "/var/run/tuque.pid"
    maxmemory: Annotated[
        int | Percent,
        Opt(
            MemoryShare("the memory of the machine or its cgroup, at least 256mb"),
            "memory of the process with all jobs; 0 = unlimited",
            unit="bytes",
            runtime=True,
        ),
    ] = Percent(60)
    maxmemory_samples: Annotated[
        int,
        Opt(Int(1), "", runtime=True, obsolete="eviction looks at the oldest jobs, not at samples"),
    ] = 5
    timeout: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "close clients that are idle this long; blocked ones stay; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = 0
    auto_aof_rewrite_percentage: Annotated[
        int,
        Opt(Int(), "rewrite the journal when it grew by this; 0 = never", unit="%", runtime=True),
    ] = 100
    auto_aof_rewrite_min_size: Annotated[
        int,
        Opt(Memory(), "do not rewrite a smaller journal automatically", unit="bytes", runtime=True),
    ] = 64 * MB
    slowlog_log_slower_than: Annotated[
        int,
        Opt(Int(-1), "SLOWLOG keeps commands slower than this; -1 = none", unit="us", runtime=True),
    ] = 10000
    latency_monitor_threshold: Annotated[
        int, Opt(Int(), "LATENCY keeps events of this length; 0 = off", unit="ms", runtime=True)
    ] = 0
    slowlog_max_len: Annotated[
        int, Opt(Int(0, 1_000_000), "entries kept by SLOWLOG", runtime=True)
    ] = 128
    port: Annotated[
        int,
        Opt(Int(0, 65535), "TCP port of the clients; 0 = any free one, or none with a unixsocket"),
    ] = 7711
    tcp_backlog: Annotated[int, Opt(Int(0, 65535), "connections waiting for accept")] = 511
    databases: Annotated[int, Opt(Int(1), "", obsolete="a broker has no databases")] = 16
    maxclients: Annotated[
        int,
        Opt(Int(1, 10_000_000), "connected clients at most, and 3 that administrate", runtime=True),
    ] = 10000
    watchdog_period: Annotated[
        int,
        Opt(Int(), "", unit="ms", runtime=True, obsolete="LATENCY shows long turns of the loop"),
    ] = 0
    hz: Annotated[
        int,
        Opt(
            Int(1, 500, clamp=True),
            "kept for tools that ask; timers here fire at their deadline",
            unit="1/s",
            runtime=True,
        ),
    ] = 10
    cluster_node_timeout: Annotated[
        int, Opt(Int(NODE_MIN_MS), "a node silent this long is suspected", unit="ms", runtime=True)
    ] = 15000
    tcp_keepalive: Annotated[
        int,
        Opt(
            KeepAlive(),
            "probe silent connections of clients after this, 3 times in 45 s; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = KEEP_ALIVE_S
    no_appendfsync_on_rewrite: Annotated[
        bool, Opt(Bool(), "do not fsync while a rewrite runs (a crash may lose that time)")
    ] = False
    daemonize: Annotated[bool, Opt(Bool(), "run in the background")] = False
    activerehashing: Annotated[
        bool, Opt(Bool(), "", runtime=True, obsolete="tables here never rehash by steps")
    ] = True
    aof_rewrite_incremental_fsync: Annotated[
        bool, Opt(Bool(), "", runtime=True, obsolete="a rewrite always syncs in steps")
    ] = True
    aof_load_truncated: Annotated[
        bool,
        Opt(
            Bool(),
            "truncate a torn end of the journal at start; no = refuse to start",
            runtime=True,
        ),
    ] = True
    aof_enqueue_jobs_once: Annotated[
        bool,
        Opt(Bool(), "", runtime=True, obsolete="queued jobs come back queued from every journal"),
    ] = False
    maxmemory_policy: Annotated[
        str,
        Opt(Choice("acks", "noeviction"), "what may be dropped when memory is short", runtime=True),
    ] = "acks"
    loglevel: Annotated[
        str,
        Opt(Choice("debug", "verbose", "notice", "warning"), "least level logged", runtime=True),
    ] = "notice"
    appendfsync: Annotated[
        str,
        Opt(Choice("always", "everysec", "no"), "when the journal reaches the disk", runtime=True),
    ] = "everysec"
    syslog_facility: Annotated[
        str,
        Opt(
            Choice("user", *(f"local{one}" for one in range(8))),
            "",
            obsolete="logs go to standard output or logfile; systemd carries them on",
        ),
    ] = "local0"
    appendonly: Annotated[
        bool, Opt(Bool(), "keep a journal on disk, so that jobs survive a restart", runtime=True)
    ] = True
    dir: Annotated[str, Opt(Text(), "directory of all files with relative names")] = "."
    client_output_buffer_limit: Annotated[
        tuple[int, int, int],
        Opt(
            OutputLimit(),
            "close clients that leave more than this unread",
            unit="bytes, bytes, s",
            runtime=True,
        ),
    ] = (256 * MB, 64 * MB, 60)
    unixsocketperm: Annotated[int, Opt(Octal(), "permissions of the unix socket; 0 = umask")] = 0
    bind: Annotated[
        list[str],
        Opt(Addresses(), "addresses to listen on; empty = loopback, or all once a password is set"),
    ] = []
    # Disque has these but does not show them.
    syslog_enabled: Annotated[
        bool,
        Opt(
            Bool(),
            "",
            hidden=True,
            obsolete="logs go to standard output or logfile; systemd carries them on",
        ),
    ] = False
    syslog_ident: Annotated[
        str,
        Opt(
            Text(),
            "",
            hidden=True,
            obsolete="logs go to standard output or logfile; systemd carries them on",
        ),
    ] = "tuque"
    appendfilename: Annotated[
        str,
        Opt(
            FileName(),
            "",
            hidden=True,
            obsolete="the journal is the directory appenddirname; "
            "`tuque journal import` reads an AOF of Disque",
        ),
    ] = "disque.aof"
    cluster_config_file: Annotated[
        str, Opt(FileName(), "where a node keeps its name and the cluster, in dir", hidden=True)
    ] = "nodes.conf"
    # Ours.
    protected_mode: Annotated[bool, Opt(Bool(), "without a password listen on loopback only")] = (
        True
    )
    maxmemory_clients: Annotated[
        int | Percent,
        Opt(
            MemoryShare("maxmemory"),
            "reserved for what clients hold together: beyond it the largest are closed; "
            "0 = nothing, it counts to maxmemory",
            unit="bytes",
            runtime=True,
        ),
    ] = Percent(20)
    appenddirname: Annotated[str, Opt(FileName(), "directory of the journal, in dir")] = "journal"
    journal_segment_bytes: Annotated[
        int, Opt(Memory(64 << 10, GB), "a journal segment is closed at this size", unit="bytes")
    ] = 64 * MB
    disk_free_min: Annotated[
        int,
        Opt(
            Memory(0, 1 << 40),
            "free bytes of the journal's disk below which it takes no more jobs; 0 = any",
            unit="bytes",
            runtime=True,
        ),
    ] = 256 * MB
    disk_reserve: Annotated[
        int,
        Opt(
            Memory(0, 1 << 40),
            "a file of that size gives its room to the journal when the disk is full; 0 = none",
            unit="bytes",
        ),
    ] = 64 * MB
    queue_idle_time: Annotated[
        int,
        Opt(
            Int(1, 1 << 31),
            "remove an empty queue unused for this long (10 s and 2 s when memory is short)",
            unit="s",
            runtime=True,
        ),
    ] = 300
    dedupe_max_keys: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "keys of ADDJOB ... DEDUPE kept at most; more are refused (each some 350 bytes)",
            runtime=True,
        ),
    ] = 1_000_000
    tube_idle_time: Annotated[
        int,
        Opt(
            Int(0, 1 << 31),
            "drop a tube that an enqueue made when it was empty for this long; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = 3600
    unstarted_max: Annotated[
        int,
        Opt(
            Int(0, 1_000_000),
            "deliveries in a row that nobody begins before a job with ATTEMPTS is dead; 0 = any",
            runtime=True,
        ),
    ] = 100
    crashes_max: Annotated[
        int,
        Opt(
            Int(0, 1_000_000),
            "runs that end in silence before a job with ATTEMPTS is dead; 0 = any",
            runtime=True,
        ),
    ] = 3
    results_max_bytes: Annotated[
        int,
        Opt(
            Memory(0, 1 << 40),
            "outcomes and results kept at most; the oldest are dropped",
            unit="bytes",
            runtime=True,
        ),
    ] = 64 * MB
    values_max_bytes: Annotated[
        int,
        Opt(
            Memory(0, 1 << 40),
            "values of one tube at most, with what each costs; 0 = an eighth of maxmemory",
            unit="bytes",
            runtime=True,
        ),
    ] = 0
    dead_max_bytes: Annotated[
        int,
        Opt(
            Memory(0, 1 << 40),
            "dead letters kept at most, with their bodies; the oldest are deleted",
            unit="bytes",
            runtime=True,
        ),
    ] = 256 * MB
    dead_keep_days: Annotated[
        int, Opt(Int(1, 36_500), "days that a dead letter is kept", unit="days", runtime=True)
    ] = 30
    tubes_max: Annotated[
        int,
        Opt(Int(1, 10_000), "most tubes that a node knows; more are refused", runtime=True),
    ] = 10_000
    log_format: Annotated[
        str,
        Opt(
            Choice("text", "json"), "lines of the log: for people, or one object each", runtime=True
        ),
    ] = "text"
    command_deadline: Annotated[
        int,
        Opt(
            Int(0, 86400),
            "close clients that take longer to send one command; 0 = never",
            unit="s",
            runtime=True,
        ),
    ] = 30
    default_ttl: Annotated[
        int, Opt(Int(1, 1 << 31), "TTL of jobs added without one", unit="s", runtime=True)
    ] = 86400
    default_retry_max: Annotated[
        int,
        Opt(
            Int(1, 1 << 31),
            "longest RETRY of jobs added without one (else TTL/10)",
            unit="s",
            runtime=True,
        ),
    ] = 300
    default_replicate: Annotated[
        int, Opt(Int(1, 255), "copies of jobs added without REPLICATE, at most", runtime=True)
    ] = 3
    max_body_bytes: Annotated[
        int, Opt(Memory(512, 512 * MB), "largest body of a job", unit="bytes", runtime=True)
    ] = 64 * MB
    client_query_buffer_limit: Annotated[
        int,
        Opt(
            Memory(MB, GB),
            "largest command a client may send, all arguments",
            unit="bytes",
            runtime=True,
        ),
    ] = 128 * MB
    cluster_enabled: Annotated[
        bool, Opt(Bool(), "listen on the bus; no = a node without a cluster")
    ] = True
    cluster_port: Annotated[
        int,
        Opt(
            Int(0, 65535),
            "TCP port of the bus; 0 = port + 10000, or any free one where port is 0 or above 55535",
        ),
    ] = 0
    cluster_bind: Annotated[
        list[str],
        Opt(
            Addresses(),
            "addresses of the bus; empty = as the clients' with a cluster secret, else loopback",
        ),
    ] = []
    cluster_secret: Annotated[
        str, Opt(ClusterSecret(), "of all nodes; empty = nodes of this machine only", runtime=True)
    ] = ""
    cluster_secret_also: Annotated[
        str, Opt(ClusterSecret(), "a second one that is accepted, to change it", runtime=True)
    ] = ""
    cluster_secret_file: Annotated[
        str, Opt(Text(), "read them from the lines of this file, at CONFIG SET again", runtime=True)
    ] = ""
    cluster_announce_ip: Annotated[
        str,
        Opt(
            Text(255), "address or name at which other nodes reach this one; empty = they find out"
        ),
    ] = ""
    cluster_announce_port: Annotated[
        int, Opt(Int(0, 65535), "port at which clients reach this node; 0 = the one it listens on")
    ] = 0
    cluster_announce_bus_port: Annotated[
        int, Opt(Int(0, 65535), "bus port for the other nodes; 0 = the one it listens on")
    ] = 0
    bus_buffer_limit: Annotated[
        int,
        Opt(
            Memory(MB, 1 << 40),
            "close a link to a node when more than this waits to be sent; "
            "ADDJOB waits from a quarter of it",
            unit="bytes",
            runtime=True,
        ),
    ] = 64 * MB
    bus_busy_poll: Annotated[
        int,
        Opt(
            Int(0, 1000),
            "busy-poll for peers at most this long before sleeping; 0 = off",
            unit="us",
            runtime=True,
        ),
    ] = 200
    repair_rate: Annotated[
        int,
        Opt(Int(1, 1_000_000), "lost copies made again at most", unit="jobs/s", runtime=True),
    ] = 5_000
    iproto_port: Annotated[
        int,
        Opt(
            Int(0, 65535),
            "TCP port for clients of Tarantool's queue, on the addresses of `bind`; 0 = none "
            "(theirs is 3301)",
        ),
    ] = 0
    iproto_users_file: Annotated[
        str,
        Opt(
            Text(),
            "who may log in over IPROTO: lines of name, password, maybe `all`; empty = only guest",
        ),
    ] = ""
    read_only: Annotated[
        bool,
        Opt(Bool(), "lead no tubes: those of this node move to other nodes", runtime=True),
    ] = False
    tube_failover: Annotated[
        bool,
        Opt(Bool(), "this node may vote: votes replace lost leaders of tubes", runtime=True),
    ] = True
    tube_voters: Annotated[
        int,
        Opt(
            Int(VOTERS_MIN, VOTERS_MAX),
            "nodes that vote by themselves, and have the copies of tubes that fail over",
            runtime=True,
        ),
    ] = VOTERS_MIN
    tube_lease_timeout: Annotated[
        int,
        Opt(
            Int(LEASE_MIN_MS, LEASE_MAX_MS),
            "a leader of tubes silent this long is replaced by votes",
            unit="ms",
            runtime=True,
        ),
    ] = 2000
    failover_disks: Annotated[
        str,
        Opt(Choice("trust", "ask"), "of whom a start asks if its disk is old", runtime=True),
    ] = "trust"
    enable_debug_command: Annotated[
        str, Opt(Choice("no", "local", "yes"), "who may use DEBUG: nobody, loopback, all")
    ] = "local"
    events: Annotated[bool, Opt(Bool(), "write what happens to jobs as segments for Spark")] = False
    events_dir: Annotated[str, Opt(Text(), "directory of the event segments")] = "events"
    events_roll_rows: Annotated[
        int, Opt(Int(1000, 100_000_000), "rows after which an event segment is closed")
    ] = 100_000
    events_roll_seconds: Annotated[
        int, Opt(Int(1, 86400), "time after which an event segment is closed", unit="s")
    ] = 60
    events_buffer: Annotated[
        int,
        Opt(Int(1000, 100_000_000), "events held in memory (200 B each); more are dropped"),
    ] = 262_144
    events_keep_bytes: Annotated[
        int,
        Opt(Memory(), "sealed event segments kept; the oldest go first; 0 = all", unit="bytes"),
    ] = 10 * GB
    events_keep_days: Annotated[
        int, Opt(Int(0, 36_500), "days (UTC) of sealed event segments kept; 0 = all", unit="days")
    ] = 0

    metrics_port: Annotated[
        int,
        Opt(
            Int(0, 65535),
            "TCP port of /metrics, /healthz and /readyz over HTTP; 0 = none",
        ),
    ] = 0
    metrics_bind: Annotated[
        list[str], Opt(Addresses(), "addresses of metrics-port; empty = loopback")
    ] = []
    metrics_queues: Annotated[
        int,
        Opt(
            Int(0, 10_000),
            "queues with figures of their own in /metrics; all others are one, `other`",
            runtime=True,
        ),
    ] = 200
    rings_queues: Annotated[
        int,
        Opt(
            Int(0, 10_000),
            "queues with points of their own in HISTORY (up to 147 KB each after a day)",
            runtime=True,
        ),
    ] = 200

    # Not options: where the values came from.
    origin: dict[str, str] = {}
    warnings: list[str] = []
    config_file: str = ""
    read_files: list[str] = []  # it, and those that it includes
    config_syntax: str = ""
    is_any_port: bool = False  # `port` was 0: the system has chosen one
    is_open: bool = False  # listens on an address open to other machines, since the start


def _table() -> dict[str, Opt]:
    """Read the struct once: field name to option, in the order of the struct."""
    table: dict[str, Opt] = {}
    hints = get_type_hints(Config, include_extras=True)
    defaults = Config()
    fields = Config.__struct_fields__
    last = AccessOptions.__struct_fields__
    for field in [*[one for one in fields if one not in last], *last]:
        for extra in getattr(hints[field], "__metadata__", ()):
            if isinstance(extra, Opt):
                extra.field, extra.name = field, field.replace("_", "-")
                extra.default = getattr(defaults, field)
                extra.help = extra.help or f"no effect: {extra.obsolete}"
                table[field] = extra
    return table


OPTIONS: Final = _table()


def find_option(name: str, where: str = "") -> Opt:
    """Return the option called `name` (`-`, `_` and `.` are the same); ConfigError if unknown."""
    if len(name) > NAME_SHOWN:
        raise ConfigError(name[:NAME_SHOWN] + "...", "", "", "unknown", where)
    field = name.strip().lower().replace("-", "_").replace(".", "_")
    field = ALIASES.get(field, field)
    if field in OPTIONS:
        return OPTIONS[field]
    near = difflib.get_close_matches(field, list(OPTIONS), 1)
    hint = f"; did you mean '{OPTIONS[near[0]].name}'?" if near else ""
    raise ConfigError(name, "", hint, "unknown", where)
