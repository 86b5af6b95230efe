"""One function per page: from the question in the address to what its template shows.

Must not know: requests and replies of HTTP.
"""
