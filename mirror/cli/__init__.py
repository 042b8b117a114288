"""What a person types and reads: one module per family of commands.

In: arguments. Out: a table for people or JSON for scripts, and exit code 0, 1 or 2.
Commands decide nothing; the rooms below do.
"""
