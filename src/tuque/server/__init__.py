"""The shell: sockets, threads and files around the core. One process, one loop (`loop/pump.py`).

Must not know: what a job may do; how users see it (console, web).
"""

import tuque

__version__ = "0.4.0"  # tools/release.py sets it, here and in tuque

# pip can leave an old node beside a new client: first of all, before anything is missing.
if tuque.__version__ != __version__:
    raise ImportError(
        f"tuque {tuque.__version__} and tuque-node {__version__} do not fit: "
        "pip install -U 'tuque[server]'",
        name=__name__,
    )
