"""Host names of nodes to dial, while they are resolved in a thread (SPEC K3)."""

from typing import final

from tuque.server.sockets.resolver import Resolver


@final
class Lookups:
    """Who waits for which name."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.waiting: list[tuple[str, int]] = []  # host and port to dial once resolved

    def ask(self, host: str, port: int) -> None:
        """Resolve the name; `take` has the result, once it is there."""
        self.waiting.append((host, port))
        self.resolver.ask(host)

    def take(self) -> list[tuple[str, int, str, str]]:
        """Host, port, address and error of each that is resolved; one of the last two is empty."""
        found: list[tuple[str, int, str, str]] = []
        for answer in self.resolver.take():
            waiting = self.waiting
            self.waiting = []
            for host, port in waiting:
                if host == answer.host:
                    found.append((host, port, answer.address, answer.error))
                else:
                    self.waiting.append((host, port))
        return found
