"""Tubes: queues with the five policies of Tarantool's queue module (SPEC T)."""
