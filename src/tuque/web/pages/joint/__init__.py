"""Pages of jobs that belong together, groups and topics, and the deeds on them."""
