"""The server of `python3 -m http.server`, on the socket at fd 3."""
import http.server
import os
import socket
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.3)
        body = ("generation=%s\n" % os.environ.get("SUPERVISORD_GENERATION")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket.close()
server.socket = socket.socket(fileno=3)
server.server_name, server.server_port = server.socket.getsockname()
os.write(int(os.environ["NOTIFY_FD"]), b"\n")
server.serve_forever()
