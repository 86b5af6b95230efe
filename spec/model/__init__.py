"""Executable models of the rules of spec/: `make models`."""
