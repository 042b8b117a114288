"""Proves copies while the service runs, in steps that leave the flow its pace.

In: a flow and its schedule. Out: findings that stand, and how far the proof has come.
"""
