"""The text of each code in tubes/model/errors.py, for RESP and for IPROTO.

RESP clients get a first word before the text (T15.5), IPROTO clients a number beside it (T13).
"""

from typing import Final

from tuque.tubes.model import errors as why
from tuque.tubes.model.errors import TubeError
from tuque.wire.proto.iproto import (
    E_NO_ROLE,
    E_NO_USER,
    E_PROC,
    E_READ_ONLY,
    IprotoError,
)

LEAVING_TEXT: Final = b"This node is leaving the cluster, please connect to a different one"
LEAVING: Final = b"LEAVING " + LEAVING_TEXT
CONFLICT_TEXT: Final = (
    b"another node has the id of this one: stop one of the two, move its nodes.conf and its "
    b"journal away, and start it again"
)
CONFLICT: Final = b"CONFLICT " + CONFLICT_TEXT
PAUSED_TEXT: Final = b"Queue paused in input, try later"
NOREPL_TEXT: Final = b"Not enough reachable nodes for the requested replication level"
READ_ONLY: Final = b"Can't modify data because this instance is in read-only mode"

TEXTS: Final[dict[int, bytes]] = {
    why.NOT_TAKEN: b"Task was not taken",
    why.NOT_FOUND: b"Task %d not found",
    why.NO_TOUCH: b"%s queue does not support touch",
    why.CONSUMERS: b"There are consumers connected the tube",
    why.TAKEN_TASKS: b"There are taken tasks in the tube",
    why.NO_TUBE: b"Tube not found",
    why.UNKNOWN_TYPE: b"Unknown tube type %s",
    why.EXISTS: b"Space '%s' already exists",
    why.TUBES_MAX: b"%d tubes exist, and tubes-max is %d: drop unused tubes",
    why.MANY_GRANTS: b"there are %d grants, the most a node keeps: revoke some, or use roles",
    why.OTHER_TYPE: b"Tube '%s' exists with the type %s",
    why.TEMPORARY: b"Cannot create temporary tube in replicaset mode",
    why.NO_VINYL: b"limfifottl queue does not support vinyl engine",
    why.NO_VINYL_BUFFER: b'"ready_buffer" storage mode cannot be used with vinyl engine',
    why.NO_ENGINE: b"Space engine '%s' does not exist",
    why.BAD_UUID: b"Invalid UUID format.",
    why.UNKNOWN_UUID: b"The UUID %s is unknown.",
    why.BAD_TTR: b"Invalid value of ttr: %d",
    why.OVERRIDING: b'overriding registered driver "%s"',
    why.NO_DRIVER: b"no package of this server has a driver named '%s'",
    why.NO_DRIVER_CLASS: b"the driver '%s' makes no tuque.tubes.driver.Driver",
    why.EMPTY_NAME: b"Invalid identifier '' (expected printable symbols only or it is too long)",
    why.LONG_NAME: b"Failed to create space '%s': space name is too long",
    why.LONG_OPTION: b"Options of tubes are at most 255 bytes",
    why.DOTTED: b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon",
    why.PAUSED: PAUSED_TEXT,
    why.MOVED: b"Tube '%s' has its home there",
    why.NO_QUORUM: b"Tube '%s': this node reaches %d of %d nodes",
    why.NOT_YET: b"Tube '%s' is %s here: try again soon",
    why.STOOD: (
        b"Tube '%s': this node stood still for %d ms and waits for a reply of the others; "
        b"if they are lost for good, run here: TUBE HOME '%s' %s FORCE"
    ),
    why.STOOD_MEANWHILE: b"this node stood still meanwhile: nothing was done, try again",
    why.LOST: (
        b"Tube '%s' was led here, and this node has lost it: TUBE HOME '%s' <node> FORCE "
        b"makes another replica the leader"
    ),
    why.NODE_READ_ONLY: b"This node is read-only: CONFIG SET read-only no, or use another node",
    why.NOREPL: NOREPL_TEXT,
    why.TEMPORARY_SYNC: b"a temporary tube has no copies: SYNC must be 1",
    why.BAD_SYNC: b"SYNC must be from 1 to the number of nodes, which is %d",
    why.NO_NODE: b"no node of the cluster has that name, or it is not reachable",
    why.NO_HOME_THERE: (
        b"that node cannot lead the tube: it is read-only, is leaving, or has another tube of "
        b"that name"
    ),
    why.NO_TYPE_THERE: (
        b"node %s lacks the type '%s' of tube '%s', which stays: install its package there "
        b"and run there TUBE REGISTERDRIVER '%s', or choose another node"
    ),
    why.FAILED_THERE: (
        b"on node %s the driver of type '%s' of tube '%s', which stays, has failed: INFO of "
        b"the tube says why there; fix it and restart that node, or choose another node"
    ),
    why.BY_VOTE: (
        b"votes choose the leader of tube '%s': FORCE is for a tube of which no voter has all, "
        b"once a majority of the voters has been here for %d s and has chosen none"
    ),
    why.OTHER_VOTERS: b"the voters of another list choose the leader of tube '%s'",
    why.NO_VOTES_YET: (
        b"no majority has voted for this node yet: it goes on asking, see TUBE HOME %s"
    ),
    why.NO_VOTERS: (
        b"votes choose the leader only where a list of voters is in force, which three nodes or "
        b"more make, and never that of a temporary tube"
    ),
    why.NO_LIST: b"there is no list of voters: three nodes or more with tube-failover yes make one",
    why.NO_VOTE_HERE: b"this node does not vote: use a voter, CLUSTER VOTERS shows them",
    why.LIST_CHANGING: b"the list of voters is changing already, see CLUSTER VOTERS",
    why.CANNOT_VOTE: b"node %s cannot vote: it is not linked here, or does not know the list",
    why.JOURNAL_IS_OFF: (
        b"node %s has no journal, so its votes would not last: run CONFIG SET appendonly yes on it "
        b"first"
    ),
    why.JOURNAL_FAILS: (
        b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
        b"again by itself once its disk has room"
    ),
    why.OWN_JOURNAL: (
        b"the journal of this node cannot be written, so that other nodes may not get its "
        b"messages: see journal_error in INFO; try again when it works"
    ),
    why.IS_NO_VOTER: b"node %s is no voter",
    why.LAST_VOTER: b"that is the last voter",
    why.UNSETTLED: b"the list stays: no majority has all of tube '%s' under the present one yet",
    why.LIST_LATE: b"a majority of the voters did not answer in time: see CLUSTER VOTERS",
    why.NAME_THIS_NODE: b"name this node too: the voters must be here",
    why.MAJORITY_HERE: b"a majority of the voters is here: use CLUSTER VOTERS REMOVE and ADD",
    why.NAME_ALL_HERE: b"node %s is here and can vote: name it too",
    why.NO_MAJORITY_HERE: (
        b"%d of %d voters are here and can vote, which is no majority: see CLUSTER VOTERS; if the "
        b"others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    why.NO_MAJORITY_LEFT: (
        b"without node %s too few of the voters left are here and can vote: see CLUSTER VOTERS; "
        b"if others are lost for good, use CLUSTER VOTERS FORCE"
    ),
    why.NO_SCHEDULES: b"tube '%s' has no schedules: they need a tube of type tasks that stays",
    why.NO_SCHEDULE: b"tube '%s' has no schedule '%s'",
    why.MANY_SCHEDULES: b"tube '%s' has %d schedules, the most that a tube keeps",
    why.IS_SCHEDULE: b"task %d is a schedule: use SCHEDULE PAUSE",
    why.NO_LIMITS: b"'%s' has no limits: they need a tube of type tasks",
    why.NO_GROUPS: b"tube '%s' has no groups: they need a tube of type tasks that stays",
    why.NO_GROUP: b"tube '%s' has no group '%s'",
    why.MANY_GROUPS_OF_JOBS: b"tube '%s' has %d groups, the most that a tube keeps",
    why.BAD_INDEX: b"the children of group '%s' have the indexes 0 to %d",
    why.IS_MEMBER: b"task %d belongs to a group: use GROUP CANCEL",
    why.IS_KEY: b"task %d keeps a UNIQUE key: delete it to free the key",
    why.NO_CAPACITY: (
        b"tube '%s': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses what is "
        b"too much"
    ),
    why.MOVING: b"the leader of tube '%s' is changing already",
    why.MOVE_BROKEN: b"the link to the new leader broke: tube '%s' stays",
    why.MOVE_SLOW: b"the new leader did not get all of tube '%s' within %d s: it stays",
    why.MOVE_UNSURE: b"tube '%s' was handed to its new leader, which has not replied yet",
    why.MOVE_ENDED: b"the leader of tube '%s' changed meanwhile",
    why.HOME_ALIVE: b"the leader of tube '%s' is reachable: run TUBE HOME on it",
    why.FEW_NODES: b"this node reaches %d of %d nodes, and needs more than half of them",
    why.LATER_COPY: b"node %s has a later copy of tube '%s'",
    why.NOT_LOADED: b"the %s '%s' cannot be loaded: %s",
    why.LATE: b"done here, but not yet on %d nodes: do not repeat it",
    why.LEAVING: LEAVING_TEXT,
    why.NO_CALLBACK: b"this server has no callback named '%s'",
    why.NO_USER: b"User '%s' is not found",
    why.NO_ROLE: b"Role '%s' is not found",
    why.NO_RETRY_0: b"'%s' is a tube: its tasks come back, RETRY is 1 or more",
    why.NO_COPIES: b"'%s' is a tube: SYNC says which copies count, REPLICATE is 1",
    why.NO_OPTION: b"'%s' is a tube of type %s: it has no %s",
}

