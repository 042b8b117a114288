"""One connection to one broker: bytes, handshake, Fetch and Produce.

In: requests, and record batches as buffers. Out: responses, and errors by their code.
Nothing here waits for a response unless its caller does.
"""
