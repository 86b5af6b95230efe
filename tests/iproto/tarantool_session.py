"""A session of the `tarantool` client, run as a program: `tarantool_session.py PORT`.

It stands alone, so that any version of the client can be put before it on the path. It prints the
client's version and what was answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tarantool


def error_of(call: Any, *args: Any) -> list[Any]:
    """Code and text of the error that the call must raise."""
    try:
        call(*args)
    except tarantool.error.DatabaseError as error:
        return [error.args[0], error.args[1]]
    return ["no error", ""]


def login_error(port: int, user: str, password: str) -> str:
    """What is said to one who may not log in; empty when he may."""
    try:
        tarantool.connect("127.0.0.1", port, user=user, password=password).close()
    except tarantool.error.Error as error:
        return str(error)
    return ""


def session(port: int) -> dict[str, Any]:
    """Everything that a producer and a worker do, over real connections."""
    conn = tarantool.connect("127.0.0.1", port, user="admin", password="sesame")
    said: dict[str, Any] = {"version": tarantool.__version__}

    def call(name: str, *args: Any) -> Any:
        return list(conn.call(name, args).data)

    said["ping"] = conn.ping() > 0
    said["create"] = call("queue.create_tube", "t", "utubettl", {"if_not_exists": True})
    said["put"] = call("queue.tube.t:put", {"a": 1}, {"pri": 1, "ttl": 60, "utube": "x"})
    said["put_scalar"] = list(conn.call("queue.tube.t:put", "плоский").data)
    said["take"] = call("queue.tube.t:take", 0.5)
    said["take_more"] = call("queue.tube.t:take", 0.5)
    said["take_none"] = call("queue.tube.t:take", 0.01)
    said["touch"] = call("queue.tube.t:touch", 0, 30)
    said["release"] = call("queue.tube.t:release", 0, {"delay": 60})
    said["bury"] = call("queue.tube.t:bury", 0)
    said["kick"] = call("queue.tube.t:kick", 10)
    said["peek"] = call("queue.tube.t:peek", 0)
    said["ack"] = call("queue.tube.t:ack", 1)
    said["not_taken"] = error_of(call, "queue.tube.t:ack", 1)
    said["not_found"] = error_of(call, "queue.tube.t:peek", 9)
    said["no_tube"] = error_of(call, "queue.tube.none:put", 1)
    said["tasks"] = call("queue.statistics", "t")[0]["tasks"]
    said["tubes"] = call("queue.tube")
    said["state"] = call("queue.state")
    text = "local name, type, opts = ...; queue.create_tube(name, type, opts)"
    said["eval_create"] = list(conn.eval(text, ("e", "fifo", {"temporary": True})).data)
    exists = "local name = ...; return queue.tube[name] ~= nil"
    said["eval_exists"] = list(conn.eval(exists, ("e",)).data)
    said["space"] = schema_error(conn)
    conn.close()
    said["identify"] = identify(port)
    said["wrong_password"] = login_error(port, "admin", "sesam")
    said["wrong_user"] = login_error(port, "nobody", "sesame")
    guest = tarantool.connect("127.0.0.1", port)
    said["guest"] = error_of(guest.call, "queue.tube.t:take", (0,))
    guest.close()
    return said


def schema_error(conn: Any) -> str:
    """The client's own error for a space that the empty schema has not."""
    try:
        conn.select("anything")
    except tarantool.error.SchemaError:
        return "SchemaError"
    return "none"


def identify(port: int) -> list[Any]:
    """Two connections in one session: the second one acks the task of the first one."""
    asked = {"user": "admin", "password": "sesame", "encoding": None}
    one = tarantool.connect("127.0.0.1", port, **asked)
    (uuid,) = one.call("queue.identify", ()).data
    one.call("queue.tube.e:put", (b"bytes",))
    one.call("queue.tube.e:take", (0,))
    two = tarantool.connect("127.0.0.1", port, **asked)
    same = two.call("queue.identify", (uuid,)).data[0] == uuid
    one.close()
    number, status, data = two.call("queue.tube.e:ack", (0,)).data[0]
    two.close()
    return [len(uuid), same, number, status.decode(), data.decode()]


if __name__ == "__main__":
    print(json.dumps(session(int(sys.argv[1]))))
