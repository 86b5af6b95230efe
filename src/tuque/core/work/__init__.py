"""The rules of work: what each event does to it in each state, and how two views merge (SPEC W).

Must not know: nodes, queues, tubes; where a job is kept, and who must agree.
"""
