"""The lint pass: all problems of a topology at once.

Takes a `LoadedApp`; returns findings, each with a rule, a message and a place in the file. Changes
nothing. Imports functions and serdes to check that they exist.
"""
