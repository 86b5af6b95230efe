"""The rules of single commands: numbered lines in Markdown, which docs/commands.md shows.

They belong to the spec: `tools/spec_check.py` reads them there. A key is a command, or a command
and its subcommand. `spec/` has the rules of more than one command.
"""

from typing import Final

from tuque.wire.commands.details_jobs import JOB_DETAILS
from tuque.wire.commands.details_tasks import TASK_DETAILS
from tuque.wire.commands.details_tubes import TUBE_DETAILS
from tuque.wire.commands.details_work import WORK_DETAILS

DETAILS: Final[dict[bytes, str]] = {
    b"SHOW": """
- S1.1 Unknown: a null bulk. Known: 15 names and values: id, queue, state, repl, ttl (seconds
  left), ctime (ns), delay, retry, nacks, additional-deliveries, nodes-delivered,
  nodes-confirmed, next-requeue-within (ms, null if the due time is 0), next-awake-within (ms,
  null if none), body.
- S1.2 A record without a body: queue and body null, missing values 0 or null. An acked job: body
  null. (cluster) nodes-delivered are the holders; nodes-confirmed is empty unless the job is in
  wait-repl or acked.
- S1.3 If this node has delivered the job, there follow: deliveries, first-delivery,
  last-delivery (ms since 1970), since it first had the job.
- S1.4 If the job has options about its work, or a command of W was used on it, there follow:
  headers (names and values), attempts (0: no limit), backoff (first and longest in ms, jitter in
  thousandths), dead (its queue of dead letters), keep (ms, 0: none), keep-body (1: KEEP BODY),
  time-limit (ms, 0: none), on-expiry (`dead` or `drop`), failed, crashes, starts, run,
  first-failure, last-failure. run: null, or of the newest one `running`, `released` or `failed`,
  attempt, worker, since (ms since 1970). A failure: null, or ms since 1970, attempt, worker,
  cause, reason.
- S1.5 If the PRI of a job in a queue is not 5, pri follows.
""",
    b"QLEN": """
- S2.1 QLEN: jobs queued here, 0 for an unknown queue.
""",
    b"QSTAT": """
- S2.2 QSTAT: a null array for an unknown queue, else 11 names and values: name, len, age, idle,
  blocked, import-from, import-rate, jobs-in, jobs-out, pause, oldest. age and idle are seconds
  since the queue was created, and since a job entered or left it.
- S2.3 Of a tube also its type.
- S2.4 oldest is the age in seconds of the oldest job queued here, since its creation, delay
  included; 0 if none is queued. In a tube it is the age of the next task. If READY tasks wait
  for a LIMIT or a RATE, it is at least the age of the next task of the limit, and of the rate,
  for which tasks have waited longest (T47.2).
""",
    b"QPEEK": """
- S3.1 Up to count jobs as in V1.3 without counters, in the order of the queue (G3.2): by PRI,
  then oldest first; a negative count: the last one first. An empty queue, or count 0: an empty
  array. The queue does not change.
- S3.2 At most 5,000 jobs (L2.5).
- S3.3 The first tasks of a tube are found without a look at those behind them. The last ones,
  and the first ones of a tube with more than 100 partitions or sub-queues, take a walk over all
  tasks in slices (L2.2).
""",
    b"QSCAN": """
- S4.1 The next cursor and queue names. Cursor 0 begins and ends the scan. A queue that exists
  throughout is returned at least once, or twice if others are removed meanwhile.
- S4.2 COUNT below 1: `-ERR COUNT must be a number greater than zero`. A second cursor: C4.6. A
  first word that is neither a number nor an option, an option without its value at the end, or a
  number below 0: `-ERR invalid cursor or option name`.
- S4.3 TYPE returns the tubes of that type, `TYPE queue` the queues that are not tubes.
- S4.4 COUNT (100) is the number of names wanted; up to ten times as many queues are examined. A
  full reply (L2.5) ends earlier. The newest queues come first. A cursor never expires, and costs
  no memory.
""",
    b"JSCAN": """
- S5.1 Ids as statuses, or with REPLY ALL the reply of SHOW. Several states are combined with or.
  Records without a body are not shown.
- S5.2 Errors as in S4.2. Bad state: `-ERR Invalid job state name`. Bad reply type: `-ERR Invalid
  REPLY type, try ID or ALL`.
- S5.3 COUNT and cursors are as in S4.4. A job that exists throughout is returned at least once.
""",
    b"CLUSTER": """
- S6.1 A cluster of one answers MYID, NODES, INFO (`cluster_state:ok`, 1 known node, 0 reachable,
  size 1), SAVECONFIG, LEAVING and RESET. FORGET of itself: `-ERR I tried hard but I can't forget
  myself...`; unknown node: `-ERR Unknown node <id>`; other: C4.8.
- S6.2 `LEAVING yes|no` sets the flag, also on a node that is alone; then R1.5 and V1.5 apply.
  `STOPPING yes|no` likewise (K9). Without a word both reply yes or no.
- S6.3 (cluster) `MEET host port [bus-port]`: the bus port is port + 10000 unless it is given.
  Errors:
  - Not a number: `-ERR Invalid TCP port specified: <word>`. Not a possible address, name or
    port: `-ERR Invalid node address specified: <host>:<port>`.
  - `cluster-enabled no`: `-ERR this node stays alone: cluster-enabled is no`. The address of
    another machine, but no secret: `-ERR without a cluster-secret only nodes of this machine can
    be met` and how to make one. Closed doors and no secret (B1.7): `-ERR this node restricts its
    clients and has no cluster-secret` and what to do.
- S6.4 (cluster) `NODES`: a line a node: id, host:port, flags, when it was last asked and last
  heard from (ms), connected or disconnected. A node that does no work (C3.11) says why in its
  own line: `conflict`, `forgotten` or `unmet`. A handshake in progress or failed has an id of
  zeros, the flag handshake, and the reason at the end.
- S6.5 (cluster) `INFO`: the state (ok, conflict, forgotten, unmet), known and reachable nodes,
  messages and bytes on the bus, jobs to repair (K5.5), whether the node leaves, what it still
  has to give away, whether it is safe to stop (K7.3).
- S6.6 (cluster) `RESET SOFT` drops jobs, queues and the other nodes, closes all links and begins
  a new incarnation without jobs (K6.3). `HARD` also takes a new id and ends LEAVING.
  - It is refused without `FORCE` while this node does its work and leads tubes that other nodes
    can lead (K9.2): `-ERR this node leads tubes that other nodes can lead, and <n> of them would
    have no leader: CLUSTER LEAVING yes hands them over, or CLUSTER RESET <mode> FORCE`.
- S6.7 (cluster) `REPAIR` replies `done` as a status, or the number of K5.5.
""",
    b"DEBUG": """
- S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted, and all kept outcomes. The
  pauses of these queues are forgotten here.
- S7.2 `enable-debug-command` (no, local, yes) says who may use DEBUG; other clients get an error
  that begins with `DENIED`. Subcommands that crash the process are refused to all.
""",
    b"INFO": """
- S8.1 The sections of Disque with their fields, then ours: the ledger (G9), memory levels,
  events. Section Memory has the memory used by class (`used_memory_jobs` and so on). All classes
  add up to `used_memory`, except `used_memory_clients`: what clients hold (M5.1), the sum of the
  classes `buffers` and `waiting`. `mem_not_counted_for_evict`: the part of it that the levels do
  not count. More than one argument: C4.6; an unknown section: an empty bulk.
- S8.2 (cluster) Section Cluster: the fields of CLUSTER INFO (S6.5), jobs that wait for copies,
  acked jobs, tombstones. Section Bus: links, their unsent frames, bytes and frames, links
  refused or closed at a limit, messages in each direction by kind. No section shows secrets.
- W14.15 (cluster) A node that sees two outcomes of one job counts the job once
  (`outcomes_conflicting` of INFO), with one log line a second at most. Two that differ in their
  reasons only are not counted.
- G9.2 INFO shows the counters of the ledger (G9.1).
""",
    b"HISTORY": """
- O3.1 A node keeps points of its figures in memory: one each 5 s for the last 720, and one each
  minute for the last 1,440. The time of a point is the end of its interval, a multiple of the
  step in ms since 1970, so that the points of several nodes meet. An interval in which the node
  did not run, or stood still, has no point. A restart begins anew.
- O3.2 An array of the step in ms, the names of the fields, and the points, oldest first. A
  point: its time and one integer a field. FROM: only points later than that instant. COUNT: only
  the last n of them. Options come before the fields. No field: all, in the order of O3.3.
- O3.3 The fields. The first eleven count what happened at this node in the interval; the others
  are as at its end. In a tube `oldest-ms` is the age of the tasks that S2.4 names.

| field | of | is | over nodes |
|---|---|---|---|
| `added` | jobs | came from clients | sum |
| `delivered` | deliveries | to clients and leases | sum |
| `first-delivered` | jobs | delivered for the first time, as far as this node knows | sum |
| `wait-ms` | ms | all that these waited, from the end of their first delay | sum |
| `acked` | jobs | acknowledged, or done | sum |
| `worked` | jobs | those of them that this node had delivered | sum |
| `work-ms` | ms | all the time from the last delivery of these to their end | sum |
| `failed` | attempts | failed: FAIL, a crash, a time limit | sum |
| `requeued` | jobs | put back into their queue, for any cause | sum |
| `dead` | jobs | dead letters, DEADLETTER | sum |
| `expired` | jobs | ended by their TTL | sum |
| `ready` | jobs | queued | sum |
| `delayed` | jobs | wait for first delay, back-off, NACK DELAY, DEQUEUE | sum |
| `at-work` | jobs | delivered or leased, neither ended nor put back | sum |
| `oldest-ms` | ms | since the oldest queued job was due first; 0: none is queued | greatest |
| `loop-p99-us` | us | 99 of 100 turns of the loop ended within it; of the node only | greatest |
| `memory` | bytes | used (M1.1); of the node only | sum |

- O3.4 QUEUE gives the points of one queue, without the fields of the node only; no points: a
  null array. `rings-queues` (200) queues have points; with more queues, those that are longest
  and busiest. A queue loses its place when it is removed (M4), when it was empty and idle for 15
  minutes and another one wants the place, or when another one has four times as much (queued,
  added and delivered in 5 s) and 100 more.
  - But a queue of a tenant that has more than a quarter of the places gives way to any queue of
    others, and takes a place from its own tenant only. The metrics have labels for the first of
    these queues (O1.4).
- O3.5 `HISTORY QUEUES`: the names of the queues that have points, in the order of their names.
- O3.6 Errors: another first word, an option without its value, QUEUE or fields with TIMES, a
  field named twice: C4.6. FROM or COUNT below 0: `-ERR FROM and COUNT must be numbers from 0
  up`. A field of no such name, or of the node with QUEUE: `-ERR no field '<name>': see HISTORY
  in docs/commands.md`.
- O3.7 `TIMES wait|work`: an array of the step, the bounds of O1.6 in ms, and the points of the
  node: an array of its time, and for each bound how many jobs of the interval were within it and
  beyond the one before; then those beyond all. wait: jobs delivered for the first time, as in
  `wait-ms`; work: jobs acknowledged, as in `work-ms`. Over nodes they are summed, and
  percentiles computed from the sums.
- O3.8 Of many queues 500 in a turn get their point, or lose their place; the others follow
  after 25 ms.
""",
    b"QLIST": """
- O10.1 An array of the number of queues that are meant, and rows. A queue is meant if it exists
  here, or a job of it is known here. SORT: `name` (default), `ready`, `delayed`, `at-work`,
  `dead`, `oldest`, `in`, `out` or `blocked`, equal ones by name; ASC is the default. NAMES,
  last: only these queues. OFFSET (0) of them are left out, COUNT (100; 1..1000) follow. A full
  reply (L2.5) has fewer.
- O10.2 A row: name, type, ready, delayed, at-work, dead, oldest-ms, in, out, blocked, pause.
  Type: `queue`, `dead` (it has dead letters, or its name ends in `.dead`) or that of the tube.
  ready, delayed, at-work and oldest-ms are as in O3.3, dead is the QLEN of `<name>.dead`,
  blocked the number of clients that wait for jobs, pause as in P1.4. Dead letters count as 0 for
  the order `oldest`.
- O10.3 in and out are the jobs added and the jobs acked in a second (as in O3.3), with three
  decimals, over the last 30 to 60 s; of a younger queue, since its creation.
- O10.4 The figures of a row are of one moment. Queues that come or go meanwhile may be missed;
  one may be sorted by a figure that has changed since.
- O10.5 The node walks over its queues in slices (L2.2), and sorts only what the page needs: with
  100,000 queues no turn does more than the bound of the table. A unit is about a microsecond,
  interpreted: 2 for a name, 2 to 5 for the figure to sort by, some for the steps of the glob, 30
  for a row.
- O10.6 Errors: another COUNT, `-ERR COUNT must be a number from 1 to 1000, not '<word>'`; beyond
  the first 10,000, `-ERR OFFSET and COUNT must stay within the first 10000 queues: use MATCH`;
  another field, `-ERR SORT takes name, ready, delayed, at-work, dead, oldest, in, out or
  blocked, not '<word>'`; another word: C4.6.
""",
    b"WORKER HERE": """
- O11.1 HERE announces a worker, under the name that its STARTs give (W2), or reports that it
  lives; its words replace the last ones. The reply is what an operator wants of it (O13):
  `none`, `quiet` or `stop`. DONE and FAILED: jobs done and attempts failed since it began;
  QUIET: it takes no more jobs; VERSION: of the worker program; APP: of its tasks; AGE: ms since
  its process began. QUEUES is the last option.
- O11.2 A worker that sent no HERE for 8 s is lost. It sends one every 3 s (U6.1), so that a
  killed one shows as lost within 10 s. A lost worker that sends HERE again begins anew, without
  an order.
- O11.3 `WORKER BYE` forgets the worker: it has ended well. The reply is OK, also of an unknown
  one.
- O11.4 A node knows at most 10,000 workers, lost ones included: `-ERR too many workers: at most
  10000`. What workers send about themselves uses at most a sixteenth of `maxmemory`, and the
  workers of a tenant at most a quarter of both, as N11.8 counts it: `-OOM workers may use a
  sixteenth of maxmemory, and those of a tenant a quarter of what others leave of that and of
  10000: run fewer, with fewer queues`. Lost ones leave after an hour, and above 1,000 those
  heard from the longest ago.
- O11.5 Workers are in memory only. After a restart of the node they are known again with their
  next HERE, and a run with its next WORKING.
- O11.6 Errors: a name of 0 or over 255 bytes, `-ERR WORKER takes a name of 1 to 255 bytes`;
  HOST, VERSION or APP over 255 bytes, `-ERR HOST, VERSION and APP take at most 255 bytes`; over
  100 queues, `-ERR a worker names at most 100 queues`; names of over 8192 bytes together, `-ERR
  the queues of a worker have at most 8192 bytes`; another value, `-ERR PID, SLOTS, BUSY, DONE,
  FAILED and AGE take a number from 0 up, not '<word>'`; another word: C4.6.
""",
    b"WORKER LIST": """
- O12.1 The next cursor (0: the end), and for each worker names and values: `name host pid
  version app queues slots busy done failed since-ms heard-ms state order runs`. since-ms: the
  instant of its first HERE; heard-ms: ms since its last HERE; state: `alive`, `quiet` or `lost`.
- O12.2 runs are the jobs that the worker began at this node, or for which its WORKING came here,
  at most 100 of the last 500: id, queue, task, attempt, ms since it began, state, and the ms
  until it is due again (null: never, or queued). The state is `running`; of a lost worker
  `waiting` (due when its RETRY or TIMELIMIT is over), `back-off` or `queued`, until another
  worker begins the job or it ends.
- O12.3 COUNT (1..1000, 100) is the number of workers wanted, else `-ERR COUNT must be a number
  from 1 to 1000`. MATCH is a glob of their names. They come in the order of their first HERE; a
  full reply (L2.5) ends earlier.
- O12.4 (cluster) A worker is known where it sent HERE, which may be several nodes: of several
  rows of one name the one with the least heard-ms counts, and the runs of all of them together.
- O12.5 (cluster) A worker that comes from another node may begin jobs before its first HERE at
  this one: these runs count if the HERE comes within 8 s of the last of them. The node keeps
  them for the last 1,000 names that begin jobs so.
""",
    b"WORKER DEPLOYS": """
- O12.6 The changes of APP that this node learned, oldest first: for each its instant in ms, the
  new APP, and queues. A worker that is new, or has another APP than before, makes one if the
  latest of the same QUEUES before it has another APP, or there is none. A return to an earlier
  APP is a change.
  - Its instant is AGE ago by the clock of this node; now, without AGE. So a worker that comes
    from another node changes nothing that was known, and a restarted node gets the instants
    again. If the next one of the same QUEUES has this APP, the earlier one stays alone.
  - The latest 100 are kept, in memory only, as long as their words have at most 65,536 bytes.
    The first of some queues is no change: a node that starts anew hears of all workers again.
  - A reader of several nodes merges their rows by instant: a row is a change if its APP differs
    from that of the row before it.
""",
    b"WORKER QUIET": """
- O13.1 `WORKER QUIET` and `WORKER STOP`: the order is the reply to each HERE from now on, and is
  pushed to the connection of the last one, if that speaks RESP3: `worker-order name order`. STOP
  replaces QUIET, not the other way round. The reply is OK.
- O13.2 A worker that is unknown or lost: `-NOWORKER no worker of that name is heard here`.
""",
    b"PING": """
- C7.1 PING replies `+PONG`, or its one argument as a bulk. More arguments: `-ERR wrong number of
  arguments for 'ping' command`. ECHO replies with its argument as a bulk.
""",
    b"CLIENT": """
- C7.2 LIST, GETNAME, SETNAME, ID, SETINFO, INFO, KILL, UNBLOCK, PAUSE, REPLY, TRACKING OFF,
  NO-EVICT and NO-TOUCH are supported. Another subcommand: `-ERR Syntax error, try CLIENT (LIST |
  KILL ip:port | GETNAME | SETNAME connection-name)`.
- C7.12 UNBLOCK ends the wait of the client with that id in GETJOB, TUBE TAKE, RESULT, WAITJOB or
  VALUE WAIT: it gets its reply as at its timeout. The reply is 1, or 0 if that client did not wait
  for these, is not there, or has another user.
- C7.3 After CLIENT REPLY OFF commands run without replies. GETJOB then takes nothing, because
  its jobs would be lost.
""",
    b"RESET": """
- C7.4 RESET returns the session to C1.2 and replies `+RESET`. SELECT 0 replies `+OK`; another
  number: `-ERR DB index is out of range`.
""",
    b"MONITOR": """
- C7.5 MONITOR replies `+OK` and then sends one line per command of any client, `+<s>.<us>
  [<address>] "word" ...`. In RESP3 the address is `[0 <address>]`, since Redis clients expect a
  database number there. Passwords are not shown.
  - Nor is what follows AUTH, or an unknown option, in a HELLO that is wrong, nor the value in a
    CONFIG SET of an option that does not exist or of several options.
- C7.10 At most 64 words of a command and 1024 bytes of each, and how many more there are.
- C7.11 A client in MONITOR with more than 8 MiB of unread replies is closed, whatever
  `client-output-buffer-limit` allows.
""",
    b"CONFIG": """
- C7.7 CONFIG GET takes one or more patterns, at most 32 of at most 128 bytes each, and returns
  each matching option once. `requirepass` and other secrets are shown as `********`, or as empty
  if they are not set.
- C7.8 CONFIG REWRITE writes the running options into the file that the server was started with,
  in its own format, TOML or `disque.conf`.
  - Only lines whose value differs change, and of a repeated option only the last line. Comments,
    order, blank lines and unknown directives stay. Options that the file does not set are
    appended.
  - Included files are not written. If an included file sets another value, a line after the
    include overrides it.
  - The file is replaced atomically, with mode 0600. If that fails, the file is unchanged and the
    error says why.
- C7.9 CONFIG SET takes a value in every form that the file accepts: sizes with units; yes, true,
  on and 1; words in any case; blanks around them do not count. An option that cannot change
  while the server runs: `-ERR Unsupported CONFIG parameter: <name>`. A legal value that CONFIG
  SET has set can be changed again by CONFIG SET, on a new connection.
""",
    b"HELLO": """
- C5.1 `HELLO` without an argument replies as Disque does: an array of `:1`, the node id, and for
  each known node an array of id, address, port and priority, all bulk strings. The node's own
  address is `cluster-announce-ip`, else the address that the client has connected to; over a
  unix socket it is empty. CLUSTER NODES shows the same.
- C5.2 `HELLO 2|3 [AUTH user password] [SETNAME name]` sets the protocol and replies as Redis
  does, with server, version, proto, id, mode, role, modules. Another version: `-NOPROTO
  unsupported protocol version`.
- K8.1 (cluster) The priority is 1; without a link 5; suspected 10; failed, leaving or in
  conflict (K1.3) 100. Nodes in handshake are not listed.
""",
    b"AUTH": """
- C5.3 `AUTH password` without a password configured: `-ERR Client sent AUTH, but no password is
  set`; wrong: `-ERR invalid password`, and the session is no longer authenticated; right: `+OK`.
  `AUTH default password` means the same.
""",
    b"ACL": """
- N3.1 SETUSER, GETUSER, DELUSER, LIST, USERS, WHOAMI, CAT, LOG, DRYRUN, GENPASS, SAVE and LOAD
  do what Redis users expect. Another word: C4.8.
- N3.2 Words of SETUSER, applied in order: `on`, `off`, `nopass`, `resetpass`, `>password`,
  `<password`, `#hash`, `!hash`, `~pattern`, `allkeys`, `resetkeys`, `+unit`, `-unit`,
  `+@category`, `-@category`, `allcommands`, `nocommands`, `reset`, `iproto`, `noiproto`,
  `iproto:digits`, `tenant:name`, `notenant`, `quota:what=number`. A category may stand without
  its `@`. `@all` means all units.
- N3.3 All words apply, or none: `-ERR Error in ACL SETUSER modifier '<word>': <why>`. The error
  does not repeat a password: of a word with one it has the sign and `...`, of an unknown word
  `...`.
- N3.4 There are no channels, selectors and separate rights to read and to write: `&`, `(` and
  `%` are refused.
- N3.5 A change applies to open connections at once. If a user is deleted or turned off, its
  connections are closed. If it may do less than before, those of its connections that wait,
  monitor or subscribe are closed.
- N3.6 LIST shows each user as words that make the same user, without the SHA-1 of N8.1. GETUSER
  has flags, passwords, commands, keys, channels and selectors; of a tenant's user also tenant
  and quotas.
- N3.7 There are at most 10,000 users, 100 patterns and 8 passwords of a user. `default` cannot
  be deleted.
""",
}

