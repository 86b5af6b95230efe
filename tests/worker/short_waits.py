"""For apps of the tests: a worker that imports this waits a tenth of a second for a job.

An idle worker stops, and a burst ends, when its last wait is over.
"""

from tuque.worker.run import fetch

vars(fetch)["POLL_MS"] = 100
