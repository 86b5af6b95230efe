"""The rules of single commands: keys and work of tasks, schedules, values, groups, topics (SPEC T).

In the form of details.py.
"""

from typing import Final

TASK_DETAILS: Final[dict[bytes, str]] = {
    b"ADDJOB": """
- T1.1 To a tube it is a put: TTL is ttl, RETRY ttr, DELAY delay, PRI pri, UTUBE utube. An option
  that is not given has the default of the tube. The reply is the job's id.
  - MAXLEN counts READY tasks, at the leader: so the bound holds for all producers of the cluster,
    also while their tasks wait for copies (T18.5). A task that its keys hold back counts. So does
    a job of a schedule that is not READY yet (T45.4).
- T1.2 Refused: RETRY 0, REPLICATE above 1, an option that the type does not have, a put to a full
  tube (`-MAXLEN`), to a paused one, or at a leaving node (`-LEAVING`), and UTUBE for a queue that
  is not a tube.

**Keys of tasks of type `tasks`**

- T40.1 A task of type `tasks` may have a unique key, a limit with n places (1..1,000,000), a rate
  with a burst (1..1,000,000), and a group with a weight (1..1000). A key has 1 to 255 bytes. Each
  kind has its own names.
- T40.2 The keys are part of the task: they are in its records and its copies.
- T40.3 Weight, places and rate of a key are those of the task with the highest number that has
  them, whatever its state. When that task is gone, the next one counts.
- T40.4 A key is forgotten when no task has it any more, a rate only once its bucket is full.
- T40.5 On a queue, or a tube of another type:
  `-NOTUBE UNIQUE, LIMIT, RATE and GROUP need a tube of type tasks`.
- T40.6 A tube that knows 1,000,000 keys takes no more:
  `-OOM tube '<name>' has 1000000 keys, the most that a tube keeps`.
- T40.7 SHOW of such a task has, in place of utube, those that it has of unique and until (of a
  time also until-ms, when the key is free), limit and places, rate, token-us (the time of one
  token) and burst, group and weight.
- T40.8 n of RATE is 1 to 1,000,000; the burst is by default what comes in 20 ms, at least 1. A
  bucket fills in 31 years at most. UNTIL a time takes seconds with decimals, rounded up to 1 ms,
  above 0 and at most 366 days. WEIGHT needs a GROUP, UNTIL and ON need a UNIQUE key:
  `-ERR WEIGHT needs a GROUP`.

**LIMIT: places**

- T41.1 Tasks with equal group, limit and rate are a partition, ordered by (pri, number). A
  partition first needs a place of its limit, then a token of its rate, then its group's turn.
- T41.2 Of a limit with n places at most n tasks are TAKEN at once. A place comes back when its
  task is TAKEN no longer, whatever the reason.
- T41.3 A task that may not go is in no table that a take looks at: the cost of a take does not
  grow with what waits.
- T41.4 After a start and at a new leader the places in use are counted from the tasks that are
  TAKEN. If these are more than the places, no task of the limit goes before they are fewer.
- T41.5 A partition keeps its place while it waits for a token or its turn. Only if tasks of one
  limit have different rates, one that waits for its token may hold back another.
- T41.6 Of many partitions that may go, or may go no longer, 500 of a limit or rate move at once,
  the others in the turns that follow.

**RATE: tokens**

- T42.1 In any time t at most burst + rate x t tasks of a rate are taken, by the node's clock in
  ms.
- T42.2 A token is spent when a task is taken, and does not come back with it.
- T42.3 As many partitions of a rate may go as it has tokens. While others wait, one timer of the
  rate is set, at its next token; each take sets it anew.
- T42.4 After a start and at a new leader each bucket is empty: no failover gives a second burst.

**GROUP: turns**

- T43.1 Groups that have a task which may go take turns, by deficit round robin: a group sends as
  many tasks as its weight, then the next one. Tasks without a group are a group of weight 1.
- T43.2 A group that comes, or that has nothing that may go, goes to the end of the round: so a
  task that may go waits for one round at most. In the same way groups take turns at a place or a
  token for which several wait.
- T43.3 Inside a group the lowest (pri, number) that may go is next, and a partition is replaced
  by one of the same limit, or rate, whose first task comes before its own.

**UNIQUE**

- T44.1 One task of a tube has a unique key at a time. The same key in another tube is another
  key.
- T44.2 A task has its key until it is done, cancelled, dead (T48.8) or gone. With UNTIL start it
  loses the key for good when it is first taken.
- T44.3 With UNTIL a number of seconds a key is taken for that time from the add, whatever becomes
  of the task. Then it is free, also while the task waits or is at work. If the task ends before,
  a task of its own keeps the key: it stays DELAYED until the time is over, is in the journal and
  its copies, and counts as delayed. Its key counts among those of T40.6.
- T44.4 An ADDJOB with a key that is taken replies with the id of the task that has it, or had it
  first, and adds nothing; its other options have no effect. WITHNEW shows whether it added one
  (Z4.7).
- T44.5 With ON reject the reply is `-DUPLICATE <id> has this UNIQUE key`.
- T44.6 After a start and at a new leader the tasks have the keys that they had. A key that is
  taken for a time is taken for what is left of it.
- T44.7 With ON replace a task that is READY or DELAYED gets the body of the ADDJOB; its id,
  place, delay, keys and options stay, and the time of its key continues. Of one that is TAKEN,
  dead, or has ended (T44.3), the reply is that of T44.5.
- T44.8 SHOW of a task that keeps a key has unique, until-ms, and in `key-of` the id of the first
  task. TUBE DELETE and DELJOB of it free the key. TUBE BURY:
  `-WRONGTUBE task <number> keeps a UNIQUE key: delete it to free the key`. TRUNCATE and DROP of
  the tube free all its keys.

**Work of tasks**

- T48.1 ADDJOB to a tube of type `tasks` takes ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT, ONEXPIRY
  and HEADERS (W1). A schedule's jobs have those that SCHEDULE ADD gave them (T46.2), a callback
  those of GROUP CREATE (T51.1).
- T48.14 A task with ATTEMPTS whose ttl is over when it is READY or its attempt fails becomes dead
  with the cause `expired`; the reason is that of its last failure. A DELAYED one does so when its
  delay is over, a TAKEN one when it is released (T6.2). Without ATTEMPTS, or with ONEXPIRY drop
  if no attempt failed (W6.2), it is gone (T6.1).
""",
    b"START": """
- T48.3 START is for a task that is TAKEN, by GETJOB or by the caller's session; any other one:
  `-NOTDELIVERED`. The run token has the attempt, how often the task was taken, and a hash of the
  token of the take (T5.1). A task that is TAKEN is `delivered` to RESULT until the leader knows
  its run.
- T48.4 The START of a run may be lost with the last leader. The next leader accepts WORKING,
  PROGRESS, RELEASE, FAIL or DONE of that run while its take lasts, and then knows the run,
  without the name of its worker. If none of them comes, no attempt counts.
- T48.9 If ttr, counted from START, WORKING or PROGRESS, is over while a run lasts, it fails
  with the cause `crashed` and uses up no attempt (W6.7); at its TIMELIMIT its attempt fails
  with `timeout`. A delivery without START counts for `unstarted-max` (W6.4) when its ttr is over,
  not when its session ends. Only silence that the leader could have received counts (W6.1): each
  TAKEN task has a whole ttr after a start, a change to RUNNING, a standstill of over a second,
  and a failure of the journal; its TIMELIMIT continues.
""",
    b"RELEASE": """
- T1.13 RELEASE with `-` gives back a task of a type without runs as in T48.5: it is READY, or
  DELAYED for DELAY, also in a fifo and a utube; no counter of deliveries grows.
- T48.5 RELEASE makes a task READY at its old place, or DELAYED; neither `failed`, nacks nor
  additional-deliveries grows, and its ttl stays. NACK, bury, release and what else ends a take
  ends its run in the same way, with the counters of that command.
""",
    b"FAIL": """
- T1.14 FAIL with `-` is for a task of a type without runs, as T1.13: it goes back like that, and
  `nacks` grows. With FINAL it is BURIED; the reply is `dead` and the name of the tube. REASON,
  DETAIL and CAUSE are not kept. A task that is not TAKEN: `-NOTTAKEN Task was not taken`.
- T48.7 FAIL makes a task DELAYED for the back-off (W5.4), or READY, with its keys and at its old
  place: it asks for no UNIQUE key again. If it is dead then (T48.8), the reply is `dead` and
  `<tube>.dead`, or the queue that DEAD names.
- T48.8 After the last attempt that fails, or FINAL, the task is dead: in one change, and so
  once, it is BURIED in its tube, under its id, with cause, reason, attempts, and the first and
  last failure. Its UNIQUE key and its place are free. RESULT, WAITJOB and groups show it once
  as many nodes know of it as SYNC asks. Each BURIED task is a dead letter, of TUBE BURY with
  the cause `buried`; no attempt is used up.
""",
    b"CANCEL": """
- T48.10 CANCEL of a task that is not TAKEN ends it, and its keys are free. One that is TAKEN is
  `flagged`: its worker learns of it (W8.2), and it ends as cancelled where it would be READY,
  DELAYED or BURIED again; DONE wins. START of it ends it: `-CANCELLED`.
  - The flag is part of the task (T48.2): a new leader knows it. A node without a replica of
    the task asks the leader (T17.8), and then the reply does not wait for SYNC.
""",
    b"UPDATEJOB": """
- T1.10 UPDATEJOB PRI changes the pri of a task, whatever its status and holder. The status stays,
  and a READY task has its new place at once. A type without pri refuses it, and each type but
  `tasks` other options of UPDATEJOB.
- T48.11 BODY, DELAY, TTL, ATTEMPTS and HEADERS of a task of type `tasks` are changed as those of
  a job (W10.1, W10.2), and PRI beside them: in one change of the tube. A BURIED one is dead. A
  DELAY adds nothing to the ttl, and is refused if it is not below what is left of that; DELAY 0
  makes the task READY at its old place. Its keys stay.
""",
    b"DEAD": """
- T48.12 If ADDJOB named a queue with DEAD, the dead letter of a task is a new job with its own id
  there, with the copies of a plain ADDJOB; the task ends in the same step of the journal, with
  the outcome `dead`, and its keys are free.
  - If the leader is lost before the others know of it, the next leader makes the last attempt
    again: then there may be two letters.
  - DEAD REPLAY of such a letter, or of one whose queue is a tube now, needs QUEUE. Without it the
    letter stays, and others are replayed. If there are no others: `-ERR '<name>' is a tube: DEAD
    REPLAY of letters in '<queue>' needs QUEUE`.
- T48.13 DEAD REPLAY makes a dead task READY at its old place, as new: `failed` and `crashes` are
  0 and its ttl, as long as it was at its first death, begins anew; id, headers, keys and the
  count of takes stay. TUBE KICK and ENQUEUE do the same.
  - It asks for its UNIQUE key again, unless it has lost it for good (T44.2) or the key's time is
    over (T44.3). If another task has it, it stays dead and does not count as changed; if it is
    the only one that IDS names: `-DUPLICATE <id> has this UNIQUE key`. KICK passes by 1000 such
    tasks at most.
  - With QUEUE the body goes to that queue as a new job with its own id, and the task ends with
    the outcome `dead`.
- T48.15 LIST, STAT, REPLAY and PURGE take the name of the tube, at its leader (T17.3), SHOW the
  id of the task; changes wait for SYNC (T18.5). The cursor of LIST stays good at a new leader.
  PURGE is a delete. START of a dead task: `-DEAD` (W2.2). It counts as buried (T15.4) and as a
  dead letter (W6.6, S8, O10.2).
  - They take `<tube>.dead`, too: first come the letters in the plain queue of that name, then
    those of the tube, if the user may see it (N2.5). Where the tube is not led there are the
    first ones alone; if there are none, the error names the leader.
  - A dead task is gone after `dead-keep-days`, whatever its ttl. Above `dead-max-bytes` the
    leader removes the oldest (W6.6); their bytes count with those of its queues. Details of their
    failures are not dropped for memory (M3.4).
""",
    b"SCHEDULE": """
- T45.1 A schedule makes jobs at instants. It is a task of a tube of type `tasks` that stays
  DELAYED: it is in the journal and its copies, and counts as delayed. Its body is that of its
  jobs. Another tube, or a temporary one:
  `-NOTUBE tube '<name>' has no schedules: they need a tube of type tasks that stays`.
- T45.2 Each schedule of a tube has a name. ADD with the words and body that a schedule of that
  name has changes nothing. With others it replaces it; instants that have passed by then are
  dealt with, and an interval that stays the same does not begin anew.
- T45.3 At an instant the leader adds one job, of the options that the schedule gives, and notes
  the instant. Of one schedule it adds one job in a turn, and it looks at 25 schedules in a turn.
  What cannot be added now is tried again, after 200 ms.
- T45.4 Each instant makes one job, also over starts and changes of the leader. The job and the
  note are one step of the journal; other nodes and clients learn of it when it is on disk, also
  under `everysec`. Where a change must be on several nodes (T18.5) the job is READY once it is on
  as many, and the next one of the schedule is added after that. A new leader that has the note
  without the job, by the number of the change, adds the job.
- T45.5 An instant that the leader comes to more than 10 s late was missed. By `MISSED skip` it
  makes no job, by `one` the first that was missed makes the only job of all missed, by `all` each
  makes its own. Those of the last 10 s make their own jobs by every policy, and count as in time
  also if it takes longer to add these jobs. `late` counts how often that was so, and it is
  logged.
  - What was missed is decided when a job can be added. Instants that wait by T45.6, except for
    the quota of N11.3, are judged anew when the wait ends: so `skip` and `one` make jobs of the
    last 10 s only, and `one` one job more.
- T45.6 While the unique key of the jobs is taken, the instant is noted and makes no job. While
  memory, the journal, a paused input (P2) or the tenant's quotas let no job in, it waits.
- T45.7 Instants of a pause make no jobs, then or later. RUN adds a job at once and notes no
  instant; when the reply comes, the job can be taken.
- T45.8 SHOW of its id has the name in `schedule`. TUBE DELETE and DELJOB drop it; TUBE BURY:
  `-WRONGTUBE task <number> is a schedule: use SCHEDULE PAUSE`. TRUNCATE and DROP of the tube end
  its schedules.
- T45.9 An instant noted that is more than 60 s ahead was noted by a leader whose clock was ahead.
  If the system of the leader keeps its clock in step with others, and that clock agrees with the
  node to 10 s, what is ahead of now is taken back: its instants make their jobs when they come.
  Else the schedule waits, and the leader looks again every 10 s. Either is logged.
- T46.3 A name has 1 to 128 bytes, CRON 128, TZ 64. A tube has at most 10,000 schedules:
  `-ERR tube '<name>' has 10000 schedules, the most that a tube keeps`.
""",
    b"SCHEDULE ADD": """
- T46.1 EVERY takes 1 s to 366 days, with decimals; the first instant is one interval after the
  ADD. CRON takes five fields, or six with the seconds first, in the time of the zone (UTC without
  TZ).
  - A local time of five fields that does not exist makes its instant at the end of the gap, one
    that comes twice makes one. Minutes or hours that begin with `*`, and six fields, go by
    elapsed time.
  - The rules are those of the package `cronsim`. A field has `*`, numbers, ranges `a-b`, lists,
    steps `/n` after `*` or a range; `a/n` begins at a. Months and weekdays have names of three
    letters, ranges also of names; Sunday is 0 and 7, and the last day of a range such as
    `MON-SUN`. Day and weekday together mean either, but both if one of the two begins with `*`.
    Day `L` is the last day of the month, `LW` its last one from Monday to Friday; weekday `5L` is
    the last Friday, `5#2` the second. `15W`, `L-3`, `?` and ranges that go backwards are refused.
    So are `@daily` and the like:
    `-ERR CRON: wrong number of fields in '@daily': write '0 0 * * *'`.
  - The next instant is found by the fields, month by month, and costs as much if it is years
    ahead. An expression that never fires is refused: `-ERR CRON '<text>' has no instant to come`.
  - Each node needs the zone. One that does not know it, or lacks the package `cronsim`, tries
    again and logs it. ADD refuses one that its node does not know, upper and lower case matter:
    `-ERR TZ: this node knows no time zone '<zone>': <hint>`. It refuses `localtime`,
    `posixrules`, and what begins with `posix/` or `right/`: these differ between machines.
- T46.2 The options of the jobs come after the words of the schedule: RETRY, TTL, PRI, the keys
  (T40), ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT, ONEXPIRY and HEADERS (T48), as if an ADDJOB had
  given them; what W1.4 refuses is refused. The reply is `ADDED`, `UNCHANGED` or `REPLACED`. RETRY
  0: `-ERR RETRY must be 1 or more: the tasks of a tube come back`.
  - Of ON only keep. Another word:
    `-ERR syntax error: SCHEDULE ADD has no option '<word>': it takes <options>`. All of them
    together have at most 16,384 bytes: `-ERR the options of a job have <n> bytes: at most 16384`.
""",
    b"SCHEDULE LIST": """
- T46.4 LIST replies with the next cursor, 0 at the end, and up to n (100) schedules. SHOW replies
  with one and its body; if there is none: `-NOSCHEDULE tube '<name>' has no schedule '<name>'`.
  - Each has name, queue, cron, tz, every-ms, missed, paused, next-ms, last-ms (the last instant
    that made a job), fired (jobs made at instants), late, waits and id, and of attempts, backoff,
    dead, keep-ms, keep-body (1), time-limit-ms, on-expiry and headers those that were given. waits
    is why an instant that has come makes no job yet, else empty. That is logged when it lasts 5 s.
""",
    b"SCHEDULE RUN": """
- T46.5 RUN replies with the id of the job, null if its unique key is taken; what refuses an
  ADDJOB refuses it. PAUSE and RESUME reply 1 if that changed something, DROP if there was one,
  else 0.
""",
    b"QUEUE": """
- T74.1 A queue may have settings: when it goes because nobody uses it, and what its jobs may be.
  [The rules](../spec/values.md).
- T74.3 A tube has none: `-ERR '<name>' is a tube: only queues have settings`. More than 10,000:
  `-ERR 10000 queues have settings, the most that a node keeps: delete some`.
""",
    b"QUEUE SET": """
- T74.2 SET takes EXPIRES (1 s to 366 days), AUTODELETE, TTL (up to 2147483647 s) and MAXLEN (1 to
  2147483647). EXPIRES and TTL take decimals. SET turns off each setting that it does not name. It
  replies 1 if a setting changed. The node then owns the queue (T75.2). SET counts as use.
- T74.8 TTL is the longest TTL of a job that is added or staged for the queue after that, and the
  TTL of one that comes without it.
- T74.9 MAXLEN is how many jobs may be queued at a node. ADDJOB and PUBLISH of one more there:
  `-MAXLEN queue '<name>' has <n> jobs or more at this node, the MAXLEN of its settings: let workers
  catch up, or raise it with QUEUE SET`; TOPIC ADD: as when one queue refuses its job (T62.2). Jobs
  that come back, dead letters and replays are not refused.
""",
    b"QUEUE SHOW": """
- T74.6 SHOW replies with queue, expires-ms (0: never), autodelete, ttl-ms (0: any), maxlen (0: any
  number), owner (its address) and idle-ms (how long this node saw no use), or a null if the queue
  has no settings.
""",
    b"QUEUE PURGE": """
- T74.7 PURGE acknowledges jobs of the queue that no worker has, at all nodes, in slices, and
  replies how many: by STATE those that are queued when it begins (`waiting`, the default), those
  in their first delay (`scheduled`), or both and those in a back-off (`all`). With HERE it does so
  at this node alone.
  - A node that is not linked until it has answered: `-NOREACH a node did not answer: <n> jobs of
    queue '<name>' were removed at the others, try again once it is back`.
""",
    b"QUEUE DELETE": """
- T75.6 DELETE deletes the queue as at its end (T75.4), and replies 1, or 0 if this node knows no
  such queue. With IFUNUSED it replies 0 if a client waits for the queue here, with IFEMPTY if a
  job is queued here. A node where the queue is used keeps it (T75.2).
""",
    b"VALUE": """
- T70.6 A name has 1 to 255 bytes, a value at most `max-body-bytes`. TTL takes 0 to
  2147483647 seconds, with decimals; 0: no end. Without TTL it is a day. The tube must exist:
  `-NOTUBE Tube '<name>' not found`. [The rules](../spec/values.md).
""",
    b"VALUE GET": """
- T73.1 GET replies with the value of each name, a null for one that has none. The reply ends before
  the value that would make it longer than 4 MiB: ask for the other names again.
- T73.2 Of a set of parts: `-ERR '<name>' is a set of parts: use VALUE TALLY, PARTS or DROP`.
""",
    b"VALUE WAIT": """
- T73.3 It takes 1 to 500 names; ms 0 is for ever. A reply is cut as that of GET. The order is that
  of the names.
""",
    b"VALUE DROP": """
- T73.4 It replies how many of the names had a value or were a set of parts.
""",
    b"VALUE ADD": """
- T73.7 ADD begins the TTL anew, a day without one: a counter that shall stay needs TTL in each ADD
  (T70.4).
- T73.5 `-ERR the value '<name>' is no number of 64 bits with a sign`, `-ERR the sum of '<name>'
  would have more than 64 bits with a sign` and `-ERR the value '<name>' is FIXED: only VALUE DROP
  and its TTL end it` change nothing.
""",
    b"VALUE TALLY": """
- T73.6 An index is 0 to 999,999, SIZE at most 1,000,000. An index that is not below a
  SIZE above 0: `-ERR the index must be below SIZE`. With the index `-` the value is empty:
  `-ERR the index - says the size alone: its value must be empty`. Of a value:
  `-ERR '<name>' is a value, and no set of parts`.
""",
    b"VALUE PARTS": """
- T71.4 PARTS replies with the index to go on with, 0 at the end, and up to n (100, at most 1000)
  parts from that index on, each with index and value, in order. One call looks at 2,000 indexes,
  and its reply ends as that of GET. A name without a set has no parts.
""",
    b"VALUE SCAN": """
- T70.9 SCAN replies with the next cursor, 0 at the end, and up to n (100, at most 1000) rows, in
  the order in which names were first set: name, kind (`value`, `ended`, `fixed` or `parts`), bytes
  (of a set: its parts) and end (ms since 1970, 0: none). One call looks at 2,000 names.
""",
    b"LIMITS": """
- T47.1 It replies with the next cursor, 0 at the end, and up to n (100, at most 1000) rows: the
  limits for whose places tasks wait, then the rates for whose tokens they wait, of both the
  longest wait first, then the groups that have READY tasks.
- T47.2 Each row has names and values: kind (`limit`, `rate` or `group`), key, waiting (READY
  tasks that have the key), since-ms (since when somebody waits without a break; of a group 0),
  next-ms (when the task that goes next was added; 0: no task of the group may go).
  - A limit also has places and used: its TAKEN tasks, and the places that are kept for tasks that
    wait for a token or their turn (T41.5). A rate also has token-us, burst, tokens (that are
    there) and token-ms (when the next one comes). A group also has weight and weights, which is
    the sum over all groups that have READY tasks: their quotient is its share of the takes.
- T47.3 The cursor is a place in this list: a key that comes or goes between two calls may be
  missed, or be there twice.
- T47.4 On a queue, or a tube of another type:
  `-NOTUBE '<name>' has no limits: they need a tube of type tasks`.
""",
    b"GROUP": """
- T50.1 A group is a number of jobs, its children, whose ends are awaited together; then its
  callback, a job, is added. It is a task of a tube of type `tasks` that stays DELAYED, and so is
  the record of each child: they are in the journal and its copies, and count as delayed. Its body
  is that of its callback. Another tube, or a temporary one:
  `-NOTUBE tube '<name>' has no groups: they need a tube of type tasks that stays`.
- T50.2 A child is a job of a queue or a task of a tube, at whatever node, also of the group's own
  tube. It has an index in its group, from 0 on; the first job added under an index counts. ADD
  refuses the id of a group, a schedule, the record of a child or the keeper of a key that this
  node knows, before it adds any:
  `-ERR <id> is a group: the children of a group are jobs and tasks`. A job that ended before it
  was added counts while its outcome is kept (W7.2): children need KEEP.
- T50.3 The leader waits for the end of each child as WAITJOB does (W9, W15), and notes it, with
  the result, once for each index: so a child that runs twice, or ends twice, counts once. A child
  whose job is at another node is asked for each second, 500 at once at most. While the tube of a
  child has no leader, the child is open (W15.11).
  - `done` is its end, or it has failed: `dead`, `cancelled`, or `gone` (expired, deleted, or
    ended and not kept). The reason has that one is gone, that the TTL of a dead one was over (its
    last failure follows), that nobody began it, or that it was buried.
  - A child whose result is not kept, has more than 65,536 bytes, or would make those of the group
    more than 64 MiB, has failed, with that as the reason.
- T50.4 When all children have ended, the group becomes its callback: in one change its task is
  READY under the id that it had. So the callback is there once, over starts and changes of the
  leader.
- T50.5 ONFAIL stop: a child that fails makes the group fail: the callback does not run, and the
  open children are cancelled. With `continue` it has ended like the others, without a result.
  With `wait` one that is dead is open, and ended as `dead`, with its reason, until the leader
  knows that it was replayed.
- T50.6 A group that failed, was cancelled, or is done and has no callback stays for KEEP, with
  its results. Of a callback the results stay until its task is gone, and a minute longer at most;
  its outcome is kept for KEEP.
- T50.7 CANCEL of a group, or a delete of its task: its callback does not run, and each open child
  is cancelled (W8), by and by, unless it was added with NOCANCEL (T51.2); a node that is not
  reachable is asked until it answers.
  - A child that has ended when the group ends, and was not noted yet, is noted as it ended
    (T50.3), with its result. One that a worker has when it is cancelled is noted as `cancelled`
    at once.
- T50.8 A group that has not got all its children an hour after its CREATE is cancelled.
- T50.9 SHOW of its id has `children`, that of a child's record `child`. TUBE BURY:
  `-WRONGTUBE task <number> belongs to a group: use GROUP CANCEL`. TRUNCATE and DROP of the tube
  end its groups; their children continue.
""",
    b"GROUP CREATE": """
- T51.1 A group has 1 to 10,000 children, a tube 10,000 groups that are open. KEEP is a day unless
  given, also for the callback. The reply is the id of the group, which is that of its callback.
  - The options of the callback are RETRY, PRI, LIMIT, RATE, GROUP, ATTEMPTS, BACKOFF, DEAD,
    TIMELIMIT and HEADERS. They need THEN, which is the last word but one. RETRY 0 is refused as
    in T46.2. They have at most 16,384 bytes, as in T46.2. Another word:
    `-ERR syntax error: GROUP CREATE has no option '<word>': it takes <options>`.
""",
    b"GROUP ADD": """
- T51.2 Up to 500 pairs of index and id; the reply is how many were new. A group that is not open
  takes none: 0. With NOCANCEL the group waits for these, but never cancels them: another one has
  added them. One that has not ended when the group does has failed: it ended as `open`.
""",
    b"GROUP SHOW": """
- T51.3 SHOW replies with id, queue, state (`open`, `called`: it is its callback now, `done`,
  `failed`, `cancelled`), children, added, done, failed, dead (open ones that are waited for,
  T50.5), onfail, callback (1 or 0), created-ms and over-ms; and of the callback attempts,
  backoff, dead, keep-ms, time-limit-ms and headers, as T46.4 has them. If there is none:
  `-NOJOBGROUP tube '<name>' has no group '<id>'`.
  - RESULTS replies with the next index, 0 at the end, and for each child from that index on:
    index, id, `open`, `done` or `failed`, result, how it ended, reason. A page has n (1,000)
    children, and ends after 1 MiB of results.
""",
    b"GROUP LIST": """
- T51.4 LIST replies with the next cursor, 0 at the end, and up to n (100) groups that are not
  their callback yet; with STATE those of that state, also `called`. It looks at the groups in
  slices (L2.2).
""",
    b"GROUP CANCEL": """
- T51.5 CANCEL replies 1, or 0 if the group is not open.
""",
    b"GROUP CHILDREN": """
- T51.6 CHILDREN replies with the next index, 0 at the end, and for each child from that index on,
  of that state: index, id, `open`, `done` or `failed`, the bytes of its result, how it ended,
  reason, and when (unix ms). One that is noted after the group has ended is later than it. STATE
  dead means the open ones that are dead.
  - It looks at 1,000 children at most, so that a reply with a next index may have none. A page
    ends after n (1,000) children, and after 128 KiB.
""",
    b"TOPIC": """
- T60.1 A topic is a name under which an ADD reaches all queues that are subscribed to it. A
  subscription is a topic, a queue or tube, and up to 8 filters. It stays until it is removed,
  whether or not its queue exists. A topic exists as long as it has a subscription.
- T60.2 The name of a topic has 1 to 255 bytes, that of a queue that subscribes 1 to 512. A topic
  has at most 4,096 subscriptions, and a node knows at most 50,000. Those that come from other nodes
  are not refused.
- T60.3 A filter is the name of a header (1 to 64 of `[a-z0-9._-]`) and a pattern of 1 to 128
  bytes. A job passes if it has each of these headers, with a value that the pattern fits. Only
  headers are looked at, never bodies. A comparison takes a step for each character of the value,
  whatever the pattern.
  - In a pattern `*` is any bytes, `?` one byte, `[ab]` and `[a-c]` one of these bytes, `[^a]` and
    `[!a]` one other byte. `\\` before one of these outside brackets, and everything else, is that
    byte itself; so is a `[` without a `]` two bytes later or more. A pattern that fits nothing is
    refused: `-ERR the pattern '<pattern>' fits nothing: write ranges as in [a-c]`.
- T60.4 (cluster) TOPICS sends each change of a subscription to all linked nodes, and all of them
  when a link opens. A node that learns of a change passes it on. Each change has a version and
  the id of the node where it was made. The version is the time in ms, or one more than the
  version before if that is higher. The higher version wins; of the same version, the higher node
  id. So of changes at nodes that were apart the latest wins, as far as the clocks of the nodes
  agree.
- T60.5 A removal is a change with a version as well, and is kept: a node that was away learns it,
  and does not bring the subscription back. Of removals the 10,000 latest are kept, also after a
  load. If a tenant has more than a quarter of them, the oldest of the tenant that has most goes
  first.
- T60.6 Each change is a record `topic` in the journal: absolute (J2.2), binding (J4.2), and in
  snapshots, with removals. A load restores all of them.
- T60.7 Topics and subscriptions count as used memory (M1). FLUSHALL and CLUSTER RESET forget them
  here.
- T60.8 (cluster) For `cluster-node-timeout` after its start, or after its journal is loaded, a
  node that knows other nodes takes an ADD only when one node has sent it all that it knows, and
  so has each that is linked: else `-LOADING this node has started, and has not heard all
  subscriptions of other nodes yet: nothing was added, try again soon`.
- T63.1 A key is words between dots, 1 to 255 bytes and up to 32 words. In a pattern `*` is one word
  and `#` none or more: `-ERR a key has 1 to 255 bytes, and up to 32 words between dots`.
- T63.2 A subscription may have up to 64 patterns, each by a SUBSCRIBE with KEY, which keeps those
  that are there. A job comes once if one of them fits its key, or if there is none. SUBSCRIBE
  without KEY removes them, UNSUBSCRIBE with KEY one; with the last one the subscription goes. An
  ADD without KEY has no words: only `#` fits it.
- T63.3 All patterns of a topic are a tree of their words, and a key goes through it once, in slices
  (L2.2): what does not fit costs nothing.
- T63.4 The record `topic-keys` follows the `topic` of a subscription with patterns (T60.6). Of two
  changes at nodes that were apart the later one wins with all of its patterns (T60.4).
- T62.9 INFO has a section Topics: topics, subscriptions, removals that are kept, bytes, ADDs,
  their jobs, and ADDs that no queue got.
""",
    b"TOPIC SUBSCRIBE": """
- T61.1 SUBSCRIBE replies 1 if the subscription is new or gets other filters or patterns, else 0.
  There is one for each topic and queue: its last SUBSCRIBE gives the filters. At level 3 it is
  refused (M2.3).
- T61.4 A user with `consume` may subscribe a queue that it may use to a topic of that kind.
""",
    b"TOPIC UNSUBSCRIBE": """
- T61.2 UNSUBSCRIBE replies 1, or 0 if there is no such subscription or pattern. Jobs that are in
  the queue stay there.
""",
    b"TOPIC LIST": """
- T61.3 LIST replies with the next cursor, 0 at the end, and up to COUNT (100, at most 1000) rows:
  topic, queue, filters (names and patterns in turn), how many jobs came through the subscription
  since this node started, by ADD here, and the patterns of its keys. A subscription that is
  there all the time is in one page. With TOPIC only those of that topic are shown.
""",
    b"TOPIC ADD": """
- T62.1 ADD adds a job to each queue whose subscription this node knows and whose filters the
  HEADERS of ADD pass. The reply is an array of the ids, in the order of the queues' names; empty
  if there is no such queue. What was added before a queue subscribed does not come to it.
- T62.2 Each job is checked as by ADDJOB (R1.3 to R1.7, T1.2), before any is added: the first
  refusal is the reply, followed by `: queue '<queue>' of topic '<topic>', nothing was added`. So
  one queue that is paused, or longer than MAXLEN, refuses all. To a user that may not see the
  queue (N2.3) it is `-<first word> a queue of topic '<topic>' that this user may not see refuses
  it, nothing was added`. A node that leaves, or whose memory is at level 1 (R1.5), refuses all,
  with an error that nothing was added.
- T62.3 All jobs are added in one turn, and so in one frame of the journal (J3.1): after a crash
  this node has all or none. The filters are compared before, in slices (L2.2). A tube that
  unsubscribes meanwhile gets no job. If a tube gets another leader before the reply to ADD, its
  job may be lost (T18.5).
- T62.4 PRI and UTUBE are for the tubes whose type has them, and mean nothing to the others. PRI
  is for queues, too: one above 9 is 9 there.
  REPLICATE is for queues: a tube has SYNC. HEADERS stay with the jobs of queues and of tubes of
  type tasks. ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and ONEXPIRY are for these as well, and
  mean nothing to other tubes. UNIQUE, LIMIT, RATE, GROUP and WITHNEW are refused:
  `-ERR TOPIC ADD takes no <word>: <why>`. Another word:
  `-ERR syntax error: TOPIC ADD has no option '<word>': it takes <options>`.
- T62.5 (cluster) Jobs that need copies are added as those of a PUBLISH (Z3): each is queued when
  it has its copies, and the reply comes when all have them. If that takes longer than ms-timeout,
  or Z3.3 applies, those that lack copies are queued without them: `-FEWCOPIES all jobs of the
  topic are added, <m> of <n> with fewer copies than asked for, since nodes are unreachable: do
  not add them again`.
- T62.6 A DEDUPE key holds for each queue separately (Z4): where a job has it, its id is in the
  reply and no job is added. So a repeat adds a job to a queue that subscribed since. If such a
  job still waits for its copies, all are refused (`-NOREPL`).
- T62.7 The body counts once for each queue: if all together have more than `max-body-bytes`, they
  are refused: `-ERR a body of <n> bytes for <m> queues: all together at most <max-body-bytes>`.
- T62.8 The quotas of a tenant (N11.2, N11.3) count each job. Those of jobs and bytes that hold
  are of the tenant whose queue it is; if that is another one, the reply is
  `-QUOTA the tenant of a queue that is subscribed may have no more jobs here`. An ADD that no
  queue gets, or whose jobs all have their key (T62.6), counts as one add.
- T62.10 (cluster) ADD runs at the leader of the topic's tubes: elsewhere the reply is `-TUBEHOME`
  (T17.3). So all tubes that get a job need one leader; with several: `-TUBESAPART tubes '<name>'
  and '<name>' of topic '<topic>' have different leaders, nothing was added: give them one leader
  with TUBE HOME`. A user that may not see both reads no names. After a failover they have one
  leader again (T27.13).
- T62.11 If the bodies of all jobs, and the memory of the jobs without them, are more than the
  rest of `maxmemory`, the ADD is refused as in C3.5.
""",
}