# [T13.3] texts for RESP where the module's words mean nothing to its clients
OF_RESP: Final[dict[int, bytes]] = {
    why.EXISTS: (
        b"a tube or a queue '%s' already exists: choose another name, "
        b"or first drop the tube or end the jobs of the queue"
    ),
    why.NO_ENGINE: b"ENGINE must be memtx or vinyl, which mean the same here, not '%s'",
    why.EMPTY_NAME: b"the name of a tube has 1 to 512 bytes",
    why.LONG_NAME: b"the name of a tube has 1 to 512 bytes, '%s' is too long",
}

# [T15.5] first words other than ERR
FIRST: Final[dict[int, bytes]] = {
    why.NOT_TAKEN: b"NOTTAKEN",
    why.NOT_FOUND: b"NOTASK",
    why.NO_TUBE: b"NOTUBE",
    why.NO_SCHEDULES: b"NOTUBE",
    why.NO_LIMITS: b"NOTUBE",
    why.NO_SCHEDULE: b"NOSCHEDULE",
    why.IS_SCHEDULE: b"WRONGTUBE",
    why.NO_GROUPS: b"NOTUBE",
    why.NO_GROUP: b"NOJOBGROUP",
    why.IS_MEMBER: b"WRONGTUBE",
    why.IS_KEY: b"WRONGTUBE",
    why.NO_TOUCH: b"WRONGTUBE",
    why.OTHER_TYPE: b"WRONGTUBE",
    why.PAUSED: b"PAUSED",
    why.NOREPL: b"NOREPL",
    why.LATE: b"FEWCOPIES",
    why.LEAVING: b"LEAVING",
    why.NODE_READ_ONLY: b"READONLY",
    why.NO_QUORUM: b"NOQUORUM",
    why.NOT_YET: b"NOQUORUM",
    why.STOOD: b"NOQUORUM",
    why.LOST: b"NOQUORUM",
}

