"""What jobs belong together, as the nodes know it: groups of jobs, and the queues of topics."""
