"""The interpreters of a test that has this folder in PYTHONPATH are as on Windows."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import lacking

lacking.be_windows()
sys.path.pop()
