"""First, last and longest-gap times of requests, from the steps that yield their tokens.

Rows in lockstep get a token each in every step that they take, so what they have in common is kept
once: the end of the last such step, and the longest gap since any of them joined. A request is written
when it leaves, or when its rows are served one by one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from interleave.lab.gap_histogram import GapHistogram

_MOST_MAXIMA = 1 << 12


class TokenTimes:
    """Arrays by request index: seconds, NaN where nothing happened.

    beside: the times of another engine that serves part of the same requests: both write its arrays.
    """

    def __init__(self, num_requests: int, beside: TokenTimes | None = None) -> None:
        if beside is None:
            nan = array("d", [float("nan")])
            self.first_s, self.last_s, self.max_gap_s = (nan * num_requests for _ in range(3))
            self.gaps = GapHistogram()
        else:
            self.first_s, self.last_s, self.max_gap_s = beside.first_s, beside.last_s, beside.max_gap_s
            self.gaps = beside.gaps
        self._members: dict[int, int] = {}  # index -> number of the first common step that counts for it
        self._joining: list[int] = []
        self._common_end_s = 0.0
        self._num_common = 0
        # Gaps that no later one exceeds, with the number of their step: the longest since step n is the
        # first of them at or after n.
        self._maxima_at: list[int] = []
        self._maxima_s: list[float] = []

    def one(self, index: int, begins_s: float, end_s: float, inside_s: float) -> None:
        """A token of one request: the first of the steps ended at begins_s, the last at end_s."""
        if index in self._members:
            self.write_members()
        previous = self.last_s[index]
        if previous != previous:
            self.first_s[index] = self.last_s[index] = end_s
            self._joining.append(index)
            return
        self.gaps.add(begins_s - previous, 1)
        self.last_s[index] = end_s
        longest = max(begins_s - previous, inside_s)
        if not longest <= self.max_gap_s[index]:
            self.max_gap_s[index] = longest

    def resume(self, index: int) -> None:
        """A request whose first token another engine has given decodes here from its next step on."""
        self._joining.append(index)

    def together(self, number: int, begins_s: float, end_s: float, inside_s: float) -> bool:
        """A token of each of `number` rows in lockstep. False, with nothing done, if they are not those known."""
        members, joining = self._members, self._joining
        size = len(members)
        if size + len(joining) != number:
            return False
        if size:
            gap = begins_s - self._common_end_s
            self.gaps.add(gap, size)
            self._maximum(gap if gap > inside_s else inside_s)
        self._num_common += 1
        self._common_end_s = end_s
        if not joining:
            return True
        for index in joining:
            gap = begins_s - self.last_s[index]
            self.gaps.add(gap, 1)
            # A row may have been served on its own between its first token and this step.
            longest = gap if gap > inside_s else inside_s
            if not longest <= self.max_gap_s[index]:
                self.max_gap_s[index] = longest
            members[index] = self._num_common
        joining.clear()
        return True

    def _maximum(self, gap_s: float) -> None:
        at, values = self._maxima_at, self._maxima_s
        while values and values[-1] <= gap_s:
            values.pop()
            at.pop()
        at.append(self._num_common)
        values.append(gap_s)
        if len(at) > _MOST_MAXIMA:
            needed = bisect_left(at, min(self._members.values()))
            del at[:needed], values[:needed]

    def regroup(self, indices: list[int]) -> None:
        """These rows, served one by one until now and all at once in the last step, are the group."""
        self._members = dict.fromkeys(indices, self._num_common)
        self._joining.clear()
        self._common_end_s = self.last_s[indices[0]] if indices else 0.0

    def write_members(self) -> None:
        for index in list(self._members):
            self.leave(index)

    def leave(self, index: int) -> None:
        """A request has its last token, or leaves the group: write what it has from the common steps."""
        if index in self._joining:
            self._joining.remove(index)
        since = self._members.pop(index, None)
        if since is None:
            return
        self.last_s[index] = self._common_end_s
        position = bisect_left(self._maxima_at, since)
        if position < len(self._maxima_at):
            longest = self._maxima_s[position]
            if not longest <= self.max_gap_s[index]:
                self.max_gap_s[index] = longest
