"""What the nodes say of themselves: figures, queues, jobs, dead letters. The only reader."""
