"""What a type checker must refuse: the lines that end in "# E: code", and no others."""

from __future__ import annotations

from tuque import Client, aio


def threads(client: Client) -> None:
    client.addjob("q")  # E: call-arg
    client.addjob("q", 5)  # E: arg-type
    client.addjob("q", "b", delay="soon")  # E: arg-type
    client.addjob("q", "b", priority=1)  # E: call-arg
    client.addjob("q", "b", 100)  # E: call-arg
    client.ackjob(1)  # E: arg-type
    client.pause("q", "sideways")  # E: arg-type
    client.jscan(states=["lost"])  # E: list-item
    client.getjob("q")[0].body.encode()  # E: attr-defined
    Client(timeout="5")  # E: arg-type
    with client.pipeline() as pipe:
        pipe.addjob("q")  # E: call-arg


async def tasks(client: aio.Client) -> None:
    client.addjob("q", "b")  # E: unused-coroutine
    await client.addjob("q", 5)  # E: arg-type
    for name in client.qscan():  # E: attr-defined
        print(name)
