"""The model of who leads a tube: pulses, votes, candidates (SPEC T24 to T27, decisions/0050).

Each function is what one node does with what it knows, by its own clock. Lists of voters are in
lists.py, leases in leases.py, what happens to nodes and links in walks.py, what must hold in
judge.py. A flaw is a rule that is broken.
"""

from __future__ import annotations

from typing import Final

from spec.model.leases import (
    Cluster,
    answer,
    is_running,
    lose,
    say_surely,
    step_down,
    vouches,
    win,
    write,
)
from spec.model.lists import hear_list, hear_mark, is_known, learn, note_lame, take_family
from spec.model.state import (
    ASKS,
    FAR,
    LEADS,
    NEVER,
    NO_MARK,
    NOBODY,
    NONE,
    Copy,
    Heard,
    Node,
    Pulse,
    View,
    Vote,
    Voted,
    VoterList,
    Word,
)

WANTED: Final = 3  # as many voters a list gets by itself (T28.4)


def pulse(w: Cluster, x: Node) -> None:
    """[T25] Send a pulse to all nodes that this one knows (T25.1), and what goes before it."""
    words = tuple(word_of(w, x, copy) for copy in x.disk.tubes.values())
    is_voter = vouches(w, x, x.disk.list)
    mark = x.safe.mark if x.has_journal else x.disk.mark
    for other in sorted(x.disk.known):
        w.wire.append(
            Pulse(
                x.id,
                other,
                x.disk.list,
                x.disk.id,
                x.clock,
                x.last.get(other, NEVER),
                x.timeout,
                is_voter,
                x.asking and x.disk.right > 0,  # T28.4: without a right it must be added again
                x.is_leaving,
                x.disk.right,
                mark,
                x.disk.marks.get(other, NO_MARK),
                x.disk.known,
                words,
            )
        )


def word_of(w: Cluster, x: Node, copy: Copy) -> Word:
    """What a pulse says of the tube."""
    view = x.view(copy.key)
    epoch, node = copy.vote()
    up = is_up(x, copy, view)
    is_led = up and view.role == LEADS
    if view.turned != (epoch, node, up):
        w.turns += 1
        view.turn, view.turned = w.turns, (epoch, node, up)
    has_led = copy.leader == x.id and copy.copy == copy.led  # T25.6: until another node leads
    if not is_led and not (view.epoch == copy.led or copy.given > 0):
        has_led = False  # T27.5
    safe = x.safe.tubes.get(copy.key)
    got = safe.newest() if safe is not None else (0, 0)
    if not x.has_journal:
        got, safe = copy.newest(), copy
    settled = view.settled if view.settled_by == x.id and view.settled_epoch == epoch else None
    return Word(
        copy.key,
        Copy(copy.key).family if safe is None else safe.family,
        0 if safe is None else safe.hop,
        0 if safe is None else safe.given,
        epoch,
        node,
        up,
        copy.led if has_led else 0,
        is_led,
        view.turn,
        (copy.led, copy.leader),
        copy.log if has_led else (),
        settled,
        got,
    )


def is_up(x: Node, copy: Copy, view: View) -> bool:
    """[T24] Whether this node leads the tube, or asks for votes (T24.2)."""
    epoch, node = copy.vote()
    return node == x.id and view.role != NONE and view.epoch == epoch


def on_pulse(w: Cluster, x: Node, m: Pulse) -> None:
    """[T25] ON RECV TUBE-PULSE: promise, and count the echo (T25.2, T25.3)."""
    learn(x, {m.src, *m.known})
    hear_list(w, x, m.src, m.list)
    for word in m.words:
        on_word(w, x, m, word)
    said = {word.key for word in m.words}
    for key, copy in x.disk.tubes.items():
        if key not in said and copy.vote()[1] == m.src:
            hear_lost(w, x, copy, x.view(key), m, 0)
    x.heard[m.src] = Heard(x.clock, m.list, m.disk, m.vouches, m.asking, m.leaving, m.known)
    is_same = m.list is x.disk.list or w.flaw == "removed_voters_count"
    if not is_same:
        return
    x.last[m.src] = m.said
    x.timeouts[m.src] = m.timeout
    promise(w, x, m.src, m.said)
    hear_mark(w, x, m)
    note_lame(x, m)
    if m.vouches and m.echo >= x.started:
        count_echo(w, x, m.src, m.echo)


