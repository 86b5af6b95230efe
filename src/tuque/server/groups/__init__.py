"""Groups of jobs: the command, and looking at children. Must not know: how tasks carry them."""
