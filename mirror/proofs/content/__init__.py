"""Proves copies by their content, where no offset map says what belongs together.

In: both logs. Out: the pairs that a map would have given, and what is wrong with them.
"""
