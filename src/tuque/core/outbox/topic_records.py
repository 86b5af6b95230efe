"""The journal record of a subscription to a topic, encoded and decoded (SPEC T60.6, J2).

Layout, after length and kind, little-endian:

    TOPIC   version i64, node id 40, 1 if it was removed u8, length of topic u8, of queue i32,
            filters u8, topic, queue, of each filter: length of name u8, of pattern u8, both

Version 0: nothing is known of it.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.outbox.records import NODE_ID_BYTES, TOPIC, Records
from tuque.core.state.topics import FILTERS_MAX, QUEUE_MAX, VERSION_MAX, Subscription

TOPIC_FIXED: Final = 55


@final
class TopicRecord:
    """One decoded record."""

    def __init__(self) -> None:
        self.one: Subscription | None = None


def tell_topic(records: Records, one: Subscription) -> None:
    """All of a subscription, or that it was removed."""
    size: i64 = 1 + TOPIC_FIXED + len(one.topic) + len(one.queue)
    for text in one.filters:
        size += 1 + len(text)
    w = records.writer
    write_i32_le(w, i32(size))
    w.append(TOPIC)
    write_i64_le(w, one.version)
    w.write(one.node)
    w.append(1 if one.is_gone else 0)
    w.append(len(one.topic))
    write_i32_le(w, i32(len(one.queue)))
    w.append(len(one.filters) // 2)
    w.write(one.topic)
    w.write(one.queue)
    for i in range(0, len(one.filters), 2):
        w.append(len(one.filters[i]))
        w.append(len(one.filters[i + 1]))
        w.write(one.filters[i])
        w.write(one.filters[i + 1])
    records.count += 1
    records.binding_count += 1


def decode_topic(data: bytes, at: i64, end: i64, r: TopicRecord) -> bool:
    """Decode the rest of a TOPIC; False: it is none."""
    if end - at < TOPIC_FIXED:
        return False
    version = read_i64_le(data, at)
    node = data[at + 8 : at + 8 + NODE_ID_BYTES]
    at += 8 + NODE_ID_BYTES
    is_gone: i64 = data[at]
    topic_size: i64 = data[at + 1]
    queue_size: i64 = i64(read_i32_le(data, at + 2))
    count: i64 = data[at + 6]
    at += 7
    if not 0 <= version <= VERSION_MAX or is_gone > 1 or count > FILTERS_MAX or topic_size < 1:
        return False
    if not 1 <= queue_size <= QUEUE_MAX or topic_size + queue_size > end - at:
        return False
    topic = data[at : at + topic_size]
    queue = data[at + topic_size : at + topic_size + queue_size]
    at += topic_size + queue_size
    filters: list[bytes] = []
    while count > 0:
        if end - at < 2:
            return False
        name_size: i64 = data[at]
        glob_size: i64 = data[at + 1]
        at += 2
        if name_size + glob_size > end - at:
            return False
        filters.append(data[at : at + name_size])
        filters.append(data[at + name_size : at + name_size + glob_size])
        at += name_size + glob_size
        count -= 1
    r.one = Subscription(topic, queue, filters, version, node, is_gone == 1)
    return at == end
