"""The words about a job's work: START, FAIL, DONE, CANCEL, UPDATEJOB, DEAD (SPEC W)."""
