"""The page for people: status and events as HTML, made on the server.

In: the status, its history and the events. Out: whole pages, and the parts that the
browser refreshes.
"""
