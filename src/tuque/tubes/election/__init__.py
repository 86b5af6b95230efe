"""Leaders of tubes are chosen by votes (SPEC T23 to T29).

Must not know: sockets, files.
"""
