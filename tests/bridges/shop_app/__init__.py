"""An app of Django with tasks."""