def promise(w: Cluster, x: Node, node: int, said: int) -> None:
    """[T25] Vote for nobody else than that node for the timeout (T25.3)."""
    at = said if w.flaw == "promise_from_sent" else x.clock
    x.promised[node] = at + x.timeout


def count_echo(w: Cluster, x: Node, voter: int, said: int) -> None:
    """[T25] The voter echoed what this node said then: its promise counts from then (T25.2)."""
    at = x.clock if w.flaw == "lease_from_echo" else said
    x.echoed[voter] = max(x.echoed.get(voter, NEVER), at)


def on_word(w: Cluster, x: Node, m: Pulse, word: Word) -> None:
    """[T24] The vote of another node; a copy of the leader; what another node has of it."""
    src = m.src
    copy = x.disk.tubes.get(word.key)
    if copy is None:
        if word.led == 0 or not word.log or is_known(x, word.key):
            return  # T17.5: of two tubes of one name each keeps its own
        copy = x.disk.tubes[word.key] = Copy(word.key)
        write(x)
    take_family(x, copy, word.family, word.hop, word.given)
    view = x.view(word.key)
    view.floor = max(view.floor, word.epoch)
    if word.settled is not None and word.is_up and word.node == src:
        view.settled, view.settled_epoch, view.settled_by = word.settled, word.epoch, src
    hear_lost(w, x, copy, view, m, word.epoch)
    hear_leader(x, copy, view, m, word)
    if word.turn > view.turns.get(src, 0):  # T24.2: each change is told once
        view.turns[src] = word.turn
        hear_step_down(w, copy, view, src, word)
    if view.role == LEADS:
        hear_vote(w, x, view, src, word)
    if takes_copies(x, copy):
        take_copy(x, copy, view, word)
    elif word.is_led and (word.led, src) == (copy.led, copy.leader):
        leave_copy(x, copy, view)
    has_led = view.role == LEADS or (copy.leader == x.id and copy.copy == copy.led)
    is_sure = not m.asking or w.flaw == "asker_confirms"
    has_right = m.right == x.disk.list.voters.get(src, 0)  # T28.5
    is_loose = w.flaw in ("confirms_without_right", "lost_disk_confirms")
    is_sure = is_sure and (has_right or is_loose)
    if has_led and word.got[0] == copy.copy and is_sure:
        at = (src, 0 if w.flaw == "lost_disk_confirms" else m.disk)
        view.got[at] = max(view.got.get(at, 0), min(word.got[1], len(copy.log)))
        answer(w, x, copy)


def hear_leader(x: Node, copy: Copy, view: View, m: Pulse, word: Word) -> None:
    """[T24] The newest leader that the sender knows, itself or another node (T17.1, T24.1)."""
    if word.leader[0] <= copy.led:
        return
    if word.is_led:
        view.heard_said = m.said
    copy.led, copy.leader = word.leader
    if view.role != NONE and view.epoch <= copy.led:
        step_down(x, view)
    write(x)


def hear_step_down(w: Cluster, copy: Copy, view: View, src: int, word: Word) -> None:
    """[T25] A node neither leads nor asks for votes where it votes (T25.4)."""
    ended = word.epoch if word.node == src else word.epoch - 1
    is_newer = view.resigned <= ended and not has_stepped_down(copy, view)
    if w.flaw == "resignation_is_replaced":
        is_newer = view.resigned <= ended
    if not word.is_up and (src == copy.vote()[1] or is_newer):
        view.resigned, view.resigned_by = ended, src


def hear_lost(w: Cluster, x: Node, copy: Copy, view: View, m: Pulse, epoch: int) -> None:
    """[T25] The node for which this one votes has lost its disk (T25.4).

    It votes under a lower epoch than that in which this node voted for it, or does not know the
    tube (0). Of a leader that this node has not voted for only the latter counts.
    """
    voted, node = copy.vote()
    if node != m.src or epoch >= voted or m.said <= view.heard_said:
        return
    is_own_vote = (copy.voted, copy.voted_for) == (voted, node)
    if (is_own_vote or epoch == 0) and w.flaw != "lost_candidate_binds":
        view.resigned, view.resigned_by = voted, m.src


