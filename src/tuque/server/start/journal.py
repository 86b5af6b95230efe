"""The journal in the server's life: opened, loaded while clients get -LOADING, closed."""

from __future__ import annotations

from tuque.core.dispatch.restore import after_load
from tuque.core.records.jobs import Records
from tuque.logtext import facts
from tuque.server.config.config import in_dir
from tuque.server.config.options import Config
from tuque.server.journal.committer import Committer, forget_saved, has_saved_once, save_once
from tuque.server.loop.pump import Pump
from tuque.server.state.server import Server, log
from tuque.store.disk import Disk
from tuque.store.frames import MANIFEST, JournalError
from tuque.store.replay import Loader

LOAD_RECORDS = 20_000  # between two polls of the sockets while loading
SHORT_MS = 100  # a load of less is not noticed: nobody gets -LOADING


def make_committer(cfg: Config, node_id: bytes, now_ms: int) -> Committer:
    """The journal of the configuration; its directory is not locked yet."""
    return Committer(
        Disk(),
        in_dir(cfg, cfg.appenddirname),
        node_id,
        now_ms,
        cfg.appendfsync,
        segment_bytes=cfg.journal_segment_bytes,
        rewrite_percentage=cfg.auto_aof_rewrite_percentage,
        rewrite_min_bytes=cfg.auto_aof_rewrite_min_size,
        no_fsync_on_rewrite=cfg.no_appendfsync_on_rewrite,
        reserve_bytes=cfg.disk_reserve,
        free_min=cfg.disk_free_min,
    )


def open_journal(pump: Pump) -> None:
    """Lock the journal's directory, if it is read or written. Raises JournalError."""
    s = pump.s
    path = in_dir(s.cfg, s.cfg.appenddirname)
    if not s.cfg.appendonly and not has_saved_once(Disk(), path):
        if Disk().exists(f"{path}/{MANIFEST}"):
            log.warning(
                "the journal in %(path)s is not loaded: appendonly is no",
                facts("journal_ignored", path=path),
            )
        return
    committer = make_committer(s.cfg, s.n.node_id, s.n.now_ms)
    committer.lock()
    s.committer = committer


def load_journal(pump: Pump) -> None:
    """Read the journal into the node while serving what a loading node may serve (J5)."""
    s = pump.s
    committer = s.committer
    if committer is None:
        return
    pump.clock()
    started_ms = s.n.now_ms
    loader = begin_load(s, committer)
    while not loader.step(s.n, LOAD_RECORDS):
        pump.clock()
        if s.n.now_ms - started_ms >= SHORT_MS:  # J5.7
            pump.turn(0)
        if s.stop_requested:
            return  # the files stay as they are
    end_load(pump, committer, loader)
    seconds = (s.n.now_ms - started_ms) / 1000
    log.info(
        "journal loaded: %(jobs)s jobs in %(seconds).3f s",
        facts("journal_loaded", jobs=f"{loader.job_count:,}", seconds=seconds),
    )


def begin_load(s: Server, committer: Committer) -> Loader:
    """Clients get -LOADING from now on; what reads the journal."""
    s.is_loading = True
    s.n.is_loading = True
    return committer.loader(may_cut=s.cfg.aof_load_truncated)


def end_load(pump: Pump, committer: Committer, loader: Loader) -> None:
    """[J5] All is read: the journal goes on, and the node with what it holds."""
    s = pump.s
    s.n.is_loading = False
    take_over(pump, committer)
    after_load(s.n)  # once the journal continues: its changes must be recorded
    s.is_loading = False
    for note in loader.notes:  # bytes were cut off, or the clock jumped
        log.warning("%(text)s", facts("journal_repaired", text=note))


def take_over(pump: Pump, committer: Committer) -> None:
    """Continue the files after a load; discard what a planned restart left (J9.1)."""
    s = pump.s
    try:
        forget_saved(committer.disk, committer.path, s.cfg.appendonly)
    except OSError as wrong:
        raise JournalError(f"cannot retire the jobs saved in {committer.path}: {wrong}") from None
    if s.cfg.appendonly:
        committer.start(s.n.now_ms)
        s.n.records = Records(s.n.node_ids, s.n.lives)
        pump.gate.watch(committer.wake_fd)
    else:
        s.committer = None
        committer.close(s.n.now_ms)


def turn_on(s: Server) -> str:
    """[J6.5] CONFIG SET appendonly yes: begin a journal; a rewrite saves the present jobs.

    Returns an error text or "".
    """
    committer = make_committer(s.cfg, s.n.node_id, s.n.now_ms)
    try:
        committer.lock()
        committer.start_anew(s.n)
    except JournalError as wrong:
        committer.close(s.n.now_ms)
        return str(wrong)
    s.n.records = Records(s.n.node_ids, s.n.lives)
    s.committer = committer  # the pump watches it from now on
    return ""


def turn_off(s: Server) -> str:
    """CONFIG SET appendonly no: finish the journal and go on without; an error text or empty."""
    committer = s.committer
    if committer is None:
        return ""
    if s.n.records is not None:
        committer.commit(s.n.records, s.n.now_ms)
    s.n.records = None
    s.committer = None
    return committer.close(s.n.now_ms, retired=True)  # out of date from now on: never load it


def save_for_restart(s: Server) -> str:
    """[J9] SHUTDOWN REWRITE-AOF: save all jobs for the next start, in any case; "" or the error."""
    if s.committer is not None:
        return s.committer.rewrite_now(s.n)
    return save_once(Disk(), in_dir(s.cfg, s.cfg.appenddirname), s.n)


def close_journal(pump: Pump) -> str:
    """Write and sync everything, and close; an error text or empty."""
    s = pump.s
    committer = s.committer
    assert committer is not None
    if s.n.records is not None:
        committer.commit(s.n.records, s.n.now_ms)
    committer.settle(s.n)
    pump.gate.drop()
    error = committer.close(s.n.now_ms)
    pump.gate.open()
    return error
