"""Compiled loops that align two sequences of marks.

`chain` finds the longest ascending subsequence, `between` what lies between records
that belong together. Numbers in, numbers out: no allocation, no I/O. `proofs` says what
is aligned and when.
"""

from __future__ import annotations

from mirror.records.compiled import compiled

# Slots of `between`'s result.
PAIRS, BLOCKS = range(2)
RESULTS = 2


@compiled("void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def chain(values, tails, before, found, result):
    """Find the longest strictly ascending subsequence, of several one that ends lowest.

    tails, before: room for as many numbers as values. found: receives the indexes of
    its members; result[0]: how many.
    Source: M. L. Fredman, On computing the length of longest increasing subsequences
    (1975).
    """
    length = 0
    for i in range(values.size):
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            if values[tails[middle]] < values[i]:
                low = middle + 1
            else:
                high = middle
        before[i] = tails[low - 1] if low > 0 else -1
        tails[low] = i
        if low == length:
            length += 1
    at = tails[length - 1] if length > 0 else -1
    for i in range(length - 1, -1, -1):
        found[i] = at
        at = before[at]
    result[0] = length


@compiled(
    "void(int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1],"
    " int64[::1])"
)
def between(ups, downs, anchors, pairs, blocks, result):
    """Write all pairs: `anchors` (ascending in both columns), and what stands between
    two of them if it is the same, record by record. If it is not, and neither side has
    nothing there, it is a block: first and end on either side.

    pairs: room for as many rows as the shorter side has; blocks: for one more than
    there are anchors.
    """
    made = left = 0
    up = down = 0
    for i in range(anchors.shape[0] + 1):
        if i < anchors.shape[0]:
            next_up, next_down = anchors[i, 0], anchors[i, 1]
        else:
            next_up, next_down = ups.size, downs.size
        size = next_up - up
        same = size == next_down - down
        if same:
            for j in range(size):
                if ups[up + j] != downs[down + j]:
                    same = False
                    break
        if same:
            for j in range(size):
                pairs[made, 0] = up + j
                pairs[made, 1] = down + j
                made += 1
        elif size > 0 and next_down > down:
            blocks[left, 0] = up
            blocks[left, 1] = next_up
            blocks[left, 2] = down
            blocks[left, 3] = next_down
            left += 1
        if i < anchors.shape[0]:
            pairs[made, 0] = next_up
            pairs[made, 1] = next_down
            made += 1
        up, down = next_up + 1, next_down + 1
    result[PAIRS] = made
    result[BLOCKS] = left
