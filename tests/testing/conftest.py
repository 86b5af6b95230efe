"""The fixtures of the plugin, whether it is installed as one or not."""

from tuque.testing.plugin import tuque_app, tuque_cluster, tuque_seed, tuque_server

__all__ = ["tuque_app", "tuque_cluster", "tuque_seed", "tuque_server"]
