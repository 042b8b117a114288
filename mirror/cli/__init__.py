"""What a person types and reads: one module per command.

In: arguments. Out: a table for eyes or JSON for scripts, and the exit code 0, 1 or 2.
Commands decide nothing; rooms below do.
"""
