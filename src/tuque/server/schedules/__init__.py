"""Schedules: the command, and which instant comes next. Must not know: how jobs are kept.

The only package of the node that knows calendars and time zones: the core sees instants (SPEC T45).
"""
