"""drain:app is your ASGI application, served so that a stop costs no request. APP names it, as uvicorn would: "module:attribute".

On TERM uvicorn and hypercorn close the connections on which they have not read a request yet, and uvicorn those between two requests:
a client that is just sending one loses it. With this around the application, on TERM nothing more is accepted, each answer over HTTP/1
says "connection: close", and the server is told to stop when its last client has gone, or after DRAIN_SECONDS (20).

It works with the event loop of asyncio (--loop asyncio, worker class asyncio), not with uvloop, and needs the lifespan protocol, which
both servers speak unless told otherwise. LISTEN_FD is the descriptor of the listening socket.
"""
import asyncio
import importlib
import os
import signal
import socket

POLL = 0.05  # seconds; there is no event for the end of a connection


class Drain:
    def __init__(self, app, listener, limit):
        self.app = app
        self.listener = listener
        self.limit = limit
        self.stopping = None

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":  # the server has installed its own handlers by now
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        if scope["type"] != "http" or not scope.get("http_version", "1.1").startswith("1"):
            return await self.app(scope, receive, send)

        async def goodbye(message):
            if self.stopping and message["type"] == "http.response.start":
                headers = [h for h in message.get("headers", []) if h[0].lower() != b"connection"]
                message = {**message, "headers": headers + [(b"connection", b"close")]}
            await send(message)

        await self.app(scope, receive, goodbye)

    def stop(self):
        if self.stopping:
            signal.raise_signal(signal.SIGINT)  # told twice: now
            return
        loop = asyncio.get_running_loop()
        for fd in descriptors():
            if same(fd, self.listener):
                loop.remove_reader(fd)
        self.stopping = loop.create_task(self.drain(loop.time() + self.limit))

    async def drain(self, end):
        own = place(address_of(self.listener)[0])
        while asyncio.get_running_loop().time() < end and any(connected(fd, own) for fd in descriptors()):
            await asyncio.sleep(POLL)
        signal.raise_signal(signal.SIGINT)


def descriptors():
    return [int(name) for name in os.listdir("/proc/self/fd")]


def same(fd, other):
    try:
        return os.path.sameopenfile(fd, other)
    except OSError:  # the descriptor with which the list was read
        return False


def address_of(fd):
    """The socket's own address, and its peer's or None."""
    with socket.socket(fileno=os.dup(fd)) as s:
        try:
            return s.getsockname(), s.getpeername()
        except OSError:
            return s.getsockname(), None


def place(address):
    """What a listening socket and the connections from it have in common: the port, or the path."""
    return address[1] if isinstance(address, tuple) else address


def connected(fd, own):
    try:
        address, peer = address_of(fd)
    except OSError:  # it is not a socket
        return False
    return peer is not None and place(address) == own


def load(name):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute or "app")


app = Drain(load(os.environ.get("APP", "app:app")), int(os.environ.get("LISTEN_FD", "3")), float(os.environ.get("DRAIN_SECONDS", "20")))
