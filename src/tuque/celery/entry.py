"""What kombu loads by itself, in each program that has it: the schemes `tuque` and `tuques`.

kombu has no entry points for transports, but loads those for serializers when it is imported.
"""

from __future__ import annotations

from typing import Final

TRANSPORT: Final = "tuque.celery.transport:Transport"
SCHEMES: Final = ("tuque", "tuques")


def add_aliases() -> None:
    """Lets kombu find the transport by the scheme of a URL; nothing without kombu."""
    try:
        from kombu.transport import TRANSPORT_ALIASES
    except ImportError:
        return
    for scheme in SCHEMES:
        TRANSPORT_ALIASES.setdefault(scheme, TRANSPORT)


def _dumps(value: object) -> str:
    from kombu.utils.json import dumps

    found: str = dumps(value)
    return found


def _loads(text: str | bytes) -> object:
    from kombu.utils.json import loads

    found: object = loads(text)
    return found


add_aliases()

# An entry point has to be a serializer: kombu's JSON under a name that nobody else has.
SERIALIZER: Final = (_dumps, _loads, "application/x-tuque-json", "utf-8")
