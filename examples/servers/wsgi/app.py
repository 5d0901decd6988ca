import os
import time

BODY = ("generation=%s pid=%d\n" % (os.environ.get("SUPERVISORD_GENERATION", "0"), os.getpid())).encode()


def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(0.3)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
