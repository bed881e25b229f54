"""The worker's side of Laneway: an engine in Python streams its answers over lanes, from its own process."""

from .errors import LanewayError, Refused
from .identity import Identity
from .node import Config, Node, Stats
from .stream import Stream
from .tls import Authority
from .wire import Code, End, EndType
from .worker import Request, Worker, Writer, serve

__all__ = [
    "Authority", "Code", "Config", "End", "EndType", "Identity", "LanewayError", "Node", "Refused", "Request", "Stats",
    "Stream", "Worker", "Writer", "serve",
]  # fmt: skip
