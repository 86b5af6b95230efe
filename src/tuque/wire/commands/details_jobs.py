"""The rules of commands that add, take and acknowledge jobs, and of the cluster's members.

A part of the table in wire/commands/details.py, in the same form.
"""

from typing import Final

JOB_DETAILS: Final[dict[bytes, str]] = {
    b"ADDJOB": """
- R1.1 Options are read from left to right; the first invalid one decides the error; of one that
  is there twice the last counts. An unknown word: `-ERR syntax error: ADDJOB has no option
  '<word>'`. A last word that needs a value: `-ERR syntax error: <option> needs a value`.

| Option | Range | Default |
|---|---|---|
| REPLICATE | 1..65535 | `default-replicate`, or fewer nodes that can take a copy (K4.3, R1.5) |
| TTL | 0..2^31-1 s, decimals (W1.6); 0: never expires (W1.5) | `default-ttl` (86400) |
| RETRY | 0..2^31-1 s | TTL/10, at most `default-retry-max` (300), at least 1 |
| DELAY | 0..2^31-1 s, decimals (W1.6) | 0 |
| MAXLEN | 1..2^63-1 | none |
| PRI | 0..9; of a tube 0..2^52 (T1.1) | 5; the tube's |

- R1.2 Timeout not an integer: `-ERR timeout is not an integer or out of range`; below 0: `-ERR
  timeout is negative`. 0 means no limit.
- R1.3 REPLICATE above 1, asked for or by default, with RETRY 0: `-ERR With RETRY set to 0 please
  explicitly set  REPLICATE to 1 (at-most-once delivery)` (two spaces after "set").
- R1.4 DELAY not less than TTL: `-ERR The specified DELAY is greater than TTL. Job refused since
  would never be delivered`. If the job never expires (W1.5): `-ERR DELAY must be below
  2147483647 seconds, the longest TTL`.
- R1.5 This node takes no copy itself while it leaves the cluster or memory is at level 1 or
  above (M2): external replication (R6). It then needs n other nodes, otherwise n - 1. If fewer
  are expected (K4.4): `-NOREPL Not enough reachable nodes for the requested replication level`.
  If only the missing own copy is the reason, this follows: `, since I'm unable to hold a copy of
  the message for the following reason: ` and `I'm leaving the cluster` or `I'm out of memory`.
  If memory is the reason and the node knows no other one: `-OOM used memory is above 75 % of
  'maxmemory': let jobs end, or raise maxmemory`
- R1.6 MAXLEN is given and the local queue has at least that many jobs: `-MAXLEN Queue is already
  longer than the specified MAXLEN count`.
- R1.7 The input of the local queue is paused: `-PAUSED Queue paused in input, try later`.
- R1.8 The job gets a new id (G6), expires at now + TTL, has this node as holder, and is
  registered with cause created (G5).
- R1.9 With REPLICATE 1 or ASYNC the job is active at once. With a DELAY its due time is now +
  DELAY; otherwise it is enqueued (G3). The reply is the id as a status.
- R1.10 (cluster) Otherwise the state is wait-repl. REPLJOB goes to n - 1 randomly chosen
  reachable nodes, late ones (K4.3) last, which become holders. The producer waits, and its
  timeout is armed (R5).
  - ASYNC sends the same messages and does not wait. Copies for which no node is reachable are
    made as soon as one is (K5.3).
  - ADDJOBs that one connection pipelines are replicated concurrently and answered in order.
- R1.11 An option of ADDJOB, STAGE, UPDATEJOB, NACK, FAIL or RELEASE out of its range: `-ERR
  <option> must be <range>, not '<value>'`, with the first 64 bytes of the value. The range: `a
  number from 1 to 65535` of REPLICATE, `a number from 1 up` of MAXLEN, else `a number of seconds
  from 0 to 2147483647`. The range of STAGE's TTL begins with 1.
- R1.12 (cluster) New jobs that are added one after the other in a turn share a message,
  REPLJOBS, if they have the same queue, options and new holders, no options about its work (W1),
  and bodies of at most 4 KiB, 64 KiB together. The receiver treats each of them like a REPLJOB
  (R2).
- R1.13 Jobs with a lower PRI go before all others of their queue on a node, whatever their age
  (G3.2). All copies of a job have its PRI, and it stays: after a NACK, a failed attempt, a move
  to another node, a REPLAY. PRI above 9, or UTUBE: `-ERR '<queue>' is no tube: a queue takes PRI
  0 to 9 with ADDJOB, and no UTUBE`.
- G6.1 An id is `D-`, the first 8 characters of the origin's node id, `-`, 24 characters out of
  `A-Z a-z 0-9 . ~`, `-`, and the TTL field of 4 lower-case hexadecimal digits. So it needs no
  escapes in URLs and file names. Ids of former versions have `+` and `/` for `.` and `~`.
- G6.2 The TTL field is TTL/60 rounded down, at most 65535, with the lowest bit set for ALO and
  cleared for AMO.
- G6.3 An argument is an id if it is 40 bytes long with `D` at 0 and `-` at 1, 10 and 35.
  Otherwise the command does nothing: `-BADID Invalid Job ID format.`, of several ids `-BADID
  Invalid Job ID format: '<word>'.` for the first wrong one.
- G6.4 Creation time is the clock in ms x 1,000,000, or the last creation time plus 1 if that is
  greater.
- G6.5 Of the 24 characters 14 are random and shared by up to 128 ids; 2 count these ids; 8 are a
  keyed code over the other 16, with a key from the cluster secret. It is checked before anything
  is stored for an unknown id. The keys of the last 8 secrets that were replaced stay known, also
  after a restart.
- G6.6 Every command that takes an id also accepts the URL form of former versions: `_` replaces
  `-` at positions 1, 10 and 35; from 11 to 34 `-` replaces `+` and `_` replaces `/`. Replies use
  the plain form.
- G6.7 For a tenant's job (N10.2) the last 5 of the 14 are a code over the tenant's name and the
  characters before, so each node can tell whose it is.
- G6.8 For a tube's task the first 3 characters of the keyed code are turned by a code over the
  tube's name, so each node that knows the tube can tell it (T17.8).
- R4.1 (cluster) Every 50 ms, as long as a job waits for copies, one more reachable node becomes
  a holder, while there are fewer than 2n holders.
- R4.2 REPLJOB goes to it, and HOLDERS with the new set to the nodes that confirmed.
- R4.3 REPLJOB is repeated to a holder that did not reply after 50, 100, 200 ms ..., at most
  every 2 s, while the link has room.
- R5.1 (cluster) At the timeout of an ADDJOB that waits for copies the producer gets `-NOREPL
  Timeout reached before replicating to the requested number of nodes`.
- R5.2 DELJOB goes to every holder, to an unlinked one when it is linked again. The record is
  unregistered with cause add-failed.
- R5.3 If so few nodes are expected (K4.4) that n copies are impossible, the ADDJOB does this:
  - With timeout 0 it ends: `-NOREPL Too few nodes are left for the copies: the job is
    withdrawn`.
  - With a timeout it waits for that: a node that comes back meanwhile takes its copy.
  - Without REPLICATE it waits for as many copies as are possible without late nodes (K4.3), one
    at least; K5.3 makes the missing ones.
- R6.1 (cluster) External replication: as R1.10, but REPLJOB goes to n other nodes, and this
  node is no holder.
- R6.2 When n nodes have confirmed (with ASYNC: one), the producer gets its id. One of them,
  chosen at random, takes over:
  - It gets HOLDERS with all nodes that were asked, and ENQUEUE with the remaining delay and,
    for an AMO job, custody, repeated until ENQUEUED. Then the record here is unregistered with
    cause moved.
  - If it is no longer linked, another one is chosen, but never for an AMO job.
  - The other nodes asked for a copy of an ALO job get HOLDERS too.
- R7.1 (cluster) A client disconnects while its ADDJOB waits: as R5.2. Producers that wait are
  not affected when the node starts to leave.
- W1.1 The job carries these options from its first copy on. Seconds are decimals here, rounded
  up to 1 ms.

| Option | Range | Default | Meaning |
|---|---|---|---|
| ATTEMPTS | 1..65535 | no limit | attempts in all; after the last failure the job is dead (W6.5) |
| BACKOFF | seconds, seconds, 0..1; first <= max | `1 300 0.5` | waits between attempts (W5.4) |
| DEAD | a queue | `<queue>.dead` | where the dead letter goes |
| KEEP | seconds [`BODY`] | 0 | how long the outcome is kept (W7.2), with its body or not (W18.4) |
| TIMELIMIT | seconds above 0 | none | the longest run (W3.3) |
| ONEXPIRY | `dead`, `drop` | `dead` | `drop`: no dead letter if no attempt failed (W6.2) |
| HEADERS | 0..32 pairs | none | names and values that travel with the job |

- W1.3 A header's name has 1 to 64 of `a-z 0-9 . _ -` and comes once; its value has at most 1024
  bytes; all pairs together have at most 4096 bytes. Names that begin with `tuque-` are Tuque's
  own; `tuque-task` is the name of the task.
- W1.4 ATTEMPTS with RETRY 0: `-ERR ATTEMPTS needs RETRY above 0`. DEAD names a tube: `-ERR
  '<name>' is a tube: dead letters go to a queue`. Any of these options but TTL on a tube that is
  not of type `tasks` (T48.1) is an error.
- W1.5 With TTL 0 the job never expires: its expiry is 2^31-1 seconds ahead.
- W1.6 DELAY and TTL take decimals; of a staged job they are rounded up to whole seconds. SHOW
  shows whole seconds, rounded up.
- Z4.1 key is 1 to 255 bytes, ms 1 to 31,536,000,000 (default 86,400,000). `-ERR DEDUPE key must
  be 1 to 255 bytes`, `-ERR DEDUPETTL must be a number of ms from 1 to 31536000000, not
  '<value>'`, `-ERR DEDUPETTL needs a DEDUPE key`.
- Z4.2 If a job was added with this queue and key no longer ago than the DEDUPETTL given then,
  the reply is its id, whatever became of that job, and no second job is added. R1.5 to R1.7 are
  not checked.
- Z4.3 Otherwise the job is added, and the key is kept with its id.
- Z4.4 (cluster) While the first job still waits for copies, the second ADDJOB waits too, within
  its own timeout (`-NOREPL`), and gets the same reply.
- Z4.5 (cluster) A job whose ADDJOB fails releases its key, and all that wait get the error. If
  the first producer disconnects, another one that waits takes its place.
- Z4.6 At most `dedupe-max-keys` (1,000,000) keys are kept. Beyond that, an ADDJOB or PUBLISH
  with a new key is refused with `-OOM` and what to do.
- Z4.7 With WITHNEW the reply is an array of the id and 1, or 0 if it is the id of a job that
  another ADDJOB added (Z4.2, Z4.4). Without a key it is 1.
- Z4.8 (cluster) A job that waits for copies is recorded with its key before its copies leave. If
  its ADDJOB fails, the record of both is withdrawn. So a crash of the program leaves both or
  none.
- Z4.9 (cluster) If the node was stopped meanwhile, it has the job after its start, queues it in
  its time, and keeps the key. When that ADDJOB is said again, its holders are asked for their
  copies, again each second. The reply is the id when n nodes have one or the job has ended, else
  `-NOREPL` at the end of the timeout; the job stays.
- Z4.10 Of a tube only the leader answers a known key (T17.3), when as many nodes have it as SYNC
  asks for (T18.5). Its next leaders know the key, too (T18.8).
""",
    b"GETJOB": """
- V1.1 Options precede FROM in any order; everything after FROM is a queue name. An unknown word:
  `-ERR syntax error: GETJOB has no option '<word>'`. No FROM, or no queue: `-ERR syntax error:
  GETJOB needs FROM, and a queue`. A last word that needs a value: as in R1.1.
- V1.2 COUNT not an integer of at least 1: `-ERR COUNT must be a number greater than zero`.
  TIMEOUT: errors as in R1.2; with 0 or without TIMEOUT the client waits without limit.
- V1.3 Jobs are taken as in V2. If there is at least one, the reply is an array of jobs. Each job
  is an array of queue, id and body, and with WITHCOUNTERS also `nacks`, its count,
  `additional-deliveries`, its count.
- V1.4 No job and NOHANG: a null array; no queue is created.
- V1.5 No job and this node leaves: `-LEAVING This node is leaving the cluster, please connect to
  a different one`.
- V1.6 Otherwise the client waits once in each of the named queues, in order of arrival, and the
  queues are created. (cluster) F1 runs for each of them.
- V1.7 A GETJOB that would wait for queues that do not exist is refused if there is no room for
  them (M5.4): `-OOM clients wait for new queues of <n> bytes, and may have <n>, not <n> more:
  wait for fewer names, or raise maxmemory` While memory is above 100 %, a PAUSE that would make a
  queue gets the error of C3.5, and so does a LEASE OPEN that would make a group.
- V2.1 The queues are visited in rounds from left to right, one job from each, until COUNT is
  reached or a round gave nothing. A queue may be named twice.
- V2.2 A queue whose output is paused gives nothing.
- V2.3 A queue gives its oldest job by order key. An expired job is not delivered but
  unregistered (G7.2). All takes of a turn together skip at most 5,000 expired jobs, and one more
  each. A queue or tube with another one gives nothing until the next turn: then waiting clients
  are served and LEASE NEXT continues; a GETJOB with NOHANG gets nothing.
- V3.1 Waiting clients are served after each command and timer that queued a job or cleared an
  output pause, queue by queue in the order in which these became ready.
- V3.2 The client that has waited longest is served first. It gets up to COUNT jobs out of all
  its queues (V2), in the reply form of V1.3.
- V3.3 A client that was served from one queue leaves the waiting lists of all.
- V5.1 At its timeout the client gets a null array and leaves all waiting lists. Each timeout has
  its own timer.
- V6.1 A client that disconnects leaves all waiting lists. No job is delivered to it after that.
- V6.2 A reply that was made and could not be sent counts as a delivery: an ALO job comes back
  after retry, an AMO job is lost.
- V7.1 Clients that wait in GETJOB get `-LEAVING This node is leaving the cluster, please connect
  to a different one`; on DEBUG FLUSHALL and CLUSTER RESET a null array.
- W11.1 Each job has, after its body, names and values: `attempt` (of the run that would begin),
  `of`, `retry-ms`, `time-limit-ms`, `added-ms`, `crashes` if there are any (W6.7), with
  WITHCOUNTERS the counters of V1.3, and `headers`, an array of names and values.
- W11.2 `attempt` is 0 for a task of a tube without runs (T48).
- W17.1 A run of each job begins when the job is delivered, also after a wait, as by START
  (W2.5): for a worker that has a place for each of the COUNT jobs. The worker is that of W2.1.
  WORKER without START: `-ERR syntax error: WORKER needs START`. More than 1000 jobs are not
  taken at once.
- W17.2 Each job has, first after its body, the name `run` and the run token; with WITHMETA,
  `attempt` is that of this run.
- W17.3 A job that START would refuse (a task of a tube, a dead letter, one that is at work
  elsewhere) is delivered anyway, and its `run` is null. One that was cancelled ends as by START
  (W8.3), and its `run` is null.
- W17.4 The run counts from the delivery on: if the reply is lost, it is silent, and fails with
  the cause `crashed` after RETRY (W6.1), though no worker saw the job. RELEASE gives the job
  back uncounted (W4.1).
""",
    b"ACKJOB": """
- A3.1 For each known job that is not acked: A1, then A2. It counts in the reply.
- A3.2 For an acked one: A2. It does not count.
- A3.3 An unknown id does not count. On a node that is alone nothing else happens.
- A3.4 (cluster) An unknown id whose keyed code is right: the node makes a record without a body
  in state acked, at most 1000 at a time for one client. It sends SETACK without holders to all
  nodes.
  - The record is in the journal before the reply, and survives a restart. It ends at the latest
    2 minutes after the time that the TTL field gives.
  - Of an AMO job, too: each node that has it learns that it is over, also after a restart, and
    its outcome (W14.6).
  - At memory level 2 the node only forwards the SETACK and makes no record; its reply 0 promises
    nothing.
  - A leaving node makes the record, and is not safe to stop before the record has ended (K7.3):
    a node that it informed may die before it has recorded the ack.
""",
    b"FASTACK": """
- A7.1 Known: the job is acked (A1) and at once unregistered here with cause gc-acked. (cluster)
  DELJOB goes to every other holder. If this node is spreading the ack of an unknown job (A3.4),
  that continues.
- A7.2 Unknown: does not count. (cluster) If its keyed code is right, DELJOB goes to all nodes,
  once.
- A7.3 The reply is the number of jobs known here.
""",
    b"DELJOB": """
- A9.1 Each known job is unregistered here with cause deleted, whatever its state. The reply is
  their number. No message is sent.
""",
    b"ENQUEUE": """
- Q5.1 Each job that is active here, and not both AMO and delivered, is enqueued (G3), even
  before its delay is over and even while the input of the queue is paused. Other jobs are
  skipped.
- Q5.2 The reply is the number of jobs enqueued. The event `requeued` is written with the cause
  command.
- W4.4 ENQUEUE skips a job at work.
""",
    b"NACK": """
- Q6.1 The same jobs as in Q5.1 are put back, except a job in its first delay: NACK does not
  shorten that. The counter that grows is always `nacks`. (cluster) A copy knows the end of the
  first delay only to within 500 ms. Within these it goes by the creation time.
- Q6.2 With DELAY the job stays active and its due time becomes now + DELAY. At that time it is
  enqueued, and no counter grows again. Until then it is in a back-off (W2.3).
  - (cluster) The other holders count the NACK and do not act on the job for DELAY + retry + J
    (Q9).
  - DELAY is a decimal number of seconds from 0 to 2^31-1, errors as in R1.1.
- Q6.3 A DELAY beyond the job's expiry is accepted; the job expires first.
- Q6.4 The reply is the number of jobs put back or postponed. The event `nacked` is written.
- W4.3 NACK of a job at work ends its run as RELEASE does, and `nacks` grows.
""",
    b"DEQUEUE": """
- Q7.1 Each job that is queued here becomes active (G4). An ALO job gets the due time now + retry
  + J. (cluster) QUEUED, with neither a counter nor the sign that the job is queued, makes the
  other holders do the same (Q4.4). An AMO job that was never delivered can be queued again with
  ENQUEUE.
- Q7.2 The reply is the number of jobs dequeued.
""",
    b"WORKING": """
- Q8.1 Not an id: `-BADID Invalid Job ID format.` Unknown: `-NOJOB Job not known in the context
  of this node.`
- Q8.2 Acked: `-ACKED Job is already acknowledged.` An end that is kept: as in W2.2.
- Q8.3 Not delivered: `-NOTDELIVERED Job was not delivered yet, there is no processing to
  extend.` A node alone goes by its own deliveries.
  - (cluster) Another holder may have delivered the job and died before it announced that (V4.6).
    So an ALO job counts as delivered here unless it waits for its copies or is in its first
    delay. An AMO job counts as delivered if its custody is elsewhere.
- Q8.4 More than half of the job's TTL is over: `-TOOLATE Half of job TTL already elapsed, you
  are no longer allowed to postpone the next delivery.`
- Q8.5 If the job is queued again, it is dequeued (G4). The due time of an ALO job becomes the
  later of its old value and now + retry + J. A dead letter that nobody took stays in its queue:
  `-DEAD` (W2.2).
- Q8.6 The reply is the retry time in seconds. (cluster) WORKING with the time left goes to all
  other holders.
- W3.1 The run is not the one at work: `-STALE`, with the reason. A run token that cannot be
  read: `-ERR invalid run token '<word>'`, of several ids `-ERR invalid run token '<word>' of
  <id>`. `-` is no run: then WORKING works as in Q8, and for a running job on its run. PROGRESS
  and FAIL with it get `-STALE`, or the error of W2.2.
- W3.2 The run is silent RETRY from now. WORKING never answers TOOLATE to a run within its time
  limit.
- W3.3 A run that lasts longer than TIMELIMIT fails with the cause `timeout` and the reason `ran
  longer than its time limit of <n> s`, whether a timer or a late FAIL ends it. From then on
  WORKING and PROGRESS of it get `-TOOLATE The run is over its TIMELIMIT of <n> s`, until another
  run begins; so does FAIL, once it has failed.
""",
    b"DEADLETTER": """
- Q10.1 Errors as in Q8.1 and Q8.2. The input of the target queue is paused: `-PAUSED Queue
  paused in input, try later`. REASON over 2048 bytes: `-ERR REASON must be at most 2048 bytes`.
- Q10.2 In one step a new job with the same body and default options is added to the target queue
  (R1.8, R1.9), and the old job is acked (A1). A crash leaves both steps done or neither.
  (cluster) This node adds the new job even when it takes no copies; copies are sent as with
  ASYNC.
- Q10.3 The event `dead` is written for the old job, with the reason. The reply is the new id as
  a status.
- Q10.4 With BODY the new job has these bytes as its body. A worker uses this to say why the job
  died.
""",
    b"PAUSE": """
- P1.1 Any other word: `-ERR syntax error at '<word>': use PAUSE queue
  in|out|all|none|state|bcast ...` (C4.6), and nothing is applied.
- P1.2 The result starts at none; each word adds to it, and `none` clears what was added so far.
  The result replaces the old state. With only `state` and `bcast` the state stays.
- P1.3 A queue that does not exist is created only if the result is not none.
- P1.4 The reply is the resulting state, as a status: `none`, `in`, `out` or `all`.
- P1.5 The state is in the journal and survives a restart. A paused queue is never removed as
  idle.
- P1.6 Clearing the output pause serves waiting clients (V3).
- P1.7 (cluster) With `bcast` PAUSE goes to every linked node, even if no other word changes the
  state.
- P1.8 (cluster) PAUSE is sent again whenever a link comes up, with the instant of the command,
  so that nodes that were away or join later get it too. The journal records that a pause was
  broadcast.
- P1.9 (cluster) The instant of a PAUSE comes from the clock of its node, but is always later
  than that of the last PAUSE of that queue known there. So a node whose clock is behind can end
  a pause.
  - The journal keeps the instant, also that of a command that ended a pause. It does not move
    when the clock jumps (J5.8), because it is compared with the instants of other nodes.
- P2.1 A paused input stops ADDJOB (R1.7), DEADLETTER into the queue (Q10.1), the due time of ALO
  jobs (Q2.2) and schedules (T45.6). It does not stop ENQUEUE, NACK and imports in flight. Puts
  that wait for room in a tube continue to wait (T7.2).
- P2.2 With a paused output GETJOB gets nothing from the queue, and waiting clients are not
  served. QPEEK, QLEN and SHOW are not affected.
- P2.3 (cluster) A paused input also stops REPLJOB (R2.4) and YOURJOBS (F3.3). With a paused
  output the node gives nothing for NEEDJOBS. A node does not ask for jobs of a queue whose input
  or output it has paused.
- P3.1 (cluster) On a PAUSE of another node the state is replaced as in P1. It is not forwarded,
  but sent to nodes that link later (P1.8). The state of a tube does not change (T17.7).
- P3.2 A PAUSE older than the last one of that queue here, local ones included, changes nothing.
  If two have the same instant, every node keeps that which pauses more.
- T17.7 A pause (P) of a tube belongs to its leader and moves with the leadership: each node
  keeps what the leader last sent, also in its journal. BCAST and a PAUSE message (P3) change no
  tube. A tube created where its name is paused is paused. A drop leaves the name paused.
""",
    b"CLUSTER MEET": """
- K3.1 `CLUSTER MEET host port` accepts names and addresses. The reply comes at once; `CLUSTER
  NODES` shows the handshake and why it failed. For a node that is already linked nothing is
  shown.
- K3.2 A node learns of the others from the heartbeats of the node that it met; each dials each.
  Of two links between two nodes, the one dialled by the lower id stays. The node with the higher
  id waits 1.5 s before it dials.
  - A dial that fails is repeated after 100, 200, 400 ms and so on, at most every 5 s. So a node
    that nobody met (K1.4) works for little more than that before it learns it. A link that ends
    within a second counts as a failed dial. A handshake ends after 10 s and is shown with its
    reason for a minute.
- K3.3 A MEET that cannot succeed is refused at once: for the address of this node, for another
  machine without a secret and without TLS (B1.8), or while the bus is off.
  - Otherwise `CLUSTER NODES` shows why it has failed so far: nothing listens there, it is not a
    bus of Tuque, the secret is wrong, a certificate is not accepted, only one of the two speaks
    TLS, no common version, it is the node itself, or why the other node refuses.
  - `cluster_meet_error` in CLUSTER INFO keeps the latest reason until that address is met. A
    warning is logged when a handshake has failed for good.
- K3.4 Two nodes that meet tell each other their tubes and the origin of their voters
  (BELONGINGS). One that has another tube or a plain queue of such a name, or voters of another
  origin, refuses and names them; nothing has changed then. `tuque cluster meet` ends with that
  reason at once. Of the origins the first 8 bytes count (T28.8); a solo list has none here, as it
  yields (T23.4). So each of two clusters with tubes of one name keeps its own: drop those of one
  side first, or reset its nodes.
- K3.5 No conflict of names drops tasks: a node that has a replica with tasks of one tube does
  not follow another one of that name (T17.5) before the first one is dropped.
- K1.4 A node that dials a member, and not because of CLUSTER MEET, names the ids that it knows
  at that address. A node with another id refuses, and joins nobody: a new node, or a copied
  directory without `nodes.conf`, becomes a member by CLUSTER MEET only.
  - If it is alone, it refuses work, as a forgotten node does (K6.4): `cluster_state:unmet`, and
    `-LEAVING this node is not in its cluster, which knows another one at this address: CLUSTER
    MEET it; or CLUSTER FORGET the other one there, and CLUSTER RESET this one`. MEET or CLUSTER
    RESET ends that.
""",
    b"CLUSTER FORGET": """
- K6.1 (cluster) The node is removed under a number, odd for out and even for in, which spreads
  with the heartbeats. A lower number never brings the node back.
- K6.2 The node leaves the holders and confirmed sets of every job. Collection (A2) continues
  without it, and jobs that then lack copies are repaired (K5.3). The nodes that are not linked
  here become holders as in K5.1. Acked jobs that this scan has not reached when the node joins
  again (K6.3) keep it, as not confirmed. AMO jobs in transit to it stay so until they expire.
- K6.3 A forgotten node joins with a higher number when it is met again, but only in a new
  incarnation that began without jobs: nobody could tell which of its jobs were acked. Until then
  its links are refused with a text about that. A reset node (CLUSTER RESET) has a new
  incarnation too, and is no member before one is met. One MEET on either side is enough: the
  node that was met, or meets it, names its other members to the reset node.
- K6.4 A forgotten node that runs learns it from gossip or refused links, stores it and refuses
  work: C3.11, `cluster_state:forgotten`, not ready (O2.2), waiting clients get `-LEAVING`; it
  leads no tube and has no vote. CLUSTER RESET, or a new MEET (K6.3), ends that.
- K6.5 FORGET of a node that is linked and not suspected is refused without FORCE: `-ERR node
  <id> runs and is linked: drain and stop it first, or CLUSTER FORGET <id> FORCE: it then does no
  work any more`.
""",
    b"CLUSTER LEAVING": """
- K7.1 A leaving node takes no copies, serves GETJOB from its own jobs, and does not ask for
  jobs.
- K7.2 It gives away its jobs. A queued ALO job goes to another node to serve (F2.2). For each
  ALO job:
  - Its other holders are asked (K5.2) and more copies are made (K5.3), until as many remaining
    nodes as REPLICATE asks for, or all if these are fewer, have replied that they have the job.
    A GOTJOB does not count, since RELEASE may have crossed it.
  - Then a first delay that still runs continues at one of them (R8), HOLDERS with the nodes that
    have the job and LEFT go to all holders, to one without a link when it is linked again, and
    the job is unregistered with cause moved.
  - AMO jobs are passed on as in F2.3, also one that a worker has begun: its run continues there
    (F3.8). Another delivered one is just unregistered. Acked jobs are collected as usual.
- K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted. It is
  not 0 while the journal is loading, or while the new leader of a tube that was given away has
  not reported that it runs.
- K7.4 With `no` the node stops giving away jobs, and counts copies anew (K5.3).
- K7.5 LEFT: its sender is no longer a holder of these jobs, which are repaired if copies are
  missing (K5.3). For an open ALO job the receiver sends HOLDERS to the other holders when their
  links come up again.
- K7.6 LEFT for an acked job does not end its collection: the sender may have the job again. It
  stays a holder until it replies to SETACK (A5.2), restarts or is forgotten (K6.2).
- K7.7 LEAVING is kept over restarts: a log line at each start, and `tuque cluster status` has a
  line with what to do and exit status 1.
- K7.8 A node that was forgotten and is met again leaves no more.
- K7.9 WORKING, PROGRESS, FAIL and UPDATEJOB of a job that a leaving node does not know:
  `-LEAVING`; clients ask another node. The holders learn of a run that began in the last 50 ms
  (W14.3) before the job goes.
- K7.10 Kept outcomes (W7.2) go, at the pace of copies (K5.3), as SETACK without holders to one
  of the remaining nodes. One that knows nothing of the job keeps the outcome for the rest of
  KEEP and replies GOTACK(known), as one that has it. One that does not keep it, above
  `results-max-bytes`, at memory level 2, or as it leaves, replies GOTACK(unknown). Then another
  node gets it. Outcomes of tasks stay with the replicas of their tube (T48.6). What is not
  confirmed counts in K7.3, unless all linked nodes have refused it three times: it is lost with
  the node, as all of it is if no node remains. INFO shows how many these are.
""",
    b"CLUSTER REPAIR": """
- K5.5 `CLUSTER REPAIR` shows how many jobs wait for repair or for a reply to ASK. When all nodes
  show 0, the next node may be restarted.
""",
    b"CLUSTER STOPPING": """
- K9.1 CLUSTER STOPPING yes: the node is about to stop, and to come back. Nothing of that is
  kept: a restart ends it. So does `no`.
  - Clients that wait get `-LEAVING`, as of a leaving node (V7.1, V1.5), `/readyz` shows that it
    stops, and it asks for no jobs; its jobs stay, and it takes more. Its own priority in HELLO
    is 100.
  - Its tubes move to other nodes as those of a read-only node (T19.5). It is no candidate for
    one, and keeps its vote. It leads one that nobody else may lead.
- K9.2 `cluster_stop_left` is the sum of the jobs to repair here (K5.5), the tubes led here that
  another node keeps and may lead, and the other nodes that are not there. At 0 the node may be
  stopped: `tuque node stop` waits for that, then sends SHUTDOWN, or with `--prepare` leaves that
  to who asked. If that takes too long it sends `no` and ends with status 1.
""",
}
