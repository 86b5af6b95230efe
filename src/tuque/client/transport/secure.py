"""TLS of the client's end; `ssl` is loaded by those who use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuque.client.url import Settings
from tuque.errors import ConfigError

if TYPE_CHECKING:
    import ssl


def context_of(settings: Settings) -> ssl.SSLContext:
    """What checks the nodes' certificates, and shows the client's. ConfigError names the file."""
    import ssl

    what = f"cafile={settings.cafile}"
    try:
        context = ssl.create_default_context(cafile=settings.cafile or None)
        if settings.certfile:
            what = f"certfile={settings.certfile}, keyfile={settings.keyfile}"
            context.load_cert_chain(settings.certfile, settings.keyfile or None, password=_refuse)
    except ssl.SSLError as err:
        raise ConfigError(f"{what}: not used, {err.reason or 'not PEM'}") from None
    except OSError as err:
        raise ConfigError(f"{what}: {err.strerror}") from None
    return context


def _refuse() -> str:
    """OpenSSL would ask for the passphrase on the terminal."""
    raise ConfigError("keyfile has a passphrase: take a key without one")