# [T13] numbers other than E_PROC
NUMBERS: Final[dict[int, int]] = {
    why.EMPTY_NAME: 70,
    why.LONG_NAME: 9,
    why.NO_ENGINE: 57,
    why.MOVED: E_READ_ONLY,
    why.NOREPL: E_READ_ONLY,
    why.LATE: E_READ_ONLY,
    why.LEAVING: E_READ_ONLY,
    why.NO_USER: E_NO_USER,
    why.NO_ROLE: E_NO_ROLE,
}
IS_READ_ONLY: Final = [b"READONLY", b"NOQUORUM"]  # READ_ONLY over IPROTO (T17.4, T19.5)


def text_of(error: TubeError) -> bytes:
    """The text for IPROTO, and for RESP unless that has its own."""
    text: bytes = TEXTS[int(error.code)] % error.about
    return text


def resp_words(error: TubeError) -> bytes:
    """[T15.5] The refusal with the first word for RESP clients."""
    text = OF_RESP.get(int(error.code))
    said = text_of(error) if text is None else text % error.about
    return b"%s %s" % (FIRST.get(int(error.code), b"ERR"), said)


def iproto_words(error: TubeError) -> IprotoError:
    """[T13] The refusal for IPROTO: a number, and a text without a first word (T17.4)."""
    if FIRST.get(int(error.code)) in IS_READ_ONLY:
        return IprotoError(E_READ_ONLY, b"%s: %s" % (READ_ONLY, text_of(error)))
    return IprotoError(NUMBERS.get(int(error.code), E_PROC), text_of(error))
