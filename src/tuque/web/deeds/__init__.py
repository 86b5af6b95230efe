"""What a reader of the pages may change: who may, how many jobs it is, and the log of it."""
