"""What can go wrong, in types."""

from __future__ import annotations

from .wire import Code


class LanewayError(Exception):
    """Of this package."""


class Refused(LanewayError):
    """A request that is not taken: its code says why, and the frontend is told."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code.name.lower()}: {text}")
        self.code = code
        self.text = text
