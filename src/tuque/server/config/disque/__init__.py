"""Configuration files of Disque: read, and rewritten in their own form."""
