"""Types of arguments."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Union

Bytes = Union[bytes, bytearray, memoryview]
Seconds = Union[float, timedelta]
Durability = Literal["sync", "buffered", "none"]
