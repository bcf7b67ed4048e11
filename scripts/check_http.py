"""Checks `braid serve` with curl and httpx: see check-http.sh. check_http.py BRAID FOLDER"""

import json
import pathlib
import re
import subprocess
import sys
import threading

import httpx
import httpx_sse
import openapi_spec_validator

BRAID, FOLDER = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
TOKEN = "token-of-the-check"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PATIENCE = httpx.Timeout(60)


class Served:
    """`braid serve` of a database, for writing."""

    def __init__(self, database, listen="127.0.0.1:0"):
        command = [BRAID, "serve", str(database), "--write", "--keep", "64M", "--token", TOKEN, "--listen", listen]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"http://(\S+)/trees", line)
        assert found, f"no address: {line}"
        self.address = found[1]
        self.url = f"http://{self.address}"
        self.client = httpx.Client(base_url=self.url, headers=HEADERS, timeout=PATIENCE)

    def kill(self):
        self.client.close()
        self.process.kill()
        self.process.wait()

    def curl(self, *arguments):
        command = ["curl", "-sS", "-H", f"Authorization: Bearer {TOKEN}", *arguments]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        return done.stdout

    def status(self, *arguments):
        return int(self.curl("-o", "/dev/null", "-w", "%{http_code}", *arguments))


def new_database(name):
    path = FOLDER / name
    subprocess.run([BRAID, "create", str(path)], check=True, capture_output=True)
    return path


def check_conditions(served):
    client, path = served.client, "/trees/t/a b/ä"
    assert client.put("/trees/t").status_code == 201
    made = client.put(path, content=b"one", headers={"If-None-Match": "*"})
    assert made.status_code == 201
    assert client.put(path, content=b"two", headers={"If-None-Match": "*"}).status_code == 412
    read = client.get(path)
    assert (read.content, read.headers["etag"]) == (b"one", made.headers["etag"])
    fresh = client.get(path, headers={"If-None-Match": f'W/"x", {read.headers["etag"]}'})
    assert (fresh.status_code, fresh.content) == (304, b"")
    changed = client.put(path, content=b"two", headers={"If-Match": read.headers["etag"]})
    assert changed.status_code == 204
    assert client.put(path, content=b"three", headers={"If-Match": read.headers["etag"]}).status_code == 412
    assert client.delete(path, headers={"If-Match": read.headers["etag"]}).status_code == 412
    # curl keeps and compares versions by itself.
    url, kept = f"{served.url}/trees/t/a%20b/%C3%A4", str(FOLDER / "etag")
    assert served.curl("--etag-save", kept, url) == b"two"
    assert served.status("--etag-compare", kept, url) == 304
    assert client.delete(path, headers={"If-Match": changed.headers["etag"]}).status_code == 204
    assert client.get(path).status_code == 404


def check_ranges(served):
    client, value = served.client, bytes(range(256)) * 12_000
    etag = client.put("/trees/t/large", content=value).headers["etag"]

    def part(text, **headers):
        return client.get("/trees/t/large", headers={"Range": text, **headers})

    first = part("bytes=0-9")
    assert (first.status_code, first.content) == (206, value[:10])
    assert first.headers["content-range"] == f"bytes 0-9/{len(value)}"
    assert part("bytes=-7").content == value[-7:]
    assert part(f"bytes={len(value)}-").status_code == 416
    assert part("bytes=5-9", **{"If-Range": etag}).content == value[5:10]
    assert part("bytes=5-9", **{"If-Range": '"0000000000000000-0000000000000001"'}).content == value
    # curl goes on with a download that was cut.
    target = FOLDER / "large"
    target.write_bytes(value[:1_000_001])
    served.curl("-C", "-", "-o", str(target), f"{served.url}/trees/t/large")
    assert target.read_bytes() == value
    # An upload without a length, in chunks.
    assert client.put("/trees/t/chunked", content=iter([value, value])).status_code == 201
    assert client.get("/trees/t/chunked").content == value * 2


