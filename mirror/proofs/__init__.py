"""Proving that copies are complete and the same, and where a single record is.

In: flows, their offset maps, and the logs of both sides. Out: an account of all
records, and findings; or a row for each place of one record. It changes nothing on any
cluster except the topic of its own proofs.
"""
