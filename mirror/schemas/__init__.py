"""Schemas: the registries of both sides, and keeping the target's in step.

In: the registries of a flow, and the ids that records begin with. Out: the target has
each schema before a record that needs it, and what a record's id means there.
"""
