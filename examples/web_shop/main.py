"""The web application of the shop: orders get invoices, and customers see theirs."""

from typing import Annotated

from fastapi import FastAPI, Header, Request
from jobs import jobs, make_invoice
from starlette.routing import Router

from tuque import web_jobs
from tuque.errors import Unavailable

web = FastAPI(lifespan=jobs.lifespan_web())
web.add_exception_handler(Unavailable, web_jobs.away)
owners: dict[str, str] = {}  # of jobs; in your database


@web.post("/orders/{order}/invoice", status_code=202)
async def order_invoice(order: int, total: int, user: Annotated[str, Header()]) -> dict[str, str]:
    """Adds the job; its id is for the customer's browser."""
    handle = await make_invoice.enqueue_async(order, total)
    owners[handle] = user
    return {"job": handle}


def may_see(request: Request, id: str) -> bool:
    """Whether the job is one of the user who asks."""
    return owners.get(id) == request.headers.get("user")


web.mount("/jobs", Router(web_jobs.routes(jobs, allow=may_see)))
