import asyncio
import os

BODY = ("generation=%s pid=%d\n" % (os.environ.get("SUPERVISORD_GENERATION", "0"), os.getpid())).encode()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    while (await receive()).get("more_body"):
        pass  # hypercorn keeps a connection only where the request was read to its end
    if scope["path"] == "/slow":
        await asyncio.sleep(0.3)
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))]})
    await send({"type": "http.response.body", "body": BODY})


async def lifespan(receive, send):
    while True:
        event = (await receive())["type"]
        await send({"type": event + ".complete"})
        if event == "lifespan.shutdown":
            return
