"""nodes.conf: what a node keeps of the cluster across restarts (SPEC K1, S6).

    <id> <host>:<port> <flags> <ping> <pong> <linked> [bus:<port> number:<n>]
    vars life <n> number <n> [lease <ms>] [idkey <64 hex digits>] ...

The first six words are those of CLUSTER NODES. This module knows lines, not files.
"""

from typing import Final, final

from mypy_extensions import i64

ID_CHARS: Final = b"0123456789abcdef"
ID_LENGTH: Final = 40
KEY_DIGITS: Final = 64
FLAGS: Final = [b"myself", b"fail?", b"fail", b"handshake", b"noaddr", b"leaving", b"noflags"]
WORDS: Final = 6
PORT_MAX: Final = 65_535


class BadNodes(Exception):
    """The file does not describe a cluster that this node can join; the text says why."""


@final
class KeptNode:
    """Another node, as in the file."""

    def __init__(self, node_id: bytes) -> None:
        self.node_id = node_id
        self.host = ""
        self.port: i64 = 0
        self.bus_port: i64 = 0
        self.number: i64 = 0


@final
class NodesConf:
    """The whole file."""

    def __init__(self) -> None:
        self.node_id = b""
        self.is_leaving = False
        self.life: i64 = 0  # starts of this node so far
        self.number: i64 = 0
        self.lease_ms: i64 = 0  # how long its promises to leaders last (T25.5); 0: not said
        self.nodes: list[KeptNode] = []
        self.id_keys: list[bytes] = []  # of ids made under former secrets (G6.5)


def parse_nodes_conf(text: bytes) -> NodesConf:
    """Parse nodes.conf. Raises BadNodes with the line and the error."""
    kept = NodesConf()
    number = 0
    for line in text.split(b"\n"):
        number += 1
        words = line.split()
        if len(words) == 0:
            continue
        where = f"line {number}"
        if words[0] == b"vars":
            parse_vars(kept, words, where)
            continue
        if len(words) < WORDS:
            raise BadNodes(f"{where} has {len(words)} words instead of {WORDS}")
        if not is_node_id(words[0]):
            raise BadNodes(f"{where} does not begin with a node id (40 characters 0-9 a-f)")
        flags = words[2].split(b",")
        for flag in flags:
            if flag not in FLAGS:
                raise BadNodes(f"{where} has the unknown flag '{flag.decode('ascii', 'replace')}'")
        if b"myself" in flags:
            if kept.node_id:
                raise BadNodes(f"{where} is the second line with the flag 'myself'")
            kept.node_id = words[0]
            kept.is_leaving = b"leaving" in flags
        elif b"handshake" not in flags:
            kept.nodes.append(parse_other(words, where))
    if not kept.node_id:
        raise BadNodes("no line has the flag 'myself'")
    return kept


def parse_vars(kept: NodesConf, words: list[bytes], where: str) -> None:
    """Parse the line with the numbers."""
    i: i64 = 1
    while i + 1 < len(words):
        if words[i] == b"life":
            kept.life = whole(words[i + 1], where)
        elif words[i] == b"number":
            kept.number = whole(words[i + 1], where)
        elif words[i] == b"lease":
            kept.lease_ms = whole(words[i + 1], where)
        elif words[i] == b"idkey" and len(words[i + 1]) == KEY_DIGITS:
            kept.id_keys.append(key_of(words[i + 1], where))
        i += 2


def parse_other(words: list[bytes], where: str) -> KeptNode:
    """Parse the line of another node."""
    node = KeptNode(words[0])
    host, _, port = words[1].rpartition(b":")
    node.host = host.strip(b"[]").decode("ascii", "replace")
    node.port = port_of(port, where)
    node.bus_port = node.port + 10_000 if node.port + 10_000 <= PORT_MAX else 0
    for word in words[WORDS:]:
        name, _, value = word.partition(b":")
        if name == b"bus":
            node.bus_port = port_of(value, where)
        elif name == b"number":
            node.number = whole(value, where)
    return node


def port_of(word: bytes, where: str) -> i64:
    """A port, or 0 for none. Raises BadNodes."""
    port = whole(word, where)
    if port > PORT_MAX:
        raise BadNodes(f"{where}: {port} is no port")
    return port


def key_of(word: bytes, where: str) -> bytes:
    """A key of ids. Raises BadNodes."""
    if len(word.strip(ID_CHARS)) > 0:
        raise BadNodes(f"{where}: an idkey has {KEY_DIGITS} digits 0-9 a-f")
    return bytes.fromhex(word.decode())


def whole(word: bytes, where: str) -> i64:
    """A number of at most 18 digits. Raises BadNodes."""
    if not word.isdigit() or len(word) > 18:
        raise BadNodes(f"{where}: '{word.decode('ascii', 'replace')}' is no number")
    return int(word)


def is_node_id(word: bytes) -> bool:
    """Whether the word is 40 lower-case hex characters."""
    return len(word) == ID_LENGTH and len(word.strip(ID_CHARS)) == 0
