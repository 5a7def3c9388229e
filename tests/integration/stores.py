"""S3 and Google Cloud Storage on the loopback: moto's server and a GCS emulator, behind a proxy
that injects faults."""

import contextlib
import dataclasses
import datetime
import http.client
import http.server
import json
import logging
import pathlib
import random
import re
import ssl
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

TRAINING = """
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.loop import run_file
run_file.REMOTE_FILE_BYTES = 20_000  # several files, as in a long training
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="logits")], name="net")
model.compile("sgd", "mse")
x, y = np.zeros((480, 8), "float32"), np.zeros((480, 4), "float32")
def train(directory):
    callback = tb_memplugin.MemoryCallback(directory, overhead=0.5)
    for _ in range(3):
        model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
    callback.close()
    return len(tf.io.gfile.listdir(directory + "/memory"))
"""
"""A training whose recording has 90 steps in several files."""
BUCKET = "bucket"
LOGDIR = "runs"
"""Directory in the bucket: TensorBoard's file layer lists no S3 bucket."""
Kind: TypeAlias = Literal["error", "denied", "cut", "short", "gone", "slow"]
_SLOW_SECONDS = 0.3
_REFUSALS = {
    ("s3", "gone"): b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>No "
    b"such "
    b"key</Message></Error>",
    ("s3", "denied"): b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access "
    b"Denied</Message></Error>",
    ("gs", "gone"): b'{"error": {"code": 404, "message": "No such object"}}',
    ("gs", "denied"): b'{"error": {"code": 403, "message": "Access denied"}}',
}
_EMPTY_UPLOAD = (
    b"--part\r\nContent-Type: application/json\r\n\r\n%s\r\n"
    b"--part\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--part--\r\n"
)
_HOP_HEADERS = (
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "proxy-connection",
    "date",
    "server",
)


@dataclasses.dataclass(frozen=True)
class Faults:
    """Which answers are spoilt, and how. They depend on the request alone, not on the order of
    requests.

    ``error``: status 500 or 503, and nothing is done. ``denied``: 403. ``cut``: the connection ends
    in the middle of the body. ``short``: half of what was asked of an object, as if it had become
    shorter. ``gone``: 404 for an object, which listings still have. ``slow``: the answer is
    delayed.
    """

    kinds: tuple[Kind, ...]
    seed: int = 0  # decides which addresses fail, and with which kind
    share: float = 1.0  # of the addresses
    times: int | None = 1  # how many of the first requests for an address fail; None for all
    of: str = ""  # only requests in which this regular expression is found
    objects_only: bool = False  # not listings
    methods: tuple[str, ...] = ("GET", "HEAD")

    def kind(self, request: str, is_object: bool, earlier: int) -> Kind | None:
        """The fault of a request (its method and address) that was made `earlier` times before."""
        draw = random.Random(f"{self.seed} {request}")
        if (
            not re.search(self.of, request)
            or draw.random() >= self.share
            or (self.times is not None and earlier >= self.times)
        ):
            return None
        kind = draw.choice(self.kinds)
        return None if not is_object and (self.objects_only or kind in ("gone", "short")) else kind


