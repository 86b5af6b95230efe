"""The web console: pages that show and change a cluster, made by the server, for browsers."""
