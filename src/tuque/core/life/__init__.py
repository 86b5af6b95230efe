"""The work of a job: runs, failures, results, CANCEL, UPDATEJOB, dead letters (SPEC W).

Must not know: words of commands, texts of replies.
"""
