"""The function of each command: fills dispatch.HANDLERS.

The commands that `dispatch.run` calls directly have no handler here.
"""

from __future__ import annotations

from typing import Final

from tuque.server.admin.acl import cmd_acl
from tuque.server.admin.client import cmd_client
from tuque.server.admin.cluster import cmd_cluster
from tuque.server.admin.config import cmd_config
from tuque.server.admin.info import cmd_history, cmd_info
from tuque.server.admin.monitor import cmd_latency, cmd_monitor, cmd_slowlog
from tuque.server.admin.server import (
    cmd_bgrewriteaof,
    cmd_command,
    cmd_debug,
    cmd_loadjob,
    cmd_shutdown,
    cmd_time,
)
from tuque.server.commands.dead import cmd_dead
from tuque.server.commands.dispatch import HANDLERS, Handler, cmd_deadletter
from tuque.server.commands.groups import cmd_group
from tuque.server.commands.jobs import cmd_dequeue, cmd_enqueue, cmd_nack
from tuque.server.commands.leases import cmd_lease
from tuque.server.commands.limits import cmd_limits
from tuque.server.commands.qlist import cmd_qlist
from tuque.server.commands.queue_settings import cmd_queue
from tuque.server.commands.queues import (
    cmd_jscan,
    cmd_pause,
    cmd_qlen,
    cmd_qpeek,
    cmd_qscan,
    cmd_qstat,
    cmd_show,
)
from tuque.server.commands.results import cmd_cancel, cmd_result, cmd_waitjob
from tuque.server.commands.schedules import cmd_schedule
from tuque.server.commands.session import (
    cmd_auth,
    cmd_echo,
    cmd_hello,
    cmd_ping,
    cmd_quit,
    cmd_reset,
    cmd_select,
)
from tuque.server.commands.staged import cmd_publish, cmd_stage
from tuque.server.commands.topics import cmd_topic
from tuque.server.commands.tubes import cmd_tube
from tuque.server.commands.values import cmd_value
from tuque.server.commands.work import (
    cmd_done,
    cmd_fail,
    cmd_progress,
    cmd_release,
    cmd_start,
    cmd_updatejob,
    cmd_working,
)
from tuque.server.commands.workers import cmd_worker

COMMANDS: Final[dict[str, Handler]] = {
    "nack": cmd_nack,
    "enqueue": cmd_enqueue,
    "dequeue": cmd_dequeue,
    "working": cmd_working,
    "deadletter": cmd_deadletter,
    "start": cmd_start,
    "progress": cmd_progress,
    "release": cmd_release,
    "fail": cmd_fail,
    "done": cmd_done,
    "cancel": cmd_cancel,
    "result": cmd_result,
    "waitjob": cmd_waitjob,
    "updatejob": cmd_updatejob,
    "dead": cmd_dead,
    "show": cmd_show,
    "qlen": cmd_qlen,
    "qstat": cmd_qstat,
    "qpeek": cmd_qpeek,
    "history": cmd_history,
    "pause": cmd_pause,
    "lease": cmd_lease,
    "stage": cmd_stage,
    "publish": cmd_publish,
    "tube": cmd_tube,
    "queue": cmd_queue,
    "schedule": cmd_schedule,
    "value": cmd_value,
    "limits": cmd_limits,
    "group": cmd_group,
    "topic": cmd_topic,
    "worker": cmd_worker,
    "qlist": cmd_qlist,
    "jscan": cmd_jscan,
    "qscan": cmd_qscan,
    "hello": cmd_hello,
    "ping": cmd_ping,
    "echo": cmd_echo,
    "auth": cmd_auth,
    "quit": cmd_quit,
    "reset": cmd_reset,
    "select": cmd_select,
    "client": cmd_client,
    "acl": cmd_acl,
    "cluster": cmd_cluster,
    "info": cmd_info,
    "time": cmd_time,
    "command": cmd_command,
    "config": cmd_config,
    "shutdown": cmd_shutdown,
    "bgrewriteaof": cmd_bgrewriteaof,
    "loadjob": cmd_loadjob,
    "monitor": cmd_monitor,
    "slowlog": cmd_slowlog,
    "latency": cmd_latency,
    "debug": cmd_debug,
}


def register() -> None:
    """Register every command with the dispatcher; called once at start."""
    for name, handler in COMMANDS.items():
        HANDLERS[name.encode()] = handler