def has_stepped_down(copy: Copy, view: View) -> bool:
    """[T25] Whether the node for which this one votes stepped down (T25.4)."""
    epoch, node = copy.vote()
    return view.resigned_by == node and view.resigned >= epoch


def hear_vote(w: Cluster, x: Node, view: View, src: int, word: Word) -> None:
    """[T25] The leader hears for whom another node votes (T25.2, T25.6)."""
    if word.node == x.id and word.epoch == view.epoch:
        view.standing |= 1 << src
        return
    view.standing &= ~(1 << src)
    if word.epoch > view.epoch and w.flaw != "echo_blind":
        step_down(x, view)


def take_copy(x: Node, copy: Copy, view: View, word: Word) -> None:
    """[T18] A follower applies what the leader sends, of no epoch below its vote (T26.2)."""
    if view.role == LEADS or word.led == 0 or word.led < max(copy.led, copy.voted):
        return
    if (word.led, len(word.log)) > copy.newest():
        copy.log, copy.copy = word.log, word.led
        write(x)


def takes_copies(x: Node, copy: Copy) -> bool:
    """[T18] Whether this node has a copy, or gets one (T18.1).

    Where the list can grow, all nodes do.
    """
    voters = x.disk.list
    return x.id in voters.voters or len(voters.voters) < WANTED or copy.family != voters.family


def leave_copy(x: Node, copy: Copy, view: View) -> None:
    """[T18] A node without a vote drops its copy when the leader runs (T18.1)."""
    if view.role == NONE and copy.copy > 0:
        copy.log, copy.copy = (), 0
        write(x)


def on_vote(w: Cluster, x: Node, m: Vote) -> None:
    """[T26] ON RECV TUBE-VOTE: vote, or say why not (T26.1, T26.4)."""
    hear_list(w, x, m.src, m.list)
    said = answer_to(w, x, m)
    if said == "yes" and not m.is_survey:
        vote_for(w, x, m)
    copy = x.disk.tubes.get(m.key)
    at = copy.vote()[0] if copy is not None else 0
    told = Voted(x.id, m.src, x.disk.list, m.key, m.is_survey, m.epoch, said, at, m.said, x.timeout)
    if said == "yes" and not m.is_survey:
        say_surely(w, x, told)
    else:
        w.wire.append(told)


def answer_to(w: Cluster, x: Node, m: Vote) -> str:
    """[T26] Whether this node votes for the sender (T26.1, T26.3), or why not."""
    is_loose = w.flaw == "removed_voters_count"
    voters = x.disk.list
    if m.list is not voters and not is_loose:
        return "other list"
    if (m.src not in voters.voters and not is_loose) or not vouches(w, x, voters):
        return "no voter"
    copy = x.disk.tubes.get(m.key)
    if copy is None:
        if is_known(x, m.key):
            return "unknown"
        copy = Copy(m.key)  # T27.8: votes are about names
    family, hop, given = m.list.family, m.hop, m.given
    if (hop, given or FAR) < (copy.hop, copy.given or FAR):
        family, hop, given = copy.family, copy.hop, copy.given
    if family != voters.family or (given not in (0, voters.number) and w.flaw != "any_number"):
        return "unknown"
    epoch, node = copy.vote()
    if not m.is_survey and not (m.epoch == copy.voted == epoch and node == m.src):
        if m.epoch < epoch or (m.epoch == epoch and w.flaw != "double_vote"):
            return "old epoch"
    if m.newest < copy.newest() and w.flaw != "stale_candidate":
        return "better"
    return "yes" if may_turn(w, x, copy, m.src) else "promised"


def may_turn(w: Cluster, x: Node, copy: Copy, candidate: int) -> bool:
    """[T25] Whether no promise keeps this node from voting for that one (T25.3 to T25.5)."""
    _, node = copy.vote()
    if node == candidate:
        return True
    if x.clock < x.bound and w.flaw != "no_wait_after_start":
        return False
    if node == x.id:
        return not is_running(w, x, copy)
    return is_silent(w, x, copy)


