"""Tasks: typed functions, their arguments as bodies of jobs, the app that names them.

Must not know: connections, pools.
"""
