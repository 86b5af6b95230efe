"""What a person at a terminal uses: the command line, its prompt, and the small load test."""