def is_silent(w: Cluster, x: Node, copy: Copy) -> bool:
    """[T27] Whether the node for which this one votes is silent or stepped down (T27.1)."""
    if has_stepped_down(copy, x.view(copy.key)):
        return True
    _, node = copy.vote()
    if node == NOBODY:
        return True
    until = x.promised.get(node, NEVER)
    if w.flaw != "no_wait_after_start":
        until = max(until, x.bound)
    return until <= x.clock


def vote_for(w: Cluster, x: Node, m: Vote) -> None:
    """[T26] Vote for the sender from now on (T26.2)."""
    promise(w, x, m.src, m.said)
    copy = x.disk.tubes.get(m.key)
    if copy is None:
        copy = x.disk.tubes[m.key] = Copy(m.key)
    take_family(x, copy, m.list.family, m.hop, m.given)
    if copy.voted == m.epoch and copy.voted_for == m.src:
        return
    view = x.view(m.key)
    if view.role != NONE:
        step_down(x, view)
    view.surveyed_at = view.silent_at = NEVER
    view.heard_said = m.said
    copy.voted, copy.voted_for = m.epoch, m.src
    write(x)


def may_stand(w: Cluster, x: Node, copy: Copy) -> VoterList | None:
    """[T27] The list under which this node may be a candidate for the tube (T27.1)."""
    voters = x.list_of(copy)
    if voters is None or x.id not in voters.voters or not vouches(w, x, voters):
        return None
    if copy.given not in (0, voters.number) and w.flaw != "any_number":
        return None  # it comes under another list: it is given anew
    return voters


