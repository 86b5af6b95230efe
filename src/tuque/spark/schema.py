"""The event segments as Spark sees them (bronze); segments.py of the server writes them."""

EVENTS = """
    seq BIGINT, ts TIMESTAMP, node STRING, event STRING, queue STRING, job_id STRING,
    delivery INT, consumer STRING, size INT, delay_ms BIGINT, ttl_ms BIGINT, retry_ms BIGINT,
    priority INT, reason STRING, enqueued_at TIMESTAMP, first_delivered_at TIMESTAMP,
    last_delivered_at TIMESTAMP, deliveries INT, nacks INT, timeouts INT
"""
