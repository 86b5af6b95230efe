"""The rules of single commands: TUBE, and what INFO and CLUSTER have of tubes (SPEC T).

In the form of details.py.
"""

from typing import Final

TUBE_DETAILS: Final[dict[bytes, str]] = {
    b"INFO": """
- T11.5 Section Tubes: tubes, tasks by status, sessions, takes and puts that wait, subscribers,
  notices that callbacks lost, and bytes used besides the tasks.
  - In a cluster also: the state of the node; tubes led here that are RUNNING, and that are
    stopped (T3.8, T14.5); replicated tasks of other leaders; the greatest lag of a follower;
    tubes led here with a replica that is not complete (T15.10); calls that wait for replicas.
  - `tubes_homeless` counts the tubes whose leader this node cannot reach, and those of this node
    that lost their replica (T22.2), wait after a standstill (T19.7), or have no lease (T25.2).
    `tubes_homeless_names`: the first 20, percent-encoded, with commas between.
  - `tubes_schedules`: led here; `tubes_schedules_fired`: the jobs that they made here;
    `tubes_schedules_late`: how often instants had been missed (T45.5).
  - `tubes_values`: values, sets of parts and parts (T70) led here; `tubes_values_bytes`: what they
    take.
  - `tubes_groups`: groups of jobs (T50) led here that are not their callback; `tubes_groups_made`
    here; `tubes_groups_done`: whose children ended well, or that became their callback;
    `tubes_groups_failed` or cancelled.
  - `tubes_keys`: keys (T40) that the tubes led here know; `tubes_unique_keys`: the UNIQUE ones;
    `tubes_keys_waited`: the limits and rates that tasks wait for; `tubes_keys_wait_ms`: the
    longest time without a break for one of these.
  - `tubes_duplicates`: jobs not added because a task had their unique key (T44.4, T44.5, T44.7,
    T45.6).
  - `tubes_voters`: voters in force here (T23.2). `tubes_elections_won` and
    `tubes_elections_lost`: elections in which this node asked for votes (T27.3, T27.4). Those won
    by what was before: `tubes_elections_silent` (the leader was silent), `_gave_up` (it stepped
    down), `_given` (it gave the tube to this node), `_again` (this node led it) and `_forced`
    (T27.12); the log has it too.
  - `tubes_votes`: 1 if this node votes (T23.4); `tubes_vote_state`: the word of CLUSTER VOTERS
    for this node (T28.7), nothing if it is no voter: one whose journal cannot be written cannot
    vote now.
  - Without votes this node became the leader of `tubes_homes_given` tubes that their leader gave
    to it (T20), and of `tubes_homes_by_command` (T21). `tubes_homes_moved`: those that it gave
    away. So elections won and these two are all changes of leaders (E1.8); `tuque cluster status`
    sums them up by reason.
""",
    b"TUBE": """
- T1.3 GETJOB of a tube is a take. No session holds the tasks that it takes: they come back after
  ttr; a task without ttr comes back after `default-retry-max`, which START, WORKING and SHOW have
  too. Among several queues, a tube takes its turn like a queue.
- T1.4 ACKJOB and FASTACK are ack, NACK is release, WORKING restarts the time to work on the task.
  They act on a task that is TAKEN and held by no session or by the caller's. Otherwise they do
  not count the task; WORKING: `-NOTTAKEN Task was not taken`.
  - Messages of other nodes about a job do nothing to a task, except T1.12. An ack or end (A4,
    A10) and a question (K5.2) are answered as for an unknown job; other messages are not
    answered.
- T1.5 ENQUEUE kicks a buried task, DELJOB deletes, DEADLETTER to a queue ends the task (W7.2);
  DEQUEUE does nothing.
- T1.6 LEASE OPEN, STAGE and DEADLETTER to a tube are refused: `-ERR '<name>' is a tube: ...`. So
  is LEASE NEXT of a group with a queue that became a tube (Y2.8).
- T1.7 SHOW, JSCAN, QLEN, QPEEK, QSTAT, QSCAN and PAUSE treat tubes as queues: READY is queued;
  TAKEN, DELAYED and BURIED are active. Tasks in busy sub-queues count in QLEN. SHOW also has task
  (its number), status, pri and utube. A put to a tube whose input is paused is refused. A take
  from one whose output is paused finds nothing.
- T1.8 Jobs that were in flight to this node when the tube was created are not tasks: GETJOB gets
  them after the tasks, TAKE never; a drop leaves them in a plain queue. So are the jobs of a
  queue that became a tube of type `tasks` (T2.3). GETJOB gets them before its tasks, and they
  have no keys: a limit does not count them.
- T1.9 (cluster) Such jobs may be queued on a node that follows the tube: they were added where
  the creator could not reach (T17.5), or their copies became due there. No client gets them there
  (T17.3). With each round of heartbeats (K4.1) up to 100 of them go to the leader as in F2.2,
  unless the leader is not linked, leaves or has no room for jobs, or the input of the tube is
  paused.
- T1.11 A schedule, a group, the record of a child and the keeper of a UNIQUE key (T45.8, T50.9,
  T44.8) are no jobs: START, FAIL, CANCEL, UPDATEJOB and DEADLETTER of their ids are refused, with
  what to use: `-ERR <id> is a group: use GROUP CANCEL`.
- T1.12 (cluster) A task that was made before ids named tubes (G6.8) is an unknown id at a node
  without it: ACKJOB and DONE reply 0 there (A3.4, W14.6). The leader that gets this SETACK
  without holders, or FASTACK (A7.2), which is sent once, acts as if the client, without a
  session, had asked it. It does not answer while it may not (T17.3, T19.2, T18.5), so that the
  node asks again.

**Calls**

- T5.2 ack, release and touch are refused with `Task was not taken` unless the session holds the
  task. With a token, which bury takes too, they apply only to that take: a late call for an older
  take of the same session is refused.
- T5.3 bury, delete, peek, kick, truncate and release_all do not check who holds the task;
  `Task <number> not found`. bury of a buried task changes nothing.
- T5.4 touch adds its increment to the time of this take, and permanently to ttl and ttr; 0 or
  less does nothing. fifo and utube: `<type> queue does not support touch`.
- T5.5 release with delay adds the delay to ttl; fifo and utube ignore it.
- T5.6 kick(n) takes up to n buried tasks in the order of (pri, number).

**Errors**

- T13.1 Codes and texts of errors are those of the module, without a prefix. IPROTO sends both;
  RESP sends a first word (T15.5) and the text.
- T13.2 A call that is refused has changed nothing.
- T13.3 RESP has tube where the module has space:
  `a tube or a queue '<name>' already exists: ...`, `the name of a tube has 1 to 512 bytes`,
  `ENGINE must be memtx or vinyl`.

**Words and replies**

- T15.1 Wrong words: C4.8. Wrong options: C4.6. Arguments are parsed from left to right before the
  tube is looked up. PUT ignores options that the type of the tube does not have.
- T15.2 Seconds are digits with at most one point. Parts of a ms are rounded up; more than 100
  years are 100 years; else `-ERR <name> must be a number of seconds, 0 or more`. PRI is 0 to
  4503599627370496; a lower number goes first. UTUBE has at most 512 bytes; without it a task is
  in the sub-queue with the empty name. COUNT is 1 to 10000.
- T15.3 A task is an array of its id, state (`READY`, `TAKEN`, `DELAYED`, `BURIED`, `DONE`), body,
  the token of the current take (0: none), job id, and form of the body: `bytes`, `text`, or
  `msgpack`, one MessagePack value as Tarantool clients send it; PUT checks that it is one
  (`-ERR the body is not one MessagePack value`).
- T15.5 No such tube: `-NOTUBE Tube '<name>' not found`. Texts of T13 get the first word
  `NOTTAKEN`, `NOTASK`, `NOTUBE`, `WRONGTUBE` (a type that cannot do this, or another type) or
  `PAUSED` where one applies, else `ERR`.
  (cluster) A node that has just started may not know all tubes. Until another node, and each that
  is linked, has sent its tubes, it answers `-LOADING this node has started, and has not heard all
  tubes of other nodes yet: nothing was done, try again soon`, over IPROTO error 116. This ends
  `cluster-node-timeout` after the start, or after the journal is loaded; but not while the node has
  met no other one and knows no tube.
- T15.6 CREATE and PUT are refused for memory as M2.3 and C3.5 say. While the node leaves, the
  reply is `-LEAVING This node is leaving the cluster, please connect to a different one`; a TAKE
  that waits or would wait gets it too. A PUT that waits for room continues to wait.
- T15.9 A session of a RESP client belongs to the user that the client logged in as, `default` if
  it has not (T8.3).
- T15.11 A CREATE that asks other nodes, a HOME that moves the leadership and a call that waits
  for replicas (T18.5) block their connection as a TAKE does. PUT, ACK, RELEASE, TOUCH, BURY, KICK
  and DELETE run concurrently while they wait for replicas, and are answered in order. If the
  client disconnects, what was begun continues.

**At other nodes (cluster)**

- T17.4 IPROTO replies with error 7 (ER_READONLY) in place of -TUBEHOME:
  `Can't modify data because this instance is in read-only mode: ` and
  `the home of tube '<name>' is <host>:<iproto-port>`. The port is 0 if the leader has none. If
  the leader cannot run now (T19.2, T19.3), the text has the reason in place of the address. A
  call that too few replicas confirm (T18.5) also gets error 7.
- T17.9 A task of a tube that this node does not know, while not all nodes are reachable (T17.8):
  `-NOQUORUM this node does not know the tube of task <id>, and not all nodes are in reach: try
  again soon`. TUBE LIST, INFO, STATE, HOME, STATISTICS, GRANT, REVOKE and GRANTS work at every
  node (T17.3).
""",
    b"TUBE CREATE": """
- T2.1 Tasks are numbered from 0 in the order of their puts. No number is used twice in the life
  of a tube, not even after deletes, truncate or a restart. A temporary tube skips up to 1000
  numbers at a restart.
- T2.2 With `if_not_exists` an existing tube of the same type is the reply, whatever its options.
  An existing tube of another type is an error.
- T2.3 If a plain queue uses the name (a job of it is known) or a tube has it:
  `Space '<name>' already exists` (RESP: T13.3). Clients that wait in GETJOB for the name then
  wait for the tube. Jobs of a plain queue do not hinder a tube of type `tasks`, at whatever node
  they are: they stay plain jobs (T1.8), so that a task that runs already can be given a limit.
- T2.9 IMPLICIT is for programs that make a tube because a job needs one. Such a tube goes, as
  DROP removes it, when its leader has found it idle for `tube-idle-time` (an hour; 0: never). It
  is idle without a change of a task, and while it has no task, schedule, group, outcome or DEDUPE
  key that is kept, key of a task (T40), plain job, topic, waiting client, subscriber, pause,
  callback or grant. The leader looks once a minute at least; a start, a new leader and a CREATE
  begin anew. A CREATE without IMPLICIT makes the tube lasting: so do all nodes that learn of it.
- T2.5 TEMPORARY: only the definition and the numbers used are in the journal. TTR: by default the
  tube's ttl. PRI: 0. ENGINE and STORAGEMODE have no effect, but are refused where the original
  refuses them: vinyl for limfifottl, vinyl with ready_buffer. Options that a type does not know,
  as a capacity of fifo, have no effect, as in the original. A capacity of the type `tasks` is
  refused: `tube '<name>': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses
  what is too much`.
- T2.6 A name is 1 to 512 bytes.
- T2.7 A node that knows `tubes-max` tubes (10,000; those of other nodes count) creates no more:
  `<n> tubes exist, and tubes-max is <m>: drop unused tubes`. Tubes that come from other nodes or
  from the journal are not refused.
- T16.4 ONCHANGE names a Python function, an entry point of the group `tuque.tube_callbacks` of a
  package installed with the server; another name:
  `-ERR this server has no callback named '<name>'`. It is called with tube, event, task id, state
  and body, in its own thread, in the order of the changes. Exceptions are logged. While 10,000
  notices wait, further ones are lost, which is logged.
- T18.9 n of SYNC is 1 to the number of nodes with copies (T18.1); `majority` is that of the
  voters (T23.1), also when the list changes, without a list that of all nodes. Under a solo list
  (T23.1) all nodes count for n, its voter among them. The default is
  `majority` where a list is in force, unless the tube is temporary; else 1.
  If fewer nodes vote later than SYNC says, no change of the tube and no read of its values is
  possible: `-NOREPL tube '<name>' has SYNC <n>, and the voters are <m>`, and what to do.
  A temporary tube with another one: `-ERR a temporary tube has no copies: SYNC must be 1`.
- T23.6 FAILOVER is obsolete. `yes` has no effect, `no` is refused: `-ERR FAILOVER no is no longer
  supported`, and why. With a SYNC below a majority a failover may lose changes that were
  answered. `tuque tubes` names the tubes that do not fail over (T23.5).
- T23.8 Without a list in force, or with a solo one (T23.1), on a node that knows others, a tube
  needs TEMPORARY, ALONE or IMPLICIT. Else CREATE is refused: `-ERR tube '<name>' would have no
  failover: <n> of <m> nodes vote, 3 are needed`, and what to set.
  - Such a tube waits for its leader, or for FORCE (T21). In a cluster of three or more nodes the
    log warns. Where a list is in force ALONE means nothing.
  - IMPLICIT is what `enqueue` and the schedules of the worker set.
  - If three nodes or more may vote and all nodes are linked, the list comes in about a second.
    Until then CREATE is refused, with ALONE too: `-NOQUORUM Tube '<name>': the nodes agree on who
    votes: try again soon`. The client of Tuque tries again.
- T17.5 CREATE first sends TUBE-CLAIM to every reachable node, and continues once each has
  replied or become unreachable.
  - A node that claims the name itself and has the lower node id replies once its own claim has
    ended; a claim to which it had replied before waits as well. So no `-TUBEHOME` leads to a
    node without the tube.
  - A node refuses if it knows a tube of that name, or, unless the type is `tasks`, jobs of a
    plain queue. CREATE then runs again as if the tube were known.
  - Nodes without a link can create tubes of one name. Each continues as leader of its tube,
    replicas with tasks stay (K3.5), and INFO shows the other node as `conflict` until one is
    dropped.
  - A tube led by votes is confirmed by a lease of its leader, a change, or an epoch above 1;
    TUBES has that. One that was never confirmed has no task.
  - Other nodes follow, also later, a confirmed tube first; then one not led by votes; then that
    of the lower creator id; of one creator the later. Of the other one they remember epoch and
    leader until they stop; TUBES marks it. But of two that votes lead and never confirmed a node
    keeps the one for which it voted (T27.8), until its creator drops it.
  - The creator of a tube that was never confirmed drops it when it learns of one that precedes
    it; a waiting CREATE ends as if the tube were known. If it has started since, only a
    confirmed one precedes.
- T27.8 (cluster) Where a list is in force CREATE asks for votes for the name (T24.3).
  - Where no majority of the voters is linked CREATE does nothing: `-NOQUORUM Tube '<name>' is not
    made: <n> of <m> voters are here, try again soon`. A node that made its solo list when it knew
    others creates nothing before all of these have sent their tubes, or are forgotten: it may have
    lost its disk. Until then it replies as if the list were to come (T23.8).
  - A node votes for the maker of a tube that it did not know once that is on its disk, under
    `everysec` too. Until the maker drops the tube it votes for no other one of the name.
  - CREATE is answered when a majority has all of the tube: of two makers one at most has an
    answer, the other tube ends when they meet (T17.5). Else, after `cluster-node-timeout`, the
    maker drops the tube, unless a majority confirmed it: `-FEWCOPIES`.
""",
    b"TUBE DROP": """
- T2.4 A tube stays until it is dropped, even if idle; T2.9 has the exception. drop is refused
  while a client waits for a take (`There are consumers connected the tube`) or holds a task
  (`There are taken tasks in the tube`). Puts that wait end without a task.
- T2.8 While a drop of many tasks is running (L2.2), puts and takes are answered as if the tube
  were paused. PAUSE then applies to what comes after the drop: the drop leaves the name paused as
  the last PAUSE said (T17.7). If the node restarts meanwhile, the tube has its remaining tasks,
  and only PAUSE pauses it.
- T17.6 drop is sent to the other nodes, at once or when they are linked again: they delete
  their replicas, or report another tube that they follow. A leader that has lost its memory
  drops nothing.
  - A drop means one tube, by its creator and instant: a later tube of that name does not end it.
    All nodes keep it, in the journal too, also those that never had the tube.
  - It says nothing of a tube that was made apart (T17.5), whichever was first: the clocks of two
    nodes do not tell.
  - It does not hold for a tube that has a leader of a higher epoch: who kept the drop takes the
    tube again.
  - Of more than 10,000 drops, or 1,000 of one name, the oldest is forgotten: a node that was away
    since then brings its tube back.
  - A tube led by votes that was never confirmed, and of which no node has a whole replica, can be
    dropped at its leader while all nodes are linked. Other commands are refused there: `-NOQUORUM`.
""",
    b"TUBE PUT": """
- T7.1 A limfifottl tube with a capacity above 0 never has more tasks than that, in whatever
  status. A put beyond it gets nothing (null, IPROTO: nil), an ADDJOB
  `-MAXLEN tube '<name>' is full: its capacity is <n> tasks`.
- T7.2 With a timeout the put waits, and blocks its connection. Puts that wait are done in order
  of arrival as soon as there is room.
- T7.3 At the end of its timeout it gets nothing. If the client disconnects, nothing is put.
""",
    b"TUBE TAKE": """
- T9.1 Clients that wait for a tube are served in order of arrival, whatever their timeouts. Each
  gets its task in the same turn in which the task becomes available; a later take does not
  overtake them.
- T9.2 A connection may have many waiting takes (I7.2).
- T15.8 TAKE without TIMEOUT waits without limit. Like a waiting GETJOB it blocks its connection
  (C3.9). After CLIENT REPLY OFF a TAKE takes nothing.
""",
    b"TUBE IDENTIFY": """
- T8.1 A connection has a session from its first take, ack, release, touch or identify on. A
  session has a random uuid of version 4, 16 bytes.
- T8.2 When the last connection of a session is closed, its tasks are released in the order of
  (tube, number), and the session ends. If `ttr` of cfg is above 0, this happens only that much
  later, unless a client identifies itself with the uuid before. Tasks that are gone by then are
  skipped.
- T8.3 identify with a uuid joins that session: `Invalid UUID format.` unless it has 16 bytes,
  `The UUID <text> is unknown.` if the session has ended or belongs to another user.
- T8.4 Every connection of a session may finish its tasks. The holder of a task, session and take,
  is stored in one place.
- T15.7 IDENTIFY takes 16 bytes or 36 characters, and replies with the uuid in force, as text. Its
  groups are read as Tarantool reads them, the first three little-endian.
""",
    b"TUBE CFG": """
- T10.1 cfg sets only the given settings: ttr (0 or more, else `Invalid value of ttr: <v>`) and
  in_replicaset. While a temporary tube exists, in_replicaset stays off; while in_replicaset is
  on, no temporary tube can be created. The reply has both settings.
- T14.3 Sessions survive a restart only with in_replicaset; clients can join them for ttr of
  cfg, counted from the end of the load.
- T22.3 Grants, cfg and sessions belong to each node; with in_replicaset its sessions are
  replicated with its tasks.
""",
    b"TUBE STATE": """
- T10.2 state is one of the states of T19, of the tube here or of the node (T19.1).
""",
    b"TUBE GRANT": """
- T10.3 GRANT gives a user named functions of one tube: call gives put, take, touch, ack, release,
  peek, bury, kick and delete, and identify and statistics; truncate gives truncate. ROLE
  (grant_role) does so for all users with a role; every user has the role `public`. Grants add up,
  survive a restart, and are in every snapshot. A tube whose name has a dot or a colon cannot be
  granted: `Tube '<name>' cannot be called over IPROTO: its name has a dot or a colon`.
- T10.4 REVOKE ends the named rights, or without CALL and TRUNCATE all, of a user or role on a
  tube, under one PREFIX or all. It accepts users and roles that no longer exist, and replies how
  many grants changed. Waiting takes of a user who then has no call right on the tube end with
  error 42. Dropping a tube drops its grants.
- T10.5 GRANTS shows every grant: tube, `user` or `role`, its name, the rights (`call`,
  `truncate`), prefix. There are at most 5,000; one more is refused with
  `there are 5000 grants, the most a node keeps: revoke some, or use roles`.
""",
    b"TUBE STATISTICS": """
- T11.1 `tasks`: by current status, and done: those that were acked, deleted or ended by ttl since
  the start. Without a name there is such a pair with `calls` for each tube.
- T11.2 `calls` since the start: put, take, touch, ack, release, bury, kick, delete, ttl, ttr,
  delay. Each counts once for what it did (a touch also when fifo or utube refuse it). A ttl also
  counts as a delete, the end of a session and a start count as release, kick counts tasks.
  utubettl also reports delay as `delayed`.
- T11.3 puts + loaded = tasks there + done + truncated + moved, at every step (`DEBUG CHECK`).
  moved are the tasks that were removed by a command about all jobs.
- T11.4 Tasks, sub-queues, tubes, sessions, grants, notices and puts that wait count as used
  memory (M1).
""",
    b"TUBE INFO": """
- T15.4 name, type, temporary (0 or 1), ttl, ttr (seconds, or `forever`), pri, capacity,
  storage-mode, engine, on-task-change, ready, taken, delayed, buried, next-id, waiting-takes,
  waiting-puts, subscribers, changes (how many there were), `home` (node id of the leader), epoch,
  state (T19), sync (how many nodes must have a change now), copies (replicated tasks of another
  leader: where this node does not lead the tube, it counts them here, and none from ready to
  buried), conflict (a node id, or nothing: T17.5), stopped (why the tube delivers no task here,
  or nothing: T3.8, T14.5), failover (1 or 0: T23.5), and implicit (1 or 0: T2.9).
""",
    b"TUBE HOME": """
- T15.10 HOME replies with tube, `home`, address (host:port of the leader), epoch, state, sync,
  changes (number of the last one, T18.2), conflict, and copies: id, address, lag (T18.4) and
  completeness (1 or 0) of replicas, on the leader for each other node that has or gets one,
  elsewhere for this node. A temporary tube has none.
  - `node` is a node id, the first characters of it, or host:port. An unknown node:
    `-ERR no node '<node>': name one by its id, the first characters of it, or host:port`. Several
    nodes that begin so: `-ERR several nodes match <node>`.
- T20.1 With a node it runs on the leader of a RUNNING tube (elsewhere `-TUBEHOME`) and names a
  reachable node that may lead it; else an error has the reason, and nothing happens. If the
  leader is named: `+OK`.
  - A node may not lead the tube if it is read-only or leaves, or follows another tube of that
    name (T17.5): it would never accept this one. Nor may a node whose journal cannot be written
    now (K4.5), with an error at once, also during a switchover, which then ends. A tube led by
    votes moves to voters only: `-ERR tube '<name>': node <id> does not vote, so it cannot lead:
    CLUSTER VOTERS ADD <id> first`.
  - Nor may a node that could deliver no task of the tube, since its type is missing there (T14.5)
    or its driver failed (T3.8). Before anything ends the node itself is asked with TUBE-CLAIM,
    and the error has what to do there.
- T21.1 FORCE runs on the node that becomes the leader. It is for a leader that cannot be reached,
  or for this node if it is the leader and waits since its start (T19.4) or a standstill (T19.7).
  - It is refused while this node can reach the leader, while it reaches no more than half of all
    nodes, and while a reachable node has a later replica; the error names that node. A leaving
    node is asked too. The leader of another tube of that name (T17.5) does not count.
  - Of two nodes one is enough: the command itself asserts that the other one is dead. If the
    other one is only cut off, it continues, and both run until they learn of each other.
  - A node without a replica takes the tube without tasks if no node that it reaches has one. A
    node that could deliver no task (T20.1) takes the tube as well: it keeps the tasks, accepts
    puts, and the reply has that.
- T21.3 The reply, once the epoch is on disk, is what may be lost, as names and values: `home`,
  `epoch`, `copy` (complete or incomplete), `changes-missing` (those known to be missing on this
  node), `last-heard-ms` (how long ago: later changes are unknown), `next-id` and `stopped` (as in
  INFO). Task numbers continue 1,000,000 above the highest known, so that none is given twice.
- T21.5 FORCE is also for a tube whose list is gone: its only voter has lost its disk, or no voter
  that is left is of the list that chose its leader. It runs on a node that reaches no leader of the
  tube, and has the newest copy of all nodes that it reaches; else the error names the node that
  has it. The node leads the tube by a solo list of its own, under an epoch above all of before. The
  tube then moves to the list in force (T23.7). The reply is that of T21.3.
- T27.12 FORCE of a tube led by votes is the last resort, if no voter that is left has all of the
  tube. It runs on a voter that reaches a majority of the voters, once these have chosen no leader
  for four times `cluster-node-timeout`. What this node has of the tube then counts as whole and
  newer than all other replicas, on its disk too; it is a candidate, and a majority votes as
  always. The log warns. Other nodes replace what they have (T18.3).
  - Else it is refused: `-ERR votes choose the leader of tube '<name>': FORCE is for a tube of
    which no voter has all, once a majority of the voters has been here for <n> s and has chosen
    none`.
  - The reply is that of T21.3 when the node leads the tube, or an error after twice
    `cluster-node-timeout`; the node continues to ask for votes.
""",
    b"TUBE DRIVERS": """
- T3.5 A custom driver is a Python class (`tuque.tubes.driver.Driver`) under an entry point of the
  group `tuque.tube_drivers`. The name of the entry point is the name of the type.
- T3.6 REGISTERDRIVER (register_driver) loads a type from a package installed after the start.
  Only entry point names are looked up; no code comes over a connection. Tubes that waited for the
  type (T14.5) then start.
  - An existing type: `overriding registered driver "<type>"`. An unknown name:
    `no package of this server has a driver named '<type>'`. A driver that cannot be loaded:
    `the driver '<type>' cannot be loaded: <why>`, and nothing has changed.
- T3.7 DRIVERS: of each type its name, status, source (module, class and package), how many tubes
  have it, those that its driver has stopped here (T3.8), each with its error, and why it failed.
  The status is `built-in`, `loaded`, `installed` (can be registered), `failed` (it could not be
  loaded at the start or when it was last registered) or `missing` (tubes wait for the type).
- T3.8 If a custom type raises, or chooses something that is not a READY task of the tube, it
  stops that tube and nothing else. The tube keeps its tasks and accepts puts. It delivers no task
  until it runs again (T19: after a start, or after its leadership moved or was suspended). The
  error is logged; INFO and DRIVERS show it.
  - This holds for whatever Python can raise, SystemExit included, but not for KeyboardInterrupt.
    It also holds for what is raised when a type or a callback is loaded or registered: it neither
    ends a node nor prevents its start.
- T14.5 A tube whose type is not installed here keeps its tasks and accepts puts. It delivers no
  task until its type is registered (T3.6) or the node starts with it. That is logged.
""",
    b"TUBE TASKS": """
- T15.12 Up to n (100) tasks in that state, in the order of (pri, id).
""",
    b"TUBE CHANGES": """
- T12.1 Every change of a task is a numbered notice: event, task, status, instant. The last 1000
  of a tube can be read by number.
- T12.2 The events are put, take, touch, release, bury, kick, ttr, delay and update (T1.10); ack,
  delete, truncate and ttl have the status `-`.
- T12.3 Subscribers and the callback of the tube are notified after the change: they cannot stop
  or break it.
- T16.1 CHANGES returns the notices after number AFTER, oldest first, up to COUNT (100) of the
  1000 that are kept. With -1, or a number that was not used since the node started, it returns
  all. A notice is number, event, task id, state, and ms since 1970. A gap in the numbers means
  that notices are lost.
- T16.2 SUBSCRIBE needs RESP3. Each change in one of the tubes is then pushed: `tube-change`,
  tube, number, event, task id, state, ms. It comes after earlier replies, and not before the
  change is in the journal (C8.3). RESET, HELLO 2, a new `requirepass` and the end of the
  connection end all subscriptions; dropping a tube ends those to it.
- T16.3 A connection subscribes to at most 1000 tubes. A subscriber that does not read is closed
  (C2.6).
- T16.5 When the leadership of a tube moves, its subscribers get the push `tube-home`, tube and
  host:port of the new leader, and their subscription to it ends. Each node numbers its own
  notices.
""",
    b"CLUSTER VOTERS": """
- T28.1 REMOVE makes a list without the node, ADD one with it: the next list has the next number,
  and one voter more or less. The reply is `+OK` when the list is in force at the node asked. It
  is refused on a node that does not vote, while this node makes another change, for a node that
  does not use the list (ADD; also if nothing is known yet) or is no voter (REMOVE), and without a
  majority of the voters in twice `cluster-node-timeout`; the error names the tube that is not
  settled (T28.3).
  - ADD is refused for a node whose journal is off, as its votes would not last: `-ERR node <id>
    has no journal, so its votes would not last: run CONFIG SET appendonly yes on it first`.
  - ADD is refused for a node that has another tube of a name (T17.5): it has voted for that one.
    Nor does such a node join by itself (T28.4).
  - On a node whose journal cannot be written (J6), ADD, REMOVE and FORCE are refused at once, and
    a change that waits when its time is over: the error names that journal, as no other node is
    the cause.
  - REMOVE is refused where the list after it would have no majority of voters that this node
    reaches and that have their right. ADD and REMOVE are refused at once without such a majority
    of the present list.
- T28.6 CLUSTER FORGET of a voter is refused, unless it is that of a solo list (T23.1) which chooses
  the leader of no tube: `-ERR node <id> votes: CLUSTER VOTERS REMOVE <id> first`.
- T28.7 VOTERS replies with names and values: list (its number; 0 without one), origin, right (of
  this node), voters (of each: id, address, right, and votes, asking (T29.3), conflict, forgotten
  or unmet (C3.11, of the node that replies), lost-right, journal-off, journal-fails (J6, K4.5:
  at all nodes and as long as that holds) or unreachable), unsettled (up to 20 tubes that keep
  this node from agreeing), lease-timeouts (the shortest and the longest `tube-lease-timeout` of
  the voters, as far as known: if they differ, the log warns once; 0 and 0 without a list) and
  others (nodes that use a list of another origin, each with that origin). CLUSTER FORGET, once
  the network is cut, parts two clusters that met; CLUSTER RESET of one cluster's nodes joins
  them.
- T28.9 One voter becomes three in one step. While one node votes it adds no second voter: the loss
  of either of two would stop both.
  Only if it leaves it adds one, which then gets the vote and the tubes. Meanwhile all nodes have
  copies (T18.1). When two nodes that could join (T28.4) have all of every tube, the list of three
  is the next one (T28.2). From then on the voter answers what two of the three have, too; it
  records the list when it leads every tube, and two of the three have all that was answered
  before. If one of the two is lost before the list is used, it counts under the old list again:
  nobody has learned of the new one. So it does after `tube-lease-timeout`, and tries again after
  `cluster-node-timeout`. ADD still makes a list of two.
- T29.5 By `failover-disks trust` an old disk goes unnoticed if no reachable node knows of the
  newer disk epoch: then changes that were answered may be lost, as if a majority had lost its
  disks. By `ask` a voter of three that starts while another one is down does not vote until that
  one is back, or this one is removed and added again. By both, a disk that lacks no more than
  what was changed after the last disk epoch is not noticed.
- T28.8 FORCE node ... makes a list of these nodes at once: it is the operator's word that all
  other voters are dead, and the only way past a lost majority. What only the dead nodes had is
  lost. It runs on one of them, which must reach the others. FORGET the dead nodes next.
  - It is refused while a majority of the voters is here: reached by the node, with their right;
    those without their right do not count as here. It names all voters that are here.
  - It asks all nodes that it reaches what they have of each tube, and is refused if one that is
    not named has newer changes than each that is: `-ERR node <id> has newer changes of tube
    '<name>' than the nodes that you name: name it too, or stop it`. Who has not answered within
    `cluster-node-timeout` is not here.
  - It is refused if a majority of the named nodes lacks the newest changes of a tube and one of
    them has older ones, with which it would be elected: `-ERR node <id> has older changes of tube
    '<name>' than others that you name, and could lead it`, and what to do. Of two nodes both
    decide. The log names the tubes of which no node here has all: for these there is T27.12.
  - Each named node is linked, uses the list, and has sent the id of its disk (T28.5).
  - The list has a number 2^32 higher and a new origin with the same first 8 bytes. Each node that
    learns of it uses it if its own list has these 8 bytes: no list of another cluster (T23.4)
    ends this one's. A voter that is not in it loses its right. Of two such lists the one with the
    greater origin holds.
  - Epochs under it begin above all epochs of the lists before: a node that was called dead may
    have led under each of them. The first one is 2^48 for each FORCE so far, and 2^20 for the
    next 28 bits of the origin, which are random.
""",
}
