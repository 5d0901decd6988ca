"""A server for HTTP/3 on aioquic. Where supervisord tells it a lane, it writes that into its connection IDs."""
import asyncio
import datetime
import os
import signal
import types

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection, encode_frame
from aioquic.h3.events import HeadersReceived
from aioquic.quic import connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

GENERATION = os.environ.get("SUPERVISORD_GENERATION", "0").encode()
NO_STREAM = 2**62 - 4  # a GOAWAY with this ID says that all requests so far are answered


def lane_in_connection_ids(configuration):
    """aioquic 1.7 has no hook for its connection IDs. They are what it takes from os.urandom with their length."""
    lane, at = int(os.environ["SUPERVISORD_LANE"]), int(os.environ["SUPERVISORD_LANE_BYTE"])
    configuration.connection_id_length = 7

    def urandom(size):
        random = bytearray(os.urandom(size))
        if size == 7:
            random[at] = lane
        return bytes(random)

    connection.os = types.SimpleNamespace(urandom=urandom)


class Client(QuicConnectionProtocol):
    connected = set()
    leaving = False
    gone = None
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
            Client.connected.add(self)
            if Client.leaving:
                self.send_away()
        if isinstance(event, ConnectionTerminated):
            self.has_gone()
        for what in self.http.handle_event(event) if self.http else []:
            if isinstance(what, HeadersReceived):
                self.http.send_headers(what.stream_id, [(b":status", b"200"), (b"generation", GENERATION)])
                self.http.send_data(what.stream_id, b"generation=" + GENERATION, end_stream=True)

    def datagram_received(self, data, addr):
        super().datagram_received(data, addr)
        if self._quic._close_event:  # the event comes when the connection has drained: up to a minute later
            self.has_gone()

    def has_gone(self):
        Client.connected.discard(self)
        Client.end_if_alone()

    def send_away(self):
        frame = encode_frame(FrameType.GOAWAY, encode_uint_var(NO_STREAM))
        self._quic.send_stream_data(self.http._local_control_stream_id, frame)
        self.transmit()

    @classmethod
    def stop(cls):
        cls.leaving = True
        for client in list(cls.connected):
            client.send_away()
        cls.end_if_alone()

    @classmethod
    def end_if_alone(cls):
        if cls.leaving and not cls.connected:
            cls.gone.set()


def self_signed(configuration):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    today = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, today, today.replace(year=2056))
    configuration.certificate, configuration.private_key = builder.sign(key, hashes.SHA256()), key


async def main():
    # The farewell of a client may get lost: the server ends without it after this time, sooner than stop.timeout.
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, is_client=False, idle_timeout=20)
    self_signed(configuration)
    if "SUPERVISORD_LANE" in os.environ:
        lane_in_connection_ids(configuration)
    Client.gone = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, Client.stop)
    await serve("127.0.0.1", 8142, configuration=configuration, create_protocol=Client)
    await Client.gone.wait()


asyncio.run(main())
