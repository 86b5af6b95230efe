"""The jobs of a shop."""

from tuque.worker import App, current_job

jobs = App()  # the broker of TUQUE_URL, else tuque://127.0.0.1:7711


@jobs.task(queue="invoices", attempts=3)
def make_invoice(order: int, total: int) -> str:
    """Writes the invoice of an order; returns its file."""
    current_job().progress({"page": 1, "of": 2})
    return f"invoice-{order}-{total}.pdf"
