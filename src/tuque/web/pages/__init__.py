"""One function per page: from the question in the address to what its template shows."""