def look(w: Cluster, x: Node, copy: Copy, is_eager: bool = False) -> None:
    """[T27] Stand up for a tube without a leader (T27.1); end what took too long (T27.4)."""
    voters = may_stand(w, x, copy)
    view = x.view(copy.key)
    if view.role == LEADS:
        look_at_lease(w, x, copy, view)
        return
    if voters is None:
        return
    _, node = copy.vote()
    if view.role == ASKS:
        if x.clock >= view.asked_at + x.timeout // 4:
            lose(view)
        return
    if node != x.id and not is_silent(w, x, copy):
        view.silent_at = view.surveyed_at = NEVER
        return
    if x.is_leaving and len(voters.voters) > 1 and w.flaw == "leavers_never_stand":
        return
    if view.silent_at == NEVER:
        view.silent_at, view.waits = x.clock, 0
        view.wait_at = x.clock + place_of(x, voters, copy) * (x.timeout // 8)
        if x.is_leaving:
            view.wait_at += len(voters.voters) * (x.timeout // 8)  # all others go first
        if has_stepped_down(copy, view):
            view.wait_at += x.timeout // 4  # T27.6: it may have named another node
    if view.surveyed_at != NEVER and x.clock >= view.surveyed_at + x.timeout // 8:
        view.surveyed_at = NEVER
        view.waits += 1
        view.wait_at = x.clock + x.timeout // 16
    if is_eager or voters.majority() == 1:
        ask_votes(w, x, copy, view, voters)
    elif view.surveyed_at == NEVER and view.wait_at <= x.clock:
        survey(w, x, copy, view, voters)


def place_of(x: Node, voters: VoterList, copy: Copy) -> int:
    """[T27] The place of this node among those that may stand up, from 0 (T27.2)."""
    lost = copy.vote()[1]
    turn = copy.key[0] + copy.key[1]
    order = sorted(voters.voters, key=lambda node: (node + turn) % 7)
    return [node for node in order if node == x.id or node != lost].index(x.id)


def look_at_lease(w: Cluster, x: Node, copy: Copy, view: View) -> None:
    """[T25] A leader for which too few vote for the timeout steps down (T25.6)."""
    voters = x.list_of(copy)
    if voters is None:
        step_down(x, view)
        return
    votes = sum(1 for v in voters.voters if view.standing >> v & 1 and may_vote(w, x, v))
    if vouches(w, x, voters) and copy.vote() == (view.epoch, x.id):
        votes += 1
    if votes >= voters.majority():
        view.few_at = NEVER
    elif view.few_at == NEVER:
        view.few_at = x.clock
    elif x.clock > view.few_at + x.timeout and not is_running(w, x, copy):
        step_down(x, view)


def may_vote(w: Cluster, x: Node, voter: int) -> bool:
    """[T25] Whether that voter may vote, as its last pulse said (T25.6)."""
    heard = x.heard.get(voter)
    return heard is None or heard.vouches or w.flaw == "lame_votes_count"


def survey(w: Cluster, x: Node, copy: Copy, view: View, voters: VoterList) -> None:
    """[T27] Ask who would vote for this node (T27.2)."""
    view.surveyed_at = x.clock
    view.answered, view.better = 0, False
    epoch = copy.vote()[0] + 1
    for voter in voters.voters:
        if voter != x.id:
            w.wire.append(vote_of(x, copy, voters, voter, True, epoch))


def vote_of(x: Node, copy: Copy, voters: VoterList, to: int, is_survey: bool, epoch: int) -> Vote:
    """The message about the tube."""
    newest = copy.newest()
    return Vote(x.id, to, voters, copy.key, copy.hop, copy.given, is_survey, epoch, newest, x.clock)


def ask_votes(w: Cluster, x: Node, copy: Copy, view: View, voters: VoterList) -> None:
    """[T27] Vote for this node, and ask the others once that is on disk (T27.3)."""
    epoch = max(copy.vote()[0], view.floor) + 1
    if w.flaw != "force_repeats_epoch":
        epoch = max(epoch, voters.epochs)  # T28.8
    copy.voted, copy.voted_for = epoch, x.id
    view.role, view.epoch = ASKS, epoch
    view.asked_at = x.clock
    view.standing = 0
    view.echoed = {}
    view.surveyed_at = NEVER
    write(x)
    if voters.majority() == 1:
        say_surely(w, x, vote_of(x, copy, voters, x.id, False, epoch))  # T27.10
        return
    for voter in voters.voters:
        if voter != x.id:
            say_surely(w, x, vote_of(x, copy, voters, voter, False, epoch))


def on_voted(w: Cluster, x: Node, m: Voted) -> None:
    """[T27] ON RECV TUBE-VOTED: count who votes, or would (T27.2, T27.3)."""
    hear_list(w, x, m.src, m.list)
    copy = x.disk.tubes.get(m.key)
    if copy is None:
        return
    voters = x.list_of(copy)
    is_loose = w.flaw == "removed_voters_count"
    if voters is None or (m.list is not voters and not is_loose) or m.src not in voters.voters:
        return
    view = x.view(m.key)
    view.floor = max(view.floor, m.at)
    if m.is_survey:
        if view.surveyed_at != NEVER and view.role == NONE:
            count_answer(w, x, copy, view, voters, m)
        return
    if view.role != ASKS or view.epoch != m.epoch:
        return
    if m.answer == "yes":
        view.standing |= 1 << m.src
        x.timeouts[m.src] = m.timeout
        if w.flaw == "vote_echoes_all":
            count_echo(w, x, m.src, m.said)
        view.echoed[m.src] = m.said  # for this tube alone: others may have lost the vote
        if (view.standing & ~(1 << x.id)).bit_count() + 1 >= voters.majority():
            win(w, x, copy, view)
    elif m.answer == "old epoch" and m.at >= view.epoch:
        lose(view)


def count_answer(w: Cluster, x: Node, copy: Copy, view: View, voters: VoterList, m: Voted) -> None:
    """[T27] A majority that would vote is asked; a newer copy goes first, twice (T27.2)."""
    if m.answer == "better":
        view.better = True
    elif m.answer == "yes":
        view.answered |= 1 << m.src
    if view.better and view.waits < 2:
        return
    if view.answered.bit_count() + 1 >= voters.majority() and may_stand(w, x, copy) is voters:
        ask_votes(w, x, copy, view, voters)


def create(w: Cluster, x: Node, name: int) -> None:
    """[T27] CREATE is a candidacy with epoch 1, about the name (T27.8)."""
    voters = x.disk.list
    key = (name, voters.birth())
    if any(other[0] == name for other in x.disk.tubes) or not vouches(w, x, voters):
        return
    copy = Copy(key)
    x.disk.tubes[key] = copy
    ask_votes(w, x, copy, x.view(key), voters)
