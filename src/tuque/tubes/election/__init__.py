"""Leaders of tubes are chosen by votes of a fixed list of voters (SPEC T23 to T29).

Must not know: sockets, files.
"""