def check_backup(served):
    target, restored = FOLDER / "music.dump", FOLDER / "restored"
    served.curl("-o", str(target), f"{served.url}/backup")
    with served.client.stream("GET", "/backup") as reply:
        assert re.fullmatch(r'attachment; filename="braiddb-\d+\.dump"', reply.headers["content-disposition"])
        assert sum(len(part) for part in reply.iter_bytes()) > 1000
    subprocess.run([BRAID, "load", str(target), str(restored)], check=True, capture_output=True)
    copy = Served(restored)
    for path in ["/trees/t/large", "/trees/t/chunked"]:
        assert copy.client.get(path).content == served.client.get(path).content
    copy.kill()
    target.write_bytes(target.read_bytes()[:-1])
    refused = subprocess.run([BRAID, "load", str(target), "--check"], capture_output=True, text=True)
    assert refused.returncode != 0 and refused.stderr, refused


def check_description(served):
    openapi_spec_validator.validate(served.client.get("/openapi.json").json())


class Follower:
    """Applies whole commits of the change stream, and keeps the position behind the last one."""

    def __init__(self, position):
        self.position, self.keys = position, []

    def follow(self, events, enough):
        unfinished = []
        for event in events:
            if event.event == "change":
                unfinished.append(json.loads(event.data)["key"])
            elif event.event == "commit":
                assert json.loads(event.data)["changes"] == len(unfinished)
                self.keys += unfinished
                self.position, unfinished = event.id, []
                if len(self.keys) >= enough:
                    return

    def with_httpx(self, served, enough):
        headers = {"Last-Event-ID": self.position}
        try:
            with httpx_sse.connect_sse(served.client, "GET", "/changes?tree=s", headers=headers) as source:
                self.follow(source.iter_sse(), enough)
        except httpx.TransportError:
            pass  # The server was killed.

    def with_curl(self, served, commits):
        url = f"{served.url}/changes?tree=s&limit={commits}"
        text = served.curl("-N", "-H", f"Last-Event-ID: {self.position}", url).decode()
        self.follow(httpx_sse.EventSource(httpx.Response(
            200, headers={"content-type": "text/event-stream"}, text=text)).iter_sse(), sys.maxsize)


def check_streams():
    database = new_database("streams")
    served = Served(database)
    assert served.client.put("/trees/s").status_code == 201
    follower = Follower(served.client.get("/trees/s/").headers["braid-version"])
    number = 0

    def write(count):
        nonlocal number
        try:
            with httpx.Client(base_url=served.url, headers=HEADERS, timeout=PATIENCE) as client:
                for _ in range(count):
                    number += 1
                    puts = [{"op": "put", "tree": "s", "key": f"{number:06} {part}", "value": ""} for part in "abc"]
                    client.post("/batch", json=puts).raise_for_status()
        except httpx.TransportError:
            pass  # The server was killed: this batch may be there or not.

    for kill in range(4):
        writer = threading.Thread(target=write, args=(100_000,))
        writer.start()
        follower.with_httpx(served, len(follower.keys) + 90)
        served.kill()
        writer.join()
        # The same port, as a client expects it.
        served = Served(database, served.address)
    write(10)
    last = f"{number:06} c"
    while not follower.keys or follower.keys[-1] != last:
        follower.with_curl(served, 1)
    stored = [record["key"] for record in served.client.get("/trees/s/?limit=1000000&values=false").json()["records"]]
    assert len(stored) > 4 * 90 and follower.keys == stored, f"{len(follower.keys)} changes of {len(stored)}"
    served.kill()
    return len(stored)


served = Served(new_database("records"))
check_conditions(served)
check_ranges(served)
check_backup(served)
check_description(served)
served.kill()
changes = check_streams()
version = subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout.split()[1]
print(f"curl {version} and httpx {httpx.__version__}: conditions, ranges, a backup, and {changes} changes across 4 kills agree")