ALL_DETAILS: Final = [  # a key may come twice
    *DETAILS.items(),
    *JOB_DETAILS.items(),
    *WORK_DETAILS.items(),
    *TASK_DETAILS.items(),
    *TUBE_DETAILS.items(),
]

ERROR_WORDS: Final = """
| First word | Meaning |
|---|---|
| `ERR` | anything not below |
| `BADID` | an id has the wrong form |
| `NOREPL` | too few nodes can take copies: nothing was done, or the job is withdrawn (R5.2) |
| `FEWCOPIES` | done, but on fewer nodes than asked for (Z3.3, T18.5, T62.5) |
| `MAXLEN` | the queue is longer than the producer wants |
| `PAUSED` | the queue takes no jobs |
| `NOJOB` | the job is not known here |
| `NOREACH` | a node that did not answer may know the job or its result (W15.5, W15.10) |
| `NOWORKER` | no such worker is alive here (O13.2) |
| `ACKED` | the job is already acknowledged, the batch committed |
| `NOTDELIVERED` | WORKING on a job nobody works on, START of one that waits for its time |
| `TOOLATE` | WORKING after half of the job's TTL, or after the run's time limit |
| `STALE` | the run is over (W3.1) |
| `ATWORK` | somebody works on the job (W2.4, W10.2) |
| `CANCELLED` | the job was cancelled (W8.2) |
| `DEAD` | the job is a dead letter (W2.2) |
| `DUPLICATE` | another job has the unique key (T44.5) |
| `LEAVING` | this node leaves the cluster, or stops (C11) |
| `CONFLICT` | another node has the same id (K1.3) |
| `FENCED` | another owner has opened the group since (Y1.6) |
| `NOGROUP`, `NOBATCH` | no such group of leases, no such batch of it (Y1.7, Y3.2) |
| `NOSTAGE` | nothing is staged there (Z2.3) |
| `TUBEHOME` | another node is the leader of the tube (T17.3) |
| `TUBESAPART` | tubes of one topic have different leaders (T62.10) |
| `NOQUORUM`, `READONLY` | too few nodes reachable, or no changes allowed (T19.3, T19.5) |
| `NOSCHEDULE` | the tube has no schedule of that name (T46.4) |
| `NOJOBGROUP` | the tube has no group of jobs with that id (T51.3) |
| `NOTUBE` | no such tube, or none of type tasks (T15.5, T40.5, T45.1) |
| `NOTASK`, `NOTTAKEN` | no such task, not taken by this session or take (T15.5) |
| `WRONGTUBE` | not for this type of tube (T15.5) |
| `NOPERM` | the user has no right to the command or the queue (N2.7) |
| `QUOTA` | the user's tenant may have no more (N11) |
| `WRONGPASS` | a log-in failed (N4.1) |
| `NOAUTH`, `OOM`, `DISKFULL`, `MISCONF`, `LOADING`, `NOPROTO`, `DENIED` | the command was refused |

- C9.1 The first word of an error is one of these; clients may rely on it.
"""

