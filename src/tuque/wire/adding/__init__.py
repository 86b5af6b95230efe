"""The options of ADDJOB and STAGE: words in, one typed request or an error out.

Must not know: nodes, what a job is.
"""
