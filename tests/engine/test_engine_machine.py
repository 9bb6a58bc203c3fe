"""A short run of the machine of engines; `long_run.py` runs it for as long as it is told."""

from __future__ import annotations

from engine_machine import Serving
from hypothesis import settings

TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
