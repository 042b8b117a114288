"""One connection to one broker: bytes, handshake, Fetch and Produce.

In: requests, and record batches as buffers. Out: answers, and errors by their code.
Nothing here waits for one particular answer unless its caller does.
"""
