"""The rules of commands about the work of jobs, leases and staged writes.

A part of the table in wire/commands/details.py, in the same form.
"""

from typing import Final

WORK_DETAILS: Final[dict[bytes, str]] = {
    b"PROGRESS": """
- W3.4 PROGRESS keeps the latest bytes, at most 4096, for RESULT. The reply is OK.
""",
    b"START": """
- W2.1 A word that is no job id: `-BADID Invalid Job ID format.`, and nothing begins. WORKER has
  1 to 255 bytes. Without WORKER, the connection is the worker.
- W2.2 Unknown: `-NOJOB`. Ended: `-ACKED` or `-CANCELLED`. Waits for copies: `-NOTDELIVERED`. A
  task of a tube: an error. Leased: `-ATWORK`. Dead: `-DEAD Job is a dead letter in
  '<queue>': DEAD REPLAY it`.
- W2.3 In its first delay or in a back-off, at any holder that has heard of it: `-NOTDELIVERED`.
  A job that is queued again after its RETRY may still be started; it leaves the queue.
- W2.4 At work: the same worker gets the same run again. Any other one gets `-ATWORK Job is at
  work at worker <name> since <n> s`.
- W2.5 Otherwise a run begins: it has a new token, and it is silent RETRY from now.
- W2.6 The reply is an array with, for each id, `[run, attempt, of, starts, retry-ms,
  time-limit-ms]` or the error. `of` and `time-limit-ms` are 0 without ATTEMPTS and TIMELIMIT.
""",
    b"DONE": """
- W7.1 The job ends as ACKJOB would end it, whichever run is named, `-` too; so does a task
  of a tube, where T1.4 or T48.6 lets it. The reply is how many ended at this node now: 0 also of
  a job of a queue that it does not know, which ends at who knows it (W14.6). Of a task the leader
  replies (T17.8).
- W7.2 The outcome is kept for KEEP seconds: kind, run, worker, progress, result, reason. ACKJOB
  and FASTACK keep the outcome `done` without a result, DEADLETTER the outcome `dead` with its
  reason, also of a task. The first outcome stays.
- W7.3 With KEEP 0 only those who wait at that moment get the result. That a job was cancelled is
  known until its holders have confirmed it, also after a restart (W13.8); that it is gone, until
  then or until the node restarts.
- W7.4 Above `results-max-bytes` the oldest outcomes are dropped and counted, at most 500 at
  once, and the others in the next turns. A result that alone is larger drops no other: the job
  is done, and its outcome is kept without the result, with a reason about that. With KEEP the
  reply to DONE is then `-ERR the job is done, but its result of <n> bytes is not kept here:
  its outcome has <k> bytes with it, results-max-bytes is <m>`, and the log has a line.
- W7.5 (cluster) Such a result goes to the other holders anyway, with the acks of that moment:
  each keeps it within its own `results-max-bytes`. So it does from a node without the job
  (W14.6).
- T48.6 DONE acks the task (T1.4). So it does one that is READY, DELAYED or BURIED again, if it
  names the run of its last take: work that was done is done. Its outcome and result, kept for
  KEEP, are among the changes that followers and new replicas get (T18.2); each node keeps them
  within its own `results-max-bytes`. The leader shows them once as many nodes have them as SYNC
  asks. A follower with a complete replica shows them if two are enough; else it asks (W15). If it
  gets the task from the next leader, it drops the end.
""",
    b"FAIL": """
- W5.1 Errors as in W2.2 and W3.1: a late FAIL never touches a newer run. REASON over 2048 bytes
  is an error; DETAIL is cut after 65536.
- W5.2 The attempt counts: `failed` becomes the run's attempt. The first and the last failure are
  kept.
- W5.3 With FINAL, with RETRY 0, or if ATTEMPTS is reached, the job is dead (W6.5).
- W5.4 Otherwise the job waits for DELAY, or min(max, first x 2^(failed + `crashes` - 1)) less a
  random share of up to jitter. Then it is queued; no counter of Q grows.
- W5.5 The reply is `retry` and the wait in ms (0: it is queued now), `dead` and the queue,
  `cancelled` and null, or `expired` and null: the job's time was over, and it has no ATTEMPTS.
- W5.6 The cause of the failure is `failed`, or the word after CAUSE: `failed`, `crashed` or
  `timeout`. A worker that ends a run at its own time limit sends `timeout`. Another word: `-ERR
  CAUSE must be failed, crashed or timeout, not '<word>'`.
""",
    b"RELEASE": """
- W4.1 The run at work ends and its attempt is not used up. `-` gives back a delivery that nobody
  began. The reply is how many jobs were given back; others are skipped, and AMO jobs, which may
  not be delivered twice.
- W4.2 The job is queued now, or after DELAY. Neither `nacks` nor `additional-deliveries` grows.
  - (cluster) The other holders do not act on the job for DELAY + retry + J (Q9), and hear that
    no worker has it. So do they in a back-off (W5.4).
""",
    b"CANCEL": """
- W8.1 Nobody has the job: it ends with the outcome `cancelled`. So does a leased job.
- W8.2 A worker has it: the job is flagged. WORKING, PROGRESS and START answer `-CANCELLED Job
  was cancelled: <reason>`. A RESP3 connection that last spoke of the run gets the push
  `job-cancel id run` at once, also when the run is over for another reason. It gets none when
  the job passes to another node (K7.2): there the run continues.
- W8.3 A flagged job ends as cancelled at START (of another worker only if nobody is at work),
  RELEASE, NACK, ENQUEUE, FAIL, or when its RETRY is over. DONE still makes it done: the result
  is true.
  - If that result is kept, the reason of the outcome is that of the CANCEL, or `cancelled` if it
    gave none: so who follows it can stop there.
- W8.4 The reply is for each id `ended`, `flagged`, `over` (it had ended), null (unknown) or
  `-NOREACH` (W15.5).
- W8.5 (cluster) A job with copies is flagged at its holders first (W16.8). After the reply `ended`
  no run of it begins.
- W8.6 An error changes nothing: a task of a tube that has no runs (T48) refuses the whole
  command. CANCEL and UPDATEJOB that wait for holders have begun; they are not refused any more
  when memory runs out meanwhile.
- W15.8 A node that got the CANCEL and did not answer may still do it later. Then the reply is
  `-NOREACH Job is not known here, and may be at a node that did not answer: <id>; CANCEL may
  still take effect there`. Without the last words no such node got it. A later CANCEL of that
  job has them too, until the node is linked again. Of such jobs 1000 are remembered.
""",
    b"RESULT": """
- W9.1 RESULT replies names and values: `state attempt of worker progress result cause reason
  detail ended-ms`. With WAIT the reply comes when the job has ended or is dead, or at the
  timeout with the state of that moment; 0: no timeout. Unknown: `-NOJOB`. Of a flagged job the
  reason is that of the CANCEL, without cause and detail.
- W14.13 RESULT without WAIT of a job whose end is not confirmed yet waits for that, one second
  at most. Holders that have not confirmed it are asked again within 50 ms.
- W14.14 (cluster) RESULT and WAITJOB look again at each confirmation, and when a holder becomes
  unreachable.
- W15.4 (cluster) The node asks about a job that it does not have (W15). While a client waits,
  the question is repeated every second. RESULT without WAIT and CANCEL wait for the answers one
  second at most; so do RESULT with WAIT and WAITJOB with a shorter timeout, which bounds the
  wait for the end only. Likewise for holders yet to confirm an end (W14.13).
- W15.5 (cluster) If no node that answers knows the job, but a member is not in reach or does
  not answer, the job is not `gone`. WAITJOB waits. The waits end when the node is back, or is
  forgotten (K6): then it counts as lost with its jobs. RESULT replies `-NOREACH Job is not
  known here, and may be at a node that did not answer: <id>[, <id>]`, with WAIT at the timeout;
  so does CANCEL for that id. Of more than three nodes it names three, then ` and <n> more`.
  While the journal of this node cannot be written, the reply names that instead (J6.6).
- W15.10 A result that this node has dropped (W7.4, M3.4), for memory or its bound, may be kept
  elsewhere. RESULT asks all linked nodes for it, one second at most, also at the end of WAIT; it
  takes an answer without the result only if none has it. If none that answers has it, and a
  member is not in reach or does not answer, the result may be there. RESULT replies `-NOREACH
  Job is done, but its result is not here, and may be at a node that did not answer: <id>[,
  <id>]`, and with WAIT it waits for that node until the timeout. WAITJOB needs no result. It is
  lost if all members have answered, or if the job had no other holder when it ended: then RESULT
  replies the state `done`, no result, and the reason.
- W18.1 The work of a job has a row of the runs that failed, were silent, over their time limit or
  cancelled. RELEASE and NACK leave none, DEAD REPLAY keeps the row.
- W18.2 It has the last 16, of details the last 8192 bytes, 65536 bytes in all: above that the
  oldest details go. Without KEEP BODY there is no detail, and of a reason 160 bytes.
- W18.4 The outcome keeps for KEEP the row, when the job was added, and when the run that ended it
  began; with KEEP BODY also headers and body.
- W18.5 An outcome that alone is above `results-max-bytes` goes without its body and details, then
  as in W7.4.
- W18.6 WITHBODY adds `queue added-ms headers body`: of an ended job headers and body if it had KEEP
  BODY, else none and null; null also once they went for memory (M3.4, W18.5). WITHATTEMPTS adds
  `attempts`, the oldest first (W18.2): rows of attempt, run, worker, began-ms, ended-ms, state,
  reason, detail. The state is `failed`, `timeout`, `crashed`, `cancelled`, `done`, `dead`
  (DEADLETTER) or `running`, which has 0 for its end. 0 for the begin: it is not known. Another
  node is asked for both (W15); the user must see the queue.
""",
    b"WAITJOB": """
- W9.2 WAITJOB replies when all jobs, or COUNT of them, have ended or are dead: an array of `[id,
  outcome]` of these. An id that is not known counts as `gone`. At most 500 ids: `-ERR too many
  ids for 'waitjob': at most 500`.
- W9.3 At the timeout the reply has what has ended by then. 0: no timeout.
""",
    b"UPDATEJOB": """
- W10.1 Changes a job that is scheduled, waiting or in a back-off. DELAY counts from now; 0
  queues it. TTL counts from now, with decimals; 0: it never expires. The reply is OK.
- W10.2 Delivered or at work: `-ATWORK`. Dead: `-DEAD`. Waits for copies: `-NOTDELIVERED`.
  ATTEMPTS not above those that failed, or PRI of a job in a plain queue: an error. Errors change
  nothing.
- W10.3 (cluster) Of a job with copies one holder decides (W16). OK comes when all holders in
  reach have the change. Of two changes that two sides of a cut made, the one with the higher
  number counts. An AMO job with copies is not changed: an error.
- W10.4 DELAY of a job that nobody got also changes the delay that SHOW and O3.3 go by, which
  counts from the creation: it ends with the new one.
""",
    b"DEAD": """
- W12.1 LIST replies the next cursor (0: the end) and rows of id, origin, task, attempts, cause,
  reason, first and last failure in ms, oldest first. COUNT letters are looked at (1..1000, 100).
  Filters: `REASON glob`, `CAUSE word`, `TASK glob`, `SINCE ms`.
- W12.2 SHOW replies names and values of all that is known, with headers, body and detail. No
  dead letter of this node: `-NOJOB Job is no dead letter here`.
- W12.3 STAT replies rows of cause, reason and count, the greatest first, at most 1000. It counts
  in slices (L2.2).
- W12.4 REPLAY queues the selected jobs in the queue they came from, or in `to`, as new: `failed`
  and `crashes` are 0 and the TTL begins anew. Id, headers and the count of STARTs stay. A leased
  letter is skipped. `to` must not be a tube.
- W12.5 PURGE deletes them. Both look at COUNT letters (1..1000, 1000) and reply the next cursor,
  how many were changed, and how many were seen. They go in slices (L2.2): a letter that changed
  meanwhile is left out.
- W12.6 The cursor is 0 if no later letter is left, also when later ones have gone since.
- W12.7 With RATE n (1..1,000,000) REPLAY queues at most n letters a second, one each 1/n s or
  some each 10 ms; a slice that is late makes up for 50 ms at most. The reply comes when it has
  queued all, and if letters are left for another call, when the next one may follow. If the
  client disconnects or stops sending (it may be half closed), what is not queued yet stays dead.
- W12.8 Another word than a cause: `-ERR CAUSE must be failed, crashed, timeout, expired,
  unstarted or buried, not '<word>'`. An empty `to`: `-ERR QUEUE must name a queue`. Both ALL and
  IDS: `-ERR ALL and IDS exclude each other`. An option or filter that is there twice: `-ERR
  syntax error: <word> is there twice`. A glob of more than 128 characters: `-ERR a pattern has
  at most 128 characters`.
- W12.9 LIST, REPLAY and PURGE look at fewer letters than COUNT when comparing with the globs has
  taken the work of a turn (L2.2); the cursor is then after the last one seen.
- W6.6 Above `dead-max-bytes` of dead letters, bodies included, the oldest ones are deleted and
  counted, at most 500 at once, and the others in the next turns. The newest one stays. A
  letter that alone is larger drops no other and does not count with them; the next such one
  takes its place.
""",
    b"LEASE": """
- Y6.1 ACKJOB, FASTACK, DELJOB and DEADLETTER work as usual; the job leaves its batch.
- Y6.2 ENQUEUE, NACK and DEQUEUE skip the job and do not count it. WORKING: `-NOTDELIVERED Job is
  leased: LEASE TOUCH and LEASE FETCH extend its lease.`
- Y7.1 The lease of a group ends when no OPEN, NEXT, FETCH, COMMIT, TOUCH or NACK arrived for its
  TTL, the one of the last NEXT or TOUCH.
- Y7.2 Then its ALO jobs go back into their queues, even if the input of a queue is paused. They
  count as additional deliveries. The event `requeued` is written with the cause lease.
- Y7.3 An AMO job that was leased is not queued again (promise 2).
- Y7.4 The ids of an expired batch are kept for 10 more TTLs; then the batch ends.
- Y7.5 COMMIT of an expired batch acks its jobs wherever they are by then on this node, because
  they were processed.
- Y7.6 FETCH of an expired batch leases it again. Jobs that are queued here and that no other
  client got since are taken again, which counts as a delivery. The others have left the batch
  (Y3.5).
- Y8.1 (cluster) WORKING with the retry time goes to the other holders of a leased ALO job, so
  that they do not act on it: half a second after the lease began, or at once if retry is at most
  5 s, and then every half of the retry time.
- Y8.2 The reply to a WILLQUEUE about a leased job is DELIVERED with its whole retry time.
- Y8.3 A leaving node begins no batch (`-LEAVING`). Leased jobs stay with it until their lease
  ends.
- Y9.1 The records are lease-group (a group without its batches), lease-batch (ids, and which
  delivery of each job belongs to the batch) and lease-drop. They are absolute (J2.2) and
  binding: replies wait for them as in J4.2.
- Y9.2 The record of a batch is also that of the delivery of its jobs.
- Y9.3 A load restores groups, epochs and batches. A live lease starts a new TTL; its jobs are
  not queued.
- Y9.4 A snapshot has all leases as of the start of its segment.
- Y9.5 A reply that reveals a batch that was made or leased again waits for the sync of its
  record under `always` and `everysec`, as in J4.4, because its number may be in a checkpoint.
- Y9.6 So does the reply of an OPEN that gave a new epoch (Y1.2): after a crash of the machine
  the group has no older one.
- Y9.7 If NACK took a job out of a batch, a record names its position: after a restart the job is
  known as nacked.
- Y9.8 SPLIT and DEFER write one frame with all batches as they are afterwards. The counts of
  BEGIN are not in the journal.
- Y10.2 INFO has a section Leases: groups, batches, jobs in batches under a live lease, and the
  bytes they use (part of used memory); since the start also batches made, jobs leased and
  batches expired.
""",
    b"LEASE OPEN": """
- Y1.1 With the same owner and the same queues the reply is the current epoch of the group; its
  batches stay.
- Y1.2 Otherwise the group gets a new epoch. The old epoch is fenced: its uncommitted batches
  end, and their jobs go back into their queues as in Y7.2. Batch numbers restart at 1.
- Y1.3 Group and owner are any 1 to 255 bytes; a group takes from 1 to 256 queues, each named
  once.
- Y1.4 A node has at most 1000 groups. Beyond that, the group without batches that was unused for
  the longest time, at least an hour, is removed. If there is none, the reply is an error.
- Y1.5 Numbers out of range: `-ERR <name> must be a number from <least> to <most>, not '<word>'`.
  Other words: C4.6.
- Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
  not less than now in ms. A command with an older epoch than the group's gets `-FENCED` with the
  current owner of the group.
- Y1.7 Unknown group, or an epoch later than the group's: `-NOGROUP`.
""",
    b"LEASE NEXT": """
- Y2.1 Up to n jobs are taken from the queues of the group in turn, the oldest first, as in V2.
  Each is delivered (V4) to the batch `seq` under a lease: it is active and has no due time.
- Y2.2 If the batch exists, the reply is the same as the first time, and nothing is taken.
- Y2.3 A new batch must have the number after the last one, else `-NOBATCH`. A committed batch:
  `-ACKED`.
- Y2.4 n is 1 to 1,000,000, b at most 2 GiB (default 64 MiB), p 1 to 1024 (default 1), ms 1000 to
  86,400,000. A group with 16 or more uncommitted batches gets no new one by NEXT; SPLIT may make
  up to 48 (Y11.3), and DEFER one more (Y11.4).
- Y2.5 A batch has at most 100,000 jobs, and bodies of at most b bytes together, but at least one
  job.
- Y2.6 The reply is the number of jobs in the batch. 0 means that no batch was made; its number
  is still free.
- Y2.7 A large batch is taken over several turns (L2.2), and becomes the group's batch when it
  has all its jobs. A NEXT of another connection waits for that. If the lease ends first, its
  jobs go back.
- Y2.8 A queue of the group has become a tube since the group was opened: a new batch is refused
  as in T1.6, also if other queues have jobs. Batches that exist stay, and can be read and
  committed.
""",
    b"LEASE FETCH": """
- Y3.1 The positions of a batch of n jobs are cut into p parts in their order: part x begins at x
  * n / p, rounded down.
- Y3.2 A committed batch: `-ACKED`. A batch that was released, fenced, removed or never made, or
  a part that it does not have: `-NOBATCH`.
- Y3.3 The reply begins with attempts and the number of positions of the part, and ends with the
  position to continue from. Attempts: how often reading of the batch began: it counts the
  FETCHes with FROM 0 of the part that was read most often. Attempts are not in the journal.
- Y3.4 The reply has at most k rows (2000), and bodies of at most b bytes together (8 MiB), but
  at least one row.
- Y3.5 A row is id, queue, body, added (ms), expiry (ms), deliveries including this one, nacks,
  priority (R1.13). A job that left the batch, because it expired, was acked, deleted, put back or
  delivered elsewhere, gives a row of its id and a null: positions stay the same.
- Y3.6 With COLUMNS such jobs are skipped. The reply then has, for the rows: their number, the
  number skipped, ids (40 bytes each), names of queues, indexes into these, ends of the bodies,
  the bodies, added, expiry, deliveries, nacks, priority. Instants have 8 bytes, other numbers 4,
  little-endian, without gaps.
- Y3.7 Reading changes nothing but attempts and the time of the lease (Y7.1).
- Y3.9 One FETCH gives at most 5,000 rows, with COLUMNS 50,000, and ends after 32 MiB of bodies,
  whatever COUNT and BYTES are. The number of the next position says where to continue.
""",
    b"LEASE GONE": """
- Y3.8 `LEASE GONE group epoch seq part` replies with the number of jobs of a part that left the
  batch, by cause: `nacked` (Y5.2), `expired`, `dead` (DEADLETTER), `ended` (acked or deleted by
  id), `cancelled` (W8), `elsewhere` (delivered to others after the lease ended, or unknown). An
  expired batch is first leased again (Y7.6).
""",
    b"LEASE COMMIT": """
- Y4.1 The jobs of all batches up to `seq` that are still in their batch are acked as by ACKJOB,
  in one step. The reply is their number.
- Y4.2 A batch that was committed before: 0. A batch that ended without a commit: `-NOBATCH`, and
  nothing is acked.
""",
    b"LEASE TOUCH": """
- Y5.1 TOUCH restarts the time of the lease (Y7.1); with TTL it also sets a new one. The reply is
  the number of uncommitted batches.
""",
    b"LEASE NACK": """
- Y5.2 NACK puts the named jobs that are in the batch back into their queues, counted as in Q6.1;
  they leave the batch. It takes at most 10,000 ids. The reply is the number of jobs put back.
""",
    b"LEASE RELEASE": """
- Y5.3 RELEASE puts all jobs of all batches back as in Y7.2. The batches end, the epoch stays.
  The reply is the number of jobs put back.
- Y5.4 A group that was released last is unused since ever: where there is no room for another
  one, it goes at once (Y1.4).
""",
    b"LEASE INFO": """
- Y10.1 `LEASE INFO group` replies with names and values: group, owner, epoch, queues, last-seq,
  acked-seq, ttl-ms, left-ms (0 when nothing is leased), batches (of each: number, jobs, bytes of
  bodies, attempts, expired 0 or 1), queued (jobs in its queues now), oldest-ms (age of the
  oldest of them), tubes (those of its queues that have become tubes, Y2.8). `LEASE LIST` replies
  with the names of all groups.
""",
    b"LEASE BEGIN": """
- Y11.1 BEGIN counts how often work on the batch began. The reply has five numbers: that count;
  the jobs that are still in the batch; the number of positions that contain the first half of
  them (0 when there are fewer than two); proof (Y11.2); and the jobs that were in the batch when
  it was begun before, 0 the first time. SPLIT sets that number to the jobs that the batch keeps.
- Y11.2 Proof is 1 if a COMMIT acked jobs since the batch was begun for the first time. It is 2
  if a COMMIT did so before the batch was begun the last time: the batch then failed while other
  batches could be processed. Otherwise it is 0. A COMMIT of a batch that SPLIT left no position
  counts as well: its client has processed jobs of other nodes with it.
""",
    b"LEASE SPLIT": """
- Y11.3 SPLIT leaves the batch its first `keep` positions. The others become the newest batch,
  with the number after the last one. The new batch counts as begun `times` times, and keeps the
  first begin time of the old one. The reply is the number of positions that the old batch has.
  - If the batch has no more than `keep` positions, nothing changes. A group with 48 uncommitted
    batches is not split further.
  - With `keep` 0 the batch keeps its number and no position, for a client whose work includes
    batches of other nodes. FETCH then has no rows.
""",
    b"LEASE DEFER": """
- Y11.4 DEFER lets other jobs go first. If n is above 0 and the group has fewer than 49
  uncommitted batches, the batch's number gets up to n new jobs (Y2.1), and the jobs that it had
  become the newest batch.
  - If there are no such jobs, each later batch moves one number down, and the jobs that the
    batch had get the last of these numbers.
  - The reply is the number of positions that the batch has then.
  - A batch without positions ends when others come before it: it gets no number, so that NEXT
    never replies 0 for a batch that exists.
  - Many new jobs are taken over several turns, as in Y2.7: a NEXT or DEFER of another
    connection waits for that. If the batch or the lease ends first, they go back.
  - While more than 1 MiB of the journal is not written yet, a DEFER waits: it may add much, and
    all replies wait for that.
- Y11.5 An expired batch is first leased again (Y7.6). Moving a job to another batch number is
  not a delivery.
- Y11.6 A query with n attempts makes the last job of its queues a dead letter, if it failed 2 n
  times, at least n of them alone, also if no batch succeeded: nothing could go before it.
""",
    b"STAGE": """
- Z1.1 txn and attempt are any 1 to 255 bytes; a transaction cannot be named ACK. ttl-ms is 1,000
  to 604,800,000.
- Z1.2 Options, their errors, R1.3, R1.4 and R1.13 are as in ADDJOB. DELAY and TTL count from
  PUBLISH on. ASYNC is not an option of STAGE: `-ERR syntax error: STAGE has no option 'ASYNC'`.
- Z1.3 The job is kept in the attempt, after those that were staged there before. It is invisible
  to all other commands. The reply is the number of jobs in the attempt.
- Z1.4 An attempt is dropped if nothing was staged in it for the ttl-ms of its last STAGE.
- Z1.5 A leaving node stages nothing (`-LEAVING`).
- Z1.6 With WITHID the reply is the id that the job will have, unless its key is known then (Z2.6).
""",
    b"PUBLISH": """
- Z2.1 All jobs of the named attempts are added as by ADDJOB, in the order of the named attempts
  and then of their STAGE. version becomes the last one of app. With ACK the batches are
  committed as by LEASE COMMIT. All of this happens, or nothing. The other attempts of txn are
  dropped. The reply is the number of jobs added.
- Z2.2 If version is not above the last one of app, it was published before: the reply is -1, and
  what is staged under txn is dropped.
- Z2.3 An attempt that does not exist: `-NOSTAGE`, and nothing is done. An attempt that is named
  twice counts once. Without attempts version becomes the last one of app, and the reply is 0.
- Z2.4 If LEASE COMMIT of that batch would be refused (Y1.6, Y1.7, Y4.2), the reply is its error,
  and nothing is done. A batch that was committed before does not count as refused.
- Z2.5 If one of the jobs would be refused under R1.6 or R1.7, or because too few nodes are
  expected (K4.4) for its copies, the reply is that error and nothing is done. What is staged
  stays. MAXLEN also counts the preceding jobs of the same PUBLISH.
- Z2.6 A staged job whose key is known (Z4), or is that of a preceding job, is skipped and not
  counted. If the job of the key still waits for copies: `-NOREPL`, and nothing is done.
- Z2.7 A job staged without REPLICATE gets the default of R1.1 as of PUBLISH.
- Z2.8 One PUBLISH has at most 1,000,000 jobs. app is any 1 to 255 bytes, version 0 to 2^62.
- Z2.9 The last version of an app is kept for 30 days after its last use. At most 10,000 apps are
  kept; then a new one is refused.
- Z2.10 PUBLISH is accepted at every memory level, and the node takes its own copy of each job:
  staged jobs already count as used memory.
- Z2.11 A PUBLISH of many jobs takes several turns (L2.2), in three phases:
  - It checks each job (Z2.5, Z2.6) and changes nothing. The command stops if its connection
    closes.
  - One turn publishes everything: version, batches and the record of Z6.2. From then on it is
    final, also after a crash.
  - The next turns acknowledge the jobs of the batches, then queue the new jobs in order. The
    reply comes after the last one.
  - PUBLISH commands run one after another. Meanwhile STAGE into one of its attempts is refused
    (`-ERR attempt '<attempt>' of transaction '<txn>' is being published: ...`), and its attempts
    do not time out.
  - If an ADDJOB brings one of its keys first, the key belongs to that ADDJOB. A key that was
    published replies with the id of its job at once.
- Z3.1 (cluster) Jobs that need copies are in state wait-repl. Each is queued when it has them
  (R3.4); the reply comes when all have them. They are in the journal from Z2.1 on: a restart
  queues them with the copies that they have. Meanwhile a PUBLISH of the same version waits for
  the same event and gets -1.
- Z3.2 Copies are sent while the links have room.
- Z3.3 After 30 s in which no copy could be sent, or if so few nodes are expected (K4.4) that the
  copies are impossible, the jobs are queued with the copies that they have. The reply is then
  `-FEWCOPIES`, and says that all jobs are published. A repeated PUBLISH gets the same reply in
  place of -1.
- Z3.4 A client that disconnects while it waits changes nothing.
- Z5.1 Staged jobs, apps and keys count as used memory (M1), staged jobs as much as what PUBLISH
  makes of them, and a queue once. STAGE is refused from level 1 on (M2.3). They are never evicted.
- Z6.1 Records are staged (one job of an attempt, with its position), staged-work (its id and the
  options about its work), stage-drop, published, key (id and end) and app (version and last use).
  They are absolute (J2.2) and binding (J4.2).
- Z6.2 A PUBLISH is one record for all its jobs: a load makes them again from the staged ones. A
  truncated journal has all of it or nothing. The record of the group is in the same frame; on
  load it acks the jobs that its batches still had.
- Z6.3 A load restores all of it, except what is over.
- Z6.4 A snapshot has staged jobs, versions and keys as of the start of its segment.
- Z6.5 Under `everysec` a crash of the machine may lose the keys and versions of the last second
  together with their jobs (promise 1). A crash of the program loses none. A client that repeats
  such a write adds it again, even if another node still has a copy. Under `always` nothing of
  this is lost: copies leave when key and job are on disk (J4.2).
- Z7.1 INFO has a section Staging: transactions, attempts, jobs and bytes that are staged; apps;
  PUBLISHes done, repeated and waiting for copies; jobs published and dropped since the start;
  keys, their limit and bytes, and how often a key was known.
""",
}
