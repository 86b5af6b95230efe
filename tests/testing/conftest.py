"""The fixtures of the plugin, whether it is installed as one or not."""

from collections.abc import Iterator

import pytest
import shop

from tuque.testing.plugin import tuque_app, tuque_cluster, tuque_seed, tuque_server

__all__ = ["tuque_app", "tuque_cluster", "tuque_seed", "tuque_server"]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    shop.smtp.up()
    shop.smtp.sent.clear()
    shop.did.clear()
    shop.is_closed[0] = False
    yield
