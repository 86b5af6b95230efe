"""Which function answers which command: fills dispatch.HANDLERS.

The commands of the job cycle that `dispatch.run` calls directly have no handler here.
"""

from __future__ import annotations

from typing import Final

from tuque.server import (
    admin_cmds,
    client_cmds,
    cluster_cmds,
    config_cmds,
    debug_cmds,
    info,
    monitor_cmds,
    scan,
    session_cmds,
    views_cmds,
)
from tuque.server.dispatch import (
    HANDLERS,
    Handler,
    cmd_deadletter,
    cmd_dequeue,
    cmd_enqueue,
    cmd_nack,
    cmd_working,
)

COMMANDS: Final[dict[str, Handler]] = {
    "nack": cmd_nack,
    "enqueue": cmd_enqueue,
    "dequeue": cmd_dequeue,
    "working": cmd_working,
    "deadletter": cmd_deadletter,
    "show": views_cmds.cmd_show,
    "qlen": views_cmds.cmd_qlen,
    "qstat": views_cmds.cmd_qstat,
    "qpeek": views_cmds.cmd_qpeek,
    "pause": views_cmds.cmd_pause,
    "jscan": scan.cmd_jscan,
    "qscan": scan.cmd_qscan,
    "hello": session_cmds.cmd_hello,
    "ping": session_cmds.cmd_ping,
    "auth": session_cmds.cmd_auth,
    "quit": session_cmds.cmd_quit,
    "reset": session_cmds.cmd_reset,
    "select": session_cmds.cmd_select,
    "client": client_cmds.cmd_client,
    "cluster": cluster_cmds.cmd_cluster,
    "info": info.cmd_info,
    "time": admin_cmds.cmd_time,
    "command": admin_cmds.cmd_command,
    "config": config_cmds.cmd_config,
    "shutdown": admin_cmds.cmd_shutdown,
    "bgrewriteaof": admin_cmds.cmd_bgrewriteaof,
    "loadjob": admin_cmds.cmd_loadjob,
    "monitor": monitor_cmds.cmd_monitor,
    "slowlog": monitor_cmds.cmd_slowlog,
    "latency": monitor_cmds.cmd_latency,
    "debug": debug_cmds.cmd_debug,
}


def register() -> None:
    """Make every command known to the dispatcher; called once at start."""
    for name, handler in COMMANDS.items():
        HANDLERS[name.encode()] = handler
