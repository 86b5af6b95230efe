"""TLS at startup: the certificate and the ports, before any client is served (SPEC X1)."""

from __future__ import annotations

import socket
from typing import Final, cast

from tuque.logtext import facts
from tuque.server.bus.shaking import Shaking
from tuque.server.figures.handshakes import Handshakes
from tuque.server.loop.pump import Pump
from tuque.server.sockets.listen import name_of, open_tls_listeners
from tuque.server.state.state import Server, log
from tuque.server.tls.keys import Keys
from tuque.server.tls.porch import Porch

BATCH: Final = 64  # connections that become clients in one turn


def uses_tls(s: Server) -> bool:
    """Whether any port speaks TLS."""
    cfg = s.cfg
    if cfg.tls_cluster and s.bus is not None:
        return True
    return cfg.tls_port > 0 or cfg.iproto_tls_port > 0 or (cfg.metrics_port > 0 and cfg.metrics_tls)


def open_keys(pump: Pump) -> Keys | None:
    """[X1] Read the certificate, if a port or the bus speaks TLS (B1.8). ConfigError."""
    s = pump.s
    if not uses_tls(s):
        return None
    keys = Keys(s.cfg)
    s.handshakes = Handshakes(keys.told)
    bus = s.bus
    if bus is not None and s.cfg.tls_cluster:
        bus.shaking = shaking = Shaking(keys.bus_context, keys.count)
        pump.watch_bell(shaking.bell.fd, bus.on_shaken)
        shaking.start()
    return keys


def open_porch(pump: Pump, keys: Keys | None) -> Porch | None:
    """[X1] Listen on the clients' ports of TLS, if there are any (X1.1). ListenError."""
    s = pump.s
    listeners = [] if keys is None else open_tls_listeners(s.cfg)
    if keys is None or s.handshakes is None or not listeners:
        return None
    porch = Porch(keys, s.handshakes)
    for sock, is_iproto in listeners:
        porch.listen(sock, is_iproto)

    def on_arrivals() -> None:
        """In the loop: take those in whose handshakes are over."""
        porch.bell.quiet()
        for _ in range(min(BATCH, len(porch.arrived))):
            stream, address, is_iproto = porch.arrived.popleft()
            # it has all that a connection asks of its socket
            sock = cast(socket.socket, stream)
            pump.welcome(sock, address, is_iproto, stream.user().encode(), stream.has_early)
        if porch.arrived:
            porch.bell.ring()

    pump.watch_bell(porch.bell.fd, on_arrivals)
    porch.start()
    log.info(
        "TLS on %(addresses)s",
        facts("tls_listening", addresses=", ".join([name_of(sock) for sock, _ in listeners])),
    )
    return porch
