"""The command line for people: `tuque cli`, `cluster`, `tubes`, `journal`, `bench`.

Must not know: the server's inside.
"""
