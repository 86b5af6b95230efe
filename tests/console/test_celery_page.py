"""The first part of docs/from-celery.md, typed as it is."""

from __future__ import annotations

import pytest
from newcomer import Page, Tour, blocks

pytest.importorskip("celery", reason="celery is not installed: make setup-dev")


@pytest.mark.slow
def test_the_url_alone_is_changed(tour: Tour) -> None:
    tour.log.touch()
    page = Page("from-celery", tour, lambda text: text.replace("7711", tour.port))
    assert len(blocks(page.name, part="Change the URL")) == 6
    page.type_all("Change the URL")
    codes = [tour.stop(process) for process in reversed(tour.running)]
    assert codes == [1, 0]  # at Ctrl+C the worker of Celery ends with 1
