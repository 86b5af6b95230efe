"""The shop without a broker, a worker and a web server."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from jobs import make_invoice
from main import web

from tuque.testing import TestApp

ANN = {"user": "ann"}


@pytest.fixture
def browser(tuque_app: TestApp) -> Iterator[TestClient]:
    with TestClient(web, headers=ANN) as client:
        yield client


def test_an_order_gets_its_invoice(browser: TestClient, tuque_app: TestApp) -> None:
    job = browser.post("/orders/7/invoice?total=30").json()["job"]
    tuque_app.assert_enqueued(make_invoice, 7, 30)
    assert browser.get(f"/jobs/{job}").json()["state"] == "waiting"
    tuque_app.run_until_idle()
    assert browser.get(f"/jobs/{job}").json()["result"] == "invoice-7-30.pdf"
    assert '"state":"done"' in browser.get(f"/jobs/{job}/events").text


def test_others_do_not_see_it(browser: TestClient, tuque_app: TestApp) -> None:
    job = browser.post("/orders/7/invoice?total=30").json()["job"]
    assert browser.get(f"/jobs/{job}", headers={"user": "bob"}).status_code == 403
