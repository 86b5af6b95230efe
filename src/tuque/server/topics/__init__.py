"""Topics: the command. Must not know: how subscriptions reach other nodes."""