ARGUMENTS: Final = """
- C4.1 Command and option names are case-insensitive. If an option is repeated, the last one
  wins.
- C4.2 An integer is an optional sign and decimal digits, from -(2^63-1) to 2^63-1. An empty
  string, spaces or trailing bytes are not an integer: `-ERR value is not an integer or out of
  range`.
- C4.3 Commands with several ids check all ids first (G6.3). Without any id the reply is `:0`.
- C4.4 Queue names and bodies are any bytes, and may be empty. A name has up to 65,536 bytes
  (L2.9).
- C4.5 If an error repeats text that a client sent, line ends become spaces.
- C4.6 A word that a command does not take there, or an option without its value: `-ERR syntax
  error at '<word>': use <syntax>`, with the syntax of the command or subcommand as HELP has it.
  If words are missing: `-ERR syntax error: use <syntax>`.
- C4.7 An error about what a number, a time or a choice must be ends with what it was: `, not
  '<word>'`. The errors of Disque keep their texts (V1.2, S4.2).
- C4.8 No such subcommand of ACL, CLUSTER, LEASE or TUBE, or one with too few or too many
  arguments: `-ERR Wrong <command> subcommand or number of arguments: use <syntax>`, with the
  syntax of the subcommand, or the names of all.
- C6.1 After `HELLO 3` both nulls are written `_`. HELLO, CONFIG GET, COMMAND DOCS and TUBE
  INFO, STATISTICS and CFG are maps. Everything else is as in RESP2.
- C6.2 In RESP2 a null bulk is `$-1`, a null array `*-1`, an empty array `*0`. Each command
  defines which one it uses.
- W1.7 Errors of the commands of W begin with `-ERR syntax error: `; then `<command> has no
  option '<word>'`, `<option> needs a value`, `<option> is there twice`, or in such a form what
  is missing. An option out of its range names the range and the value (R1.11), also TTL,
  ATTEMPTS and PRI; BACKOFF what it takes, and its three values.
- W1.8 DONE, RELEASE, START and CANCEL without a further word reply as ACKJOB does then: 0, or
  an empty array. The client replies so without asking a node.
- C7.6 This page specifies PING, CLIENT, RESET, MONITOR, CONFIG (the other steps of C7), TIME,
  COMMAND [COUNT|INFO|DOCS|LIST], SLOWLOG, LATENCY, DEBUG, SHUTDOWN and BGREWRITEAOF.
- L2.4 More words than the bound: `-ERR too many words for '<name>': at most <n> in one
  command`. Nothing is done.
- L2.5 A reply of many elements ends with the element that passes 4 MiB. GETJOB and QPEEK then
  return fewer jobs, LEASE FETCH fewer rows, JSCAN and QSCAN a cursor, BUSYLOOP or not, SLOWLOG
  GET fewer entries. GETJOB returns at most 5,000 jobs.
- L2.9 A word of a command has at most 65,536 bytes, unless it is a body (of ADDJOB, STAGE,
  TUBE PUT, DEADLETTER BODY and LOADJOB, and what PING and ECHO return): `-ERR word <i> of
  '<name>' has <n> bytes: at most 65536, only a body may have more`. Nothing is done. The name
  of a client and of its library has at most 1,024 bytes. An error has at most 4,096 bytes.
"""

PROTOCOL_ERRORS: Final = """
- inline request over 64 KiB without a newline: `too big inline request`
- array, bulk header line over 64 KiB: `too big mbulk count string`, `too big bulk count string`
- array count not a number or over 1,048,576: `invalid multibulk length`
- bulk length not a number or negative: `invalid bulk length`
- bulk length over the limit (L1): `invalid bulk length: <length> is over max-body-bytes
  (<limit>); send less, or raise it with CONFIG SET (at most 512mb)`
- incoming command over `client-query-buffer-limit`: `the command is over
  client-query-buffer-limit (<limit>)`
- element of an array that does not start with `$`: `expected '$', got '<c>'`
- unbalanced inline quotes: `unbalanced quotes in request`
- before AUTH, an incoming command of over 10 arguments: `unauthenticated multibulk length`
- before AUTH, an incoming bulk over 16 KiB: `unauthenticated bulk length`
"""
