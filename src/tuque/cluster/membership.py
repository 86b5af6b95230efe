"""Who belongs to the cluster, and the lines that say so (SPEC S6, K1).

A cluster of one so far: this node, its id and whether it is leaving. Decides what a
line of CLUSTER NODES and of nodes.conf looks like and which lines are valid; it must
not know files (server/identity.py) nor who asks.
"""

from typing import Final, final

ID_CHARS: Final = b"0123456789abcdef"
ID_LENGTH: Final = 40
LINE_WORDS: Final = 6
FLAGS: Final = [b"myself", b"fail?", b"fail", b"handshake", b"noaddr", b"leaving", b"noflags"]

PRIORITY_UP: Final = 1
PRIORITY_LEAVING: Final = 100


class BadNodes(Exception):
    """The lines describe no cluster that this node can be part of; the text says why."""


@final
class Membership:
    """This node as the cluster sees it."""

    def __init__(self, node_id: bytes) -> None:
        self.node_id = node_id
        self.is_leaving = False

    def line(self, port: int) -> bytes:
        """The node's line in CLUSTER NODES; its address is not known to itself."""
        flags = b"myself,leaving" if self.is_leaving else b"myself"
        return b"%s :%d %s 0 0 connected\n" % (self.node_id, port, flags)

    def priority(self) -> int:
        """How much HELLO advises a client against this node."""
        return PRIORITY_LEAVING if self.is_leaving else PRIORITY_UP


def parse_nodes(text: bytes) -> Membership:
    """Read nodes.conf. Raises BadNodes for anything but one line about this node."""
    found: Membership | None = None
    for number, line in enumerate(text.split(b"\n")):
        words = line.split()
        if len(words) == 0 or words[0] == b"vars":
            continue
        where = f"line {number + 1}"
        if len(words) != LINE_WORDS:
            raise BadNodes(f"{where} has {len(words)} words instead of {LINE_WORDS}")
        if not is_node_id(words[0]):
            raise BadNodes(f"{where} does not begin with a node id (40 characters 0-9 a-f)")
        flags = words[2].split(b",")
        for flag in flags:
            if flag not in FLAGS:
                raise BadNodes(f"{where} has the unknown flag '{flag.decode('ascii', 'replace')}'")
        if b"myself" not in flags:
            raise BadNodes(f"{where} names another node, and this is a cluster of one: remove it")
        if found is not None:
            raise BadNodes(f"{where} is the second one with the flag 'myself'")
        found = Membership(words[0])
        found.is_leaving = b"leaving" in flags
    if found is None:
        raise BadNodes("there is no line with the flag 'myself'")
    return found


def is_node_id(word: bytes) -> bool:
    """Whether the word is 40 lower-case hex characters."""
    if len(word) != ID_LENGTH:
        return False
    i = 0
    while i < ID_LENGTH:
        if word[i] not in ID_CHARS:
            return False
        i += 1
    return True