class Store:
    """One object store behind its proxy, whose address is `url`.

    It counts since `inject` the requests (``GET object``, ``GET listing``, ``GET other``, and so
    on), the injected faults of each kind, and the most requests that were answered at a time.
    """

    def __init__(self, scheme: Literal["s3", "gs"], port: int) -> None:
        self.scheme, self.port = scheme, port
        self.logdir = f"{scheme}://{BUCKET}/{LOGDIR}"
        self.faults: Faults | None = None
        self.injected: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.most_at_once = self._now = 0
        self.certificate: tuple[pathlib.Path, pathlib.Path] | None = None
        self._earlier: Counter[str] = Counter()
        self.names: list[str] = []
        self._lock = threading.Lock()
        self._proxy = _Server(("127.0.0.1", 0), _Proxy)
        self._proxy.store = self
        self.url = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def encrypt(self, folder: pathlib.Path) -> dict[str, str]:
        """Answer to TensorFlow's client, which has Google's address built in; returns its
        environment variables."""
        self.certificate = _certificate(folder)
        authority = str(self.certificate[0])
        # With `NO_GCE_CHECK`, TensorFlow's client looks for no credentials in Google's network.
        delay = {"GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "10000"}
        return {
            "https_proxy": self.url,
            "CURL_CA_BUNDLE": authority,
            "NO_GCE_CHECK": "true",
            **delay,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the store's client library finds the proxy."""
        if self.scheme == "gs":
            return {
                "STORAGE_EMULATOR_HOST": self.url,
                "GOOGLE_CLOUD_PROJECT": "test",
                "NO_GCE_CHECK": "true",
            }
        return {
            "AWS_ENDPOINT_URL": self.url,
            "S3_ENDPOINT": self.url,  # for TensorBoard
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def inject(self, faults: Faults | None) -> None:
        """Begin with other faults; every request counts as a first one."""
        with self._lock:
            self.faults = faults
            self._earlier.clear()
            self.injected.clear()
            self.requests.clear()
            self.most_at_once = 0

    def fault(self, method: str, path: str) -> Kind | None:
        """What to do with a request; counts it."""
        request = f"{method} {urllib.parse.unquote(path)}"
        is_object = "tfevents" in path.partition("?")[0]
        with self._lock:
            self.requests[
                f"{method} {'object' if is_object else 'listing' if 'prefix=' in path else 'other'}"
            ] += 1
            earlier = self._earlier[request]
            self._earlier[request] += 1
            if self.faults is None or method not in self.faults.methods:
                return None
            kind = self.faults.kind(request, is_object, earlier)
            if kind is not None:
                self.injected[kind] += 1
            return kind

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request as being answered."""
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1

    def upload(self, directory: pathlib.Path) -> None:
        """Put the files of a log directory into the store, past the proxy."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(path.relative_to(directory).as_posix(), path.read_bytes())

    def put(self, name: str, data: bytes) -> None:
        """Store an object under the log directory, past the proxy."""
        self.names.append(name)
        if self.scheme == "s3":
            self.client().put_object(Bucket=BUCKET, Key=f"{LOGDIR}/{name}", Body=data)
        else:
            key = urllib.parse.quote(f"{LOGDIR}/{name}", safe="")
            post(
                f"http://127.0.0.1:{self.port}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={key}",
                data,
            )

    def client(self) -> Any:
        """A client for S3 that reaches the server past the proxy."""
        import boto3

        names = ("aws_access_key_id", "aws_secret_access_key", "region_name")
        values = dict(zip(names, ("test", "test", "us-east-1"), strict=True))
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", **values)

    def close(self) -> None:
        """Stop the proxy."""
        self._proxy.shutdown()
        self._proxy.server_close()


def post(address: str, data: bytes) -> None:
    """Send bytes to a server."""
    with urllib.request.urlopen(
        urllib.request.Request(address, data, method="POST"), timeout=60
    ) as answer:
        answer.read()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    store: Store

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients end connections that failed."""


class _Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    encrypted = False

    def do_GET(self) -> None:
        with self.server.store.answering():
            self._answer()

    def _answer(self) -> None:
        store = self.server.store
        kind = store.fault(self.command, self.path)
        if kind == "slow":
            threading.Event().wait(_SLOW_SECONDS)
        sent = self._body()
        if kind == "error":
            status, headers, body = random.Random(self.path).choice((500, 503)), {}, b"injected"
            length = len(body)
        else:
            status, headers, body, length = self._forward(store.port, sent)
        if kind in ("gone", "denied"):
            status, headers, body = (
                404 if kind == "gone" else 403,
                {},
                _REFUSALS[store.scheme, kind],
            )
            length = len(body)
        elif kind == "short" and status < 300:
            length //= 2
            body = body[:length]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "cut":
            self.wfile.write(body[: length // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def do_CONNECT(self) -> None:
        """Become the server of an encrypted connection: TensorFlow's client has Google's address
        built in."""
        assert self.server.store.certificate is not None
        self.send_response(200)
        self.end_headers()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.server.store.certificate)
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.encrypted, self.close_connection = True, False

    def _forward(self, port: int, sent: bytes) -> tuple[int, dict[str, str], bytes, int]:
        """Status, headers, body and its length, of which a HEAD has no body."""
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS
        }
        path = self.path
        if self.encrypted and "uploadType=media" in path and not sent:
            # The emulator fails on an empty object, unless it comes this way.
            (name,) = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["name"]
            path = path.replace("uploadType=media", "uploadType=multipart")
            headers["Content-Type"] = "multipart/related; boundary=part"
            sent = _EMPTY_UPLOAD % json.dumps({"name": name}).encode()
        backend = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            backend.request(self.command, path, sent or None, headers)
            answer = backend.getresponse()
            body = answer.read()
        finally:
            backend.close()
        kept = {
            name: value for name, value in answer.getheaders() if name.lower() not in _HOP_HEADERS
        }
        if self.encrypted and "Location" in kept:
            kept["Location"] = kept["Location"].replace("http://", "https://", 1)
        length = (
            int(answer.headers.get("Content-Length", 0)) if self.command == "HEAD" else len(body)
        )
        return answer.status, kept, body, length

    def _body(self) -> bytes:
        """The body of the request. TensorFlow's client sends chunks and a length."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def s3() -> Iterator[Store]:
    """An S3 with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    store = Store("s3", server.get_host_and_port()[1])
    try:
        # the servers of a process have the same buckets
        post(f"http://127.0.0.1:{store.port}/moto-api/reset", b"")
        store.client().create_bucket(Bucket=BUCKET)
        yield store
    finally:
        store.close()
        server.stop()


@contextlib.contextmanager
def gcs() -> Iterator[Store]:
    """A Google Cloud Storage with an empty bucket."""
    from gcp_storage_emulator.server import create_server

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    server.start()
    store = Store("gs", server._api._httpd.server_address[1])
    try:
        yield store
    finally:
        store.close()
        server.stop()


def _certificate(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Files with a certificate for Google's storage hosts that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    hosts = [x509.DNSName(host) for host in ("www.googleapis.com", "storage.googleapis.com")]
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
    certificate = builder.add_extension(x509.BasicConstraints(True, None), True).sign(
        key, hashes.SHA256()
    )
    encoding = serialization.Encoding.PEM
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(encoding))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(encoding, *private))
    return files
