"""Proofs that copies are complete and the same, repairs, and where one record is.

In: flows, their offset maps, and the logs of both sides. Out: an account of all
records, and findings; what a repair appends or copies again; or a row for each place of
one record. A proof changes nothing on any cluster except the topic of its own proofs.
"""
