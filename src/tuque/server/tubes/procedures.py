"""The function of each procedure in the table (wire/commands/tube_table.py)."""

from typing import Final

from tuque.server.tubes import admin, grants, homes, tasks
from tuque.server.tubes.call import Run
from tuque.wire.commands.tube_table import PROCEDURES

BY_NAME: Final[dict[str, Run]] = {
    "CREATE": admin.create,
    "PUT": tasks.put,
    "TAKE": tasks.take,
    "ACK": tasks.ack,
    "RELEASE": tasks.release,
    "TOUCH": tasks.touch,
    "BURY": tasks.bury,
    "KICK": tasks.kick,
    "PEEK": tasks.peek,
    "DELETE": tasks.delete,
    "TASKS": tasks.tasks,
    "TRUNCATE": tasks.truncate,
    "RELEASEALL": tasks.release_all,
    "DROP": tasks.drop,
    "INFO": admin.info,
    "LIST": admin.list_tubes,
    "STATISTICS": admin.statistics,
    "STATE": homes.state,
    "HOME": homes.home,
    "CFG": admin.cfg,
    "IDENTIFY": admin.identify_client,
    "CHANGES": admin.changes,
    "SUBSCRIBE": admin.subscribe,
    "UNSUBSCRIBE": admin.unsubscribe,
    "GRANT": grants.grant_calls,
    "REVOKE": grants.revoke_calls,
    "GRANTS": grants.grants,
    "DRIVERS": admin.drivers,
    "REGISTERDRIVER": admin.register_driver,
    "grant_role": grants.grant_role,
    "on_task_change": admin.on_task_change,
}
RUNS: Final[list[Run]] = [BY_NAME[one.name] for one in PROCEDURES]  # by code
