"""Clicks through the page of `braid serve` in a headless Chromium: see check-page.sh.

Each scene starts servers on databases of its own in a temporary folder. A scene fails if the page
shows something else than expected, if the browser's console has an error or a refused load that the
scene does not expect, or if the page is wider than the window.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

from playwright.sync_api import Error, expect, sync_playwright

import slow_disk

TOKEN = "token-of-the-page-checks"
PATIENCE_MS = 30_000
# Values that would run or load something if the page took them for markup.
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


class Server:
    """`braid serve` on a database."""

    def __init__(self, braid, db, *options, environment=None):
        self.command = [braid, "serve", str(db), "--listen", "127.0.0.1:0", *options]
        self.environment = environment or {}
        self.start()

    def start(self):
        environment = {**os.environ, "BRAID_TOKEN": TOKEN, **self.environment}
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines = []
        match = None
        while not match:
            line = self.process.stderr.readline()
            assert line, f"the server did not start: {''.join(self.lines)}"
            self.lines.append(line)
            match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        # A server whose log nobody reads would wait for the full pipe.
        self.reader = threading.Thread(target=self.lines.extend, args=[self.process.stderr], daemon=True)
        self.reader.start()
        self.port = int(match[1])
        self.url = f"http://127.0.0.1:{self.port}"
        # A later start listens at the same port.
        self.command[4] = f"127.0.0.1:{self.port}"

    def stop(self):
        self.process.terminate()
        self.await_end()

    def kill(self):
        self.process.kill()
        self.await_end()

    def await_end(self):
        self.process.wait(60)
        self.reader.join()
        self.process.stderr.close()

    def ask(self, method, path, body=b"", **headers):
        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(self.url + path, data=data if method in ("PUT", "POST") else None, method=method)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.read()

    def batch(self, tree, records):
        operations = [{"op": "put", "tree": tree, "key": key, "value": value} for key, value in records]
        self.ask("POST", "/batch", json.dumps(operations))


class Watched:
    """A page whose errors are collected."""

    def __init__(self, browser, url, **context):
        context.setdefault("viewport", {"width": 1360, "height": 900})
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.errors = []
        self.expected = []
        self.requests = []
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        # Violations of the policy also come as errors of the console, but not in all cases.
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error('policy violated: ' + event.violatedDirective))"
        )
        self.url = url

    def open(self, part="", with_token=True):
        fragment = f"token={TOKEN}&/{part}" if with_token else f"/{part}"
        self.page.goto(f"{self.url}/#{fragment}")
        return self.page

    def expects(self, pattern):
        """Errors with this text are part of the scene."""
        self.expected.append(re.compile(pattern))

    def check(self):
        wrong = [text for text in self.errors if not any(pattern.search(text) for pattern in self.expected)]
        assert not wrong, f"errors in the console: {wrong}"
        assert not any(TOKEN in url for url in self.requests), "the token is in the URL of a request"
        foreign = [url for url in self.requests if not url.startswith((self.url, "blob:", "data:"))]
        assert not foreign, f"requests to other origins: {foreign}"

    def check_width(self):
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"the page is {wide} pixels wider than the window"

    def close(self):
        # Handlers that still wait for an answer would fail, in the next scene.
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.close()


class Checks:
    def __init__(self, options, browser, folder):
        self.braid = options.braid
        self.browser = browser
        self.folder = folder
        self.screens = options.screens and pathlib.Path(options.screens)
        if self.screens:
            self.screens.mkdir(parents=True, exist_ok=True)

    def create(self, name):
        db = self.folder / name
        self.run("create", db)
        return db

    def run(self, *command):
        subprocess.run([self.braid, *map(str, command)], check=True, capture_output=True)

    @contextlib.contextmanager
    def serve(self, db, *options, **how):
        server = Server(self.braid, db, *options, **how)
        try:
            yield server
        finally:
            server.stop()

    @contextlib.contextmanager
    def browse(self, server, **context):
        watched = Watched(self.browser, server.url, **context)
        try:
            yield watched
            watched.check()
        finally:
            watched.close()

    def shoot(self, page, name):
        if self.screens:
            page.screenshot(path=self.screens / f"{name}.png", full_page=True)

    @contextlib.contextmanager
    def music(self, name, *options):
        """A server for a small database with text, JSON, integers, tuples, bytes and hostile values."""
        with self.serve(self.create(name), "--write", *options) as server:
            fill(server)
            yield server

    # ------------------------------------------------------------------------------------ scenes

    def scene_token(self):
        with self.music("token") as server, self.browse(server) as watched:
            watched.expects(r"status of 401")
            page = watched.open(with_token=False)
            expect(page.get_by_role("heading", name="This server asks for its token")).to_be_visible()
            expect(page.get_by_label("Token")).to_be_focused()
            page.keyboard.type("a wrong token, of this length")
            page.keyboard.press("Enter")
            expect(page.get_by_text("does not accept this token")).to_be_visible()
            self.shoot(page, "token")
            page.get_by_label("Token").fill(TOKEN)
            page.keyboard.press("Enter")
            expect(page.locator("#live")).to_have_text("live")
            page.reload()
            expect(page.locator("#live")).to_have_text("live")
            page.get_by_role("button", name="forget token").click()
            expect(page.get_by_label("Token")).to_be_focused()
            page.reload()
            expect(page.get_by_label("Token")).to_be_visible()
            watched.open("trees")
            expect(page.get_by_role("row", name="albums")).to_be_visible()
            assert "token" not in page.url, page.url

    def scene_empty(self):
        with self.serve(self.create("empty"), "--write") as server, self.browse(server) as watched:
            page = watched.open()
            expect(page.get_by_role("heading", level=1)).to_have_text("Healthy and idle.")
            expect(page.get_by_text("has answered no requests for records yet")).to_be_visible()
            self.shoot(page, "empty")
            page.get_by_role("link", name="Trees", exact=True).click()
            expect(page.get_by_text("the database has no trees yet")).to_be_visible()
            page.get_by_role("button", name="New tree").click()
            page.keyboard.type("first/ä")
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", level=1)).to_have_text("Trees / first/ä")
            expect(page.get_by_text("no records here")).to_be_visible()
            page.get_by_role("link", name="Partitions", exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Partitions")
            page.get_by_role("link", name="Slow commits", exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Slow commits")

    def scene_overview(self):
        with self.music("overview") as server, self.browse(server) as watched:
            page = watched.open()
            for _ in range(20):
                server.ask("GET", "/trees/albums/")
                server.batch("albums", [(f"more {number}", "x" * 100) for number in range(50)])
            expect(page.locator(".facts")).to_contain_text("5 trees")
            expect(page.locator(".facts")).to_contain_text("on disk")
            for title in ["Commits", "Requests", "Written to disk", "Backpressure", "Cache hits", "Memory", "On disk", "Unindexed runs"]:
                expect(page.locator("figure", has_text=title).first.locator(".now")).not_to_be_empty()
            for title in ["Latency of requests", "Writing", "Space", "Memory", "Readers", "Background work", "Log and backups", "This server"]:
                expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
            expect(page.locator(".latencies").get_by_role("rowheader", name="batch")).to_be_visible()
            # A second sample draws a line.
            expect(page.locator(".chart path.stroke").first).to_have_attribute("d", re.compile(r"^M[\d. ]+L"), timeout=PATIENCE_MS)
            charts = page.get_by_role("group", name=re.compile("Charts of the last"))
            charts.focus()
            page.keyboard.press("ArrowLeft")
            expect(page.locator(".chart").first).to_have_attribute("data-time", re.compile(r"\d\d:\d\d:\d\d"))
            page.keyboard.press("Escape")
            expect(page.locator(".chart").first).to_have_attribute("data-time", "")
            watched.check_width()
            self.shoot(page, "small")

    def scene_requests(self):
        """The number above a chart is the sum of its lines: it was that of the first, reads."""
        with self.music("requests") as server, self.browse(server) as watched:

            def change(stats):
                names, rows = stats["samples"]["names"], stats["samples"]["rows"]
                for row in rows:
                    row[names.index("reads")], row[names.index("writes")] = row[0] // 500_000, row[0] // 10_000

            self.change_stats(watched.page, change)
            requests = watched.open().locator("figure", has_text="Requests").first
            expect(requests.locator(".now")).to_have_text(re.compile(r"^102(\.0)?/s$"))
            expect(requests.locator(".legend")).to_contain_text("writes 100/s")
            # Its range was that of single lines.
            expect(requests.locator(".unseen")).to_have_text(re.compile(r"^Requests: 102(\.0)?/s now, 10[12].* to 10[23]"))

    def scene_merging(self):
        """Merges look blocks up. The page called that reading, after the open of a database that nobody read."""
        with self.music("merging") as server, self.browse(server) as watched:

            def change(stats):
                names, rows = stats["samples"]["names"], stats["samples"]["rows"]
                for row in rows:
                    row[names.index("last_sequence")] = row[names.index("reads")] = 7
                    row[names.index("merges")] = row[names.index("cache_hits")] = row[0] // 10_000

            self.change_stats(watched.page, change)
            expect(watched.open().get_by_role("heading", level=1)).to_have_text("Healthy, merging.")

    def scene_long_merge(self):
        """A merge that still runs is not counted yet. The page called its lookups of blocks reading."""
        with self.music("long-merge") as server, self.browse(server) as watched:
            running = [{"work": "flush", "ran_for_us": 7}, {"work": "split of partition 3", "ran_for_us": 9_000_000}]

            def change(stats):
                names, rows = stats["samples"]["names"], stats["samples"]["rows"]
                for row in rows:
                    row[names.index("last_sequence")] = row[names.index("reads")] = row[names.index("merges")] = 7
                    row[names.index("cache_hits")] = row[0] // 10_000
                stats["running"] = running

            self.change_stats(watched.page, change)
            heading = watched.open().get_by_role("heading", level=1)
            expect(heading).to_have_text("Healthy, merging.")
            running.pop()
            expect(heading).to_have_text("Healthy, reading.")

    def scene_readers(self):
        """A scan that is not continued keeps its snapshot, which pins old versions."""
        with self.music("readers") as server, self.browse(server) as watched:
            server.ask("GET", "/trees/albums/?limit=1")
            page = watched.open()
            readers = page.locator(".panel", has=page.get_by_role("heading", name="Readers"))
            expect(readers).to_contain_text(re.compile(r"open1the oldest\d"))
            server.batch("albums", [("after", "the snapshot")])
            expect(readers).to_contain_text("behind1 commit")

    def scene_own_polling(self):
        """The page asks for the sizes of trees, whose estimates read blocks: that is no work of others."""
        with self.music("polling") as server:
            server.batch("albums", [(f"key {number:06}", "v" * 500) for number in range(8000)])
        self.run("compact", self.folder / "polling")
        with self.serve(self.folder / "polling", "--write") as server, self.browse(server) as watched:
            page = watched.open()
            ends = time.monotonic() + 10
            while time.monotonic() < ends:
                expect(page.get_by_role("heading", level=1)).to_have_text("Healthy and idle.")
                server.ask("GET", "/trees")
                server.ask("GET", "/metrics")
                time.sleep(0.5)
            # Records that the page shows count neither, nor the snapshot that it keeps.
            page.get_by_role("link", name="Trees", exact=True).click()
            page.get_by_role("link", name="albums").click()
            page.get_by_role("button", name="Next page").click()
            expect(page.get_by_text("101 to 200")).to_be_visible()
            page.get_by_role("link", name="Overview").click()
            ends = time.monotonic() + 6
            while time.monotonic() < ends:
                expect(page.get_by_role("heading", level=1)).to_have_text("Healthy and idle.")
                time.sleep(0.5)
            for _ in range(20):
                server.ask("GET", "/trees/albums/key%20000001")
            expect(page.get_by_role("heading", level=1)).to_have_text("Healthy, reading.")

    def scene_browser(self):
        with self.music("browser") as server, self.browse(server) as watched:
            page = watched.open("trees")
            page.get_by_role("link", name="albums").click()
            grid = page.get_by_role("grid", name="Records of albums")
            expect(grid.get_by_role("row", name="artist 000")).to_be_visible()
            expect(page.get_by_text("1 to 100")).to_be_visible()
            page.get_by_role("button", name="Next page").click()
            expect(grid.get_by_role("row", name="artist 100")).to_be_visible()
            page.get_by_role("button", name="Previous page").click()
            expect(grid.get_by_role("row", name="artist 000")).to_be_visible()
            page.get_by_label("Prefix").fill("artist 12")
            page.keyboard.press("Enter")
            expect(page.get_by_text("1 to 10, the end")).to_be_visible()
            page.get_by_label("backwards").check()
            expect(grid.locator("tbody tr").first).to_contain_text("artist 129")
            grid.locator("tbody tr").first.click()
            record = page.get_by_role("complementary", name="Record")
            expect(record.locator("pre")).to_contain_text('"title": "Title 129"')
            record.get_by_role("button", name="hexadecimal").click()
            expect(record.locator("pre")).to_contain_text("7b 22")
            with page.expect_download() as download:
                record.get_by_role("button", name="Download").click()
            assert json.loads(pathlib.Path(download.value.path()).read_bytes())["title"] == "Title 129"
            self.shoot(page, "records")
            page.reload()
            expect(page.get_by_label("Prefix")).to_have_value("artist 12")
            expect(page.get_by_text("1 to 10, the end")).to_be_visible()

    def scene_notations(self):
        with self.music("notations") as server, self.browse(server) as watched:
            page = watched.open("trees/numbers")
            grid = page.get_by_role("grid")
            expect(grid.get_by_role("row", name="18446744073709551615")).to_be_visible()
            page.get_by_label("From").fill("18446744073709551615")
            page.keyboard.press("Enter")
            expect(page.get_by_text("1 to 1, the end")).to_be_visible()
            page.get_by_label("From").fill("seven")
            page.keyboard.press("Enter")
            expect(page.get_by_text("From: not a whole number")).to_be_visible()
            page.get_by_label("Keys").select_option("hex")
            expect(grid.get_by_role("row", name="ffffffffffffffff")).to_be_visible()
            watched.open("trees/pairs")
            page.get_by_label("Keys").select_option("tuple")
            # Above 2^53, where a JavaScript number would be another key.
            expect(grid.get_by_role("row", name='["pt",9007199254740993]')).to_be_visible()
            page.get_by_label("Prefix").fill('["pt", 9007199254740993]')
            page.keyboard.press("Enter")
            expect(page.get_by_text("1 to 1, the end")).to_be_visible()
            # The prefix holds also with a key to begin at, before it or inside.
            page.get_by_label("Prefix").fill('["pt"]')
            for start, count in [('["ab"]', 3), ('["pt", 7]', 2), ('["zz"]', 0)]:
                page.get_by_label("From").fill(start)
                page.keyboard.press("Enter")
                expect(grid.locator("tbody tr[data-at]")).to_have_count(count)
            page.get_by_label("From").fill("")
            watched.open("trees/bytes")
            expect(grid.get_by_role("row", name="00ff1010")).to_be_visible()
            grid.locator("tbody tr").first.click()
            expect(page.get_by_role("complementary").locator("pre")).to_contain_text("000000")
            watched.open("trees/hostile")
            expect(grid.get_by_role("row").filter(has_text="<script>")).to_be_visible()
            grid.locator("tbody tr").first.click()
            expect(page.get_by_role("complementary").locator("pre")).to_contain_text("<img src=x")

    def scene_many_values(self):
        with self.music("many-values") as server, self.browse(server) as watched:
            server.ask("PUT", "/trees/tags?kind=multi")
            for tag in ["rock", "1991"]:
                server.ask("PUT", "/trees/tags/ten", tag)
            page = watched.open("trees/tags")
            expect(page.locator(".facts")).to_contain_text("many values per key")
            rows = page.get_by_role("grid").locator("tbody tr")
            expect(rows).to_have_count(2)
            rows.nth(1).click()
            record = page.get_by_role("complementary", name="Record")
            expect(record.locator("pre")).to_have_text("rock")
            expect(record.get_by_role("button", name="Edit")).to_have_count(0)
            # The list of trees, which knows the kind, comes after the click.
            held = []
            trees = re.compile(r"/trees(\?|$)")
            page.route(trees, lambda route: held.append(route))
            page.reload()
            rows.nth(1).click()
            expect(record).to_contain_text("Reading the record.")
            page.unroute(trees)
            # Those of the page before are cancelled.
            for route in held:
                with contextlib.suppress(Error):
                    route.continue_()
            expect(record.locator("pre")).to_have_text("rock")
            expect(record.get_by_role("button", name="Edit")).to_have_count(0)

    def scene_edit(self):
        with self.music("edit") as server, self.browse(server) as watched:
            watched.expects(r"status of 412")
            page = watched.open("trees/albums?prefix=artist%20000")
            record = page.get_by_role("complementary", name="Record")
            page.get_by_role("grid").locator("td.key").first.click()
            record.get_by_role("button", name="Edit").click()
            area = record.get_by_label("Value", exact=True)
            expect(area).to_be_focused()
            area.fill('{"title": "changed"}')
            record.get_by_role("button", name="Save").click()
            expect(record.locator("pre")).to_contain_text('"title": "changed"')
            assert server.ask("GET", "/trees/albums/artist%20000") == b'{"title": "changed"}'
            # Another client changes the record after it was read.
            record.get_by_role("button", name="Edit").click()
            area.fill("mine")
            server.ask("PUT", "/trees/albums/artist%20000", "theirs")
            record.get_by_role("button", name="Save").click()
            expect(record.get_by_text("The record changed meanwhile.")).to_be_visible()
            expect(record.locator(".conflict pre")).to_have_text("theirs")
            assert server.ask("GET", "/trees/albums/artist%20000") == b"theirs", "overwritten"
            self.shoot(page, "conflict")
            record.get_by_role("button", name="Keep my text").click()
            record.get_by_role("button", name="Save").click()
            expect(record.locator("pre")).to_have_text("mine")
            assert server.ask("GET", "/trees/albums/artist%20000") == b"mine"
            # The delete of a version that is gone.
            server.ask("PUT", "/trees/albums/artist%20000", "again theirs")
            record.get_by_role("button", name="Delete").click()
            record.get_by_role("button", name="Delete it").click()
            expect(record.get_by_text("was not deleted")).to_be_visible()
            expect(record.locator("pre")).to_have_text("again theirs")
            record.get_by_role("button", name="Delete").click()
            record.get_by_role("button", name="Delete it").click()
            expect(record.get_by_text("The record is deleted.")).to_be_visible()
            expect(page.get_by_text("no records here")).to_be_visible()
            page.get_by_role("button", name="New record").click()
            record.get_by_label("Key, as text").fill("artist 001")
            area.fill("taken")
            record.get_by_role("button", name="Save").click()
            expect(record.get_by_text("A record has this key")).to_be_visible()
            record.get_by_label("Key, as text").fill("artist 000/new ?%")
            record.get_by_label("Lifetime in seconds").fill("3600")
            record.get_by_role("button", name="Save").click()
            expect(record.get_by_text("in 59 min").or_(record.get_by_text("in 60 min"))).to_be_visible()
            # A change keeps the time at which the record expires.
            record.get_by_role("button", name="Edit").click()
            record.get_by_label("Value, as").select_option("hex")
            area.fill("00 ff 10")
            record.get_by_role("button", name="Save").click()
            expect(record.get_by_text("in 59 min").or_(record.get_by_text("in 60 min"))).to_be_visible()
            path = "/trees/albums/" + urllib.parse.quote("artist 000/new ?%", safe="")
            assert server.ask("GET", path) == b"\x00\xff\x10"

    def scene_slow_answer(self):
        """A record whose answer comes after that of the next one changes nothing of it."""
        with self.music("slow-answer") as server, self.browse(server) as watched:
            page = watched.open("trees/albums")
            rows = page.get_by_role("grid").locator("tbody tr")
            record = page.get_by_role("complementary", name="Record")
            held = []
            page.route("**/trees/albums/artist%20000*", lambda route: route.continue_() if held else held.append(route))
            rows.nth(1).click()
            expect(record.locator("pre")).to_contain_text('"title": "Title 1"')
            rows.nth(0).click()
            expect(record.get_by_text("Reading the record.")).to_be_visible()
            expect(record.get_by_role("button")).to_have_count(0)
            rows.nth(1).click()
            expect(record.locator("pre")).to_contain_text('"title": "Title 1"')
            with page.expect_response(lambda response: response.request.method == "GET" and "artist%20000" in response.url):
                held[0].continue_()
            page.wait_for_timeout(200)
            record.get_by_role("button", name="Edit").click()
            expect(record.get_by_label("Value", exact=True)).to_have_value(re.compile('"Title 1"'))
            # A value of one line may become long, but not that long.
            server.ask("PUT", "/trees/albums/artist%20000", "[" * 16000 + "]" * 16000)
            rows.nth(0).click()
            expect(record.get_by_text("32,000 bytes")).to_be_visible()

    def scene_read_only(self):
        db = self.create("read-only")
        with self.serve(db, "--write") as server:
            fill(server)
        with self.serve(db) as server, self.browse(server) as watched:
            page = watched.open("trees/albums")
            expect(page.locator("#access")).to_have_text("read-only, follows its owner")
            page.get_by_role("grid").locator("td.key").first.click()
            record = page.get_by_role("complementary", name="Record")
            expect(record.get_by_role("button", name="Download")).to_be_visible()
            for name in ["Edit", "Delete", "New record"]:
                expect(page.get_by_role("button", name=name)).to_have_count(0)

    def scene_partitions(self):
        with self.music("partitions") as server:
            for round in range(6):
                server.batch("albums", [(f"key {number:06}", f"{round}" * 600) for number in range(8000)])
        self.run("compact", self.folder / "partitions")
        with self.serve(self.folder / "partitions", "--write") as server, self.browse(server) as watched:
            page = watched.open("partitions")
            grid = page.get_by_role("grid", name="Partitions")
            expect(grid.locator("tbody tr").first).to_contain_text("the first key")
            canvas = page.locator("canvas")
            expect(canvas).to_have_attribute("aria-label", re.compile(r"Map of \d+ partition"))
            painted = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 200, 60).data.some((byte) => byte > 0)"
            assert page.evaluate(painted), "an empty map"
            canvas.focus()
            page.keyboard.press("ArrowRight")
            expect(page.get_by_role("heading", name="Partition 1", exact=True)).to_be_visible()
            expect(page.locator(".detail table tbody tr").first).to_contain_text(re.compile(r"(?:run|unindexed) \d+"))
            page.get_by_label("Tree", exact=True).fill("absent")
            expect(page.get_by_text("No tree is named absent")).to_be_visible()
            page.get_by_label("Tree", exact=True).fill("albums")
            expect(grid.locator("tbody tr").first).to_be_visible()
            self.shoot(page, "partitions")

    def scene_slow_commits(self):
        """A real slow commit: the process is stopped in the middle of commits."""
        with self.music("slow") as server, self.browse(server) as watched:
            page = watched.open("commits")
            expect(page.locator(".lead")).to_contain_text(re.compile("None of .* was slow"))
            ended = threading.Event()

            def write():
                while not ended.is_set():
                    server.batch("albums", [("slow", "x" * 1000)])

            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                writers = [pool.submit(write) for _ in range(2)]
                deadline = time.monotonic() + 60
                while not self.stats(server)["slow_commits"]:
                    assert time.monotonic() < deadline, "no commit was slow"
                    time.sleep(0.2)
                    server.process.send_signal(signal.SIGSTOP)
                    time.sleep(0.3)
                    server.process.send_signal(signal.SIGCONT)
                ended.set()
                for writer in writers:
                    writer.result()
            stats = self.stats(server)
            slowest = stats["slow_commits"][-1]
            assert slowest["took_us"] > 100_000, slowest
            first = page.locator("table.slow tbody tr").first
            expect(first).to_contain_text(f"Commit {slowest['sequence']:,}")
            expect(first.locator("td").nth(3)).to_contain_text(explanation(slowest["cause"]))
            expect(first.locator("td").nth(2)).not_to_be_empty()
            names = {total["cause"] for total in stats["slow_commit_totals"]}
            assert names == set(EXPLANATIONS), f"the server has the causes {names}"

    def scene_causes_of_slow_commits(self):
        """The page explains each cause, as the first one of a commit and as that of a commit before it."""
        with self.music("causes") as server, self.browse(server) as watched:
            now = self.stats(server)["time_us"]
            slow = [
                {
                    "sequence": 100 + at, "time_us": now - 1000 * (len(EXPLANATIONS) - at), "took_us": 200_000 + at, "cause": cause,
                    "parts": [{"name": cause, "us": 180_000}, {"name": "write", "us": 20_000 + at}], "behind": cause if cause != "queue" else "sync",
                    "background": {"work": "flush", "ran_for_us": 5_000_000}, "records": 1, "bytes": 10,
                }
                for at, cause in enumerate(EXPLANATIONS)
            ]
            totals = [{"cause": cause, "commits": at + 1, "part_us": 1000 * (at + 1)} for at, cause in enumerate(EXPLANATIONS)]
            self.change_stats(watched.page, lambda stats: stats.update(slow_commits=slow, slow_commit_totals=totals))
            page = watched.open("commits")
            rows = page.locator("table.slow tbody tr")
            expect(rows).to_have_count(len(EXPLANATIONS))
            for at, cause in enumerate(reversed(list(EXPLANATIONS))):
                why = rows.nth(at).locator("td").nth(3)
                expect(why).to_contain_text(EXPLANATIONS[cause])
                expect(why).to_contain_text(f"held up by {'sync' if cause == 'queue' else cause.replace('_', ' ')}; flush had run for 5.00 s")
            for at, cause in enumerate(EXPLANATIONS):
                total = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=cause.replace("_", " "), exact=True))
                expect(total).to_contain_text(str(at + 1))
            watched.check_width()
            self.shoot(page, "slow-commits")
            page.get_by_role("link", name="Overview").click()
            expect(page.get_by_text("10 slow commits in the last minute")).to_be_visible()

    # A slow disk, full memory, a long merge and a full disk: page, `top`, `/stats` and log name each.

    def scene_delayed_by_sync(self):
        self.delayed("sync", {"log_ms": 300}, size=100)

    def scene_delayed_by_full_memory(self):
        self.delayed("memory_full", {"flush_ms": 1500}, work="flush")

    def scene_delayed_by_merge(self):
        self.delayed("merge", {"merge_ms": 3000}, size=190_000, work=".* of partition")

    def scene_delayed_by_full_disk(self):
        self.delayed("full_disk", {"flush_ms": 1500, "failure": errno.ENOSPC})

    def delayed(self, cause, numbers, size=60_000, work=None):
        """Writes to a database on a disk with these delays until a commit is slow for this cause."""
        if not slow_disk.is_possible():
            print("  SKIPPED: needs Linux and a C compiler")
            return
        disk = slow_disk.SlowDisk(self.folder)
        name, shown = f"delayed-{cause}", cause.replace("_", " ")
        options = ["--write", "--memory", "4M", "-v"]
        with self.serve(self.create(name), *options, environment=disk.environment) as server, self.browse(server) as watched:
            server.ask("PUT", "/trees/albums")
            top = slow_disk.Terminal([self.braid, "top", server.url, "--interval", "0.3"], {"BRAID_TOKEN": TOKEN})
            page = watched.open("commits")
            expect(page.locator(".lead")).to_contain_text("was slow")
            disk.set(**numbers)
            found, deadline, number = None, time.monotonic() + 60, 0
            while not found:
                assert time.monotonic() < deadline, f"no commit was slow for {cause}: {self.stats(server)['slow_commits']}"
                records = [(os.urandom(8).hex(), os.urandom(size // 100).hex()) for _ in range(50)]
                try:
                    server.batch("albums", records)
                except urllib.error.HTTPError as error:
                    assert cause == "full_disk" and error.code == 507, error.read()
                number += 1
                if number % 10 == 0 or size < 1000:
                    # On a busy machine other parts can make a commit slow.
                    commits = reversed(self.stats(server)["slow_commits"])
                    found = next((commit for commit in commits if commit["cause"] == cause and commit["parts"][0]["us"] >= 50_000), None)
            assert found["parts"][0]["name"] == cause, found
            if work:
                assert re.match(work, found["background"]["work"]), found
            row = page.locator("table.slow tbody tr").filter(has_text=explanation(cause)).first
            expect(row).to_be_visible()
            top.await_text(rf"by cause: .*{shown} \d", 30)
            top.await_text(rf"commit (?:failed|[\d,]+): {shown} \d+(?:\.\d+)? m?s", 30)
            if cause == "full_disk":
                top.await_text(r"a request failed .* ago: the disk that holds", 30)
            self.shoot(page, name)
            # The engine logs at most one slow commit a second.
            assert top.end() == 0
            disk.set()
        log = "".join(server.lines)
        assert re.search(rf"took .*: .*{shown} \d", log), log
        print(f"  {shown}: {duration(found['took_us'])} after {number} batches")

    def scene_old_failure(self):
        """A request that failed long ago does not colour the verdict."""
        with self.music("old-failure") as server, self.browse(server) as watched:
            age = 60e6

            def change(stats):
                failure = {"time_us": stats["time_us"] - age, "status": 500, "title": "Database damaged", "detail": "a block is damaged"}
                stats["server"]["last_failure"] = failure

            self.change_stats(watched.page, change)
            page = watched.open()
            expect(page.get_by_role("heading", level=1)).to_have_text("Needs attention.")
            age = 3600e6
            expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^Healthy"))
            expect(page.locator(".findings li[data-level=note]")).to_contain_text("A request met damage")

    def scene_server_hangs(self):
        """A server that takes a request and never answers: the page says so, and goes on trying."""
        with self.music("hangs") as server, self.browse(server) as watched:
            page = watched.open()
            expect(page.locator("#live")).to_have_text("live")
            server.process.send_signal(signal.SIGSTOP)
            try:
                expect(page.get_by_role("alert").filter(has_text="The server does not answer")).to_be_visible()
            finally:
                server.process.send_signal(signal.SIGCONT)
            expect(page.locator("#live")).to_have_text("live")

    def scene_names_of_steps(self):
        """Browsers take `.` and `..` as steps in a path: the page read another resource."""
        with self.music("steps") as server, self.browse(server) as watched:
            page = watched.open("trees")
            page.get_by_role("button", name="New tree").click()
            for name in [".", ".."]:
                page.get_by_label("Name of the new tree").fill(name)
                page.keyboard.press("Enter")
                expect(page.get_by_text("Browsers take this name as a step")).to_be_visible()
                watched.open(f"trees/{name}")
                expect(page.locator("#search-error")).to_contain_text(f"a browser cannot ask for the tree {name}:")
                watched.open("trees")
                page.get_by_role("button", name="New tree").click()

    def scene_link_of_another_site(self):
        """A link of a foreign page opens the page. A form or a script of it reaches nothing."""
        with self.music("link") as server:
            body = f'<a href="{server.url}/#token={TOKEN}&/trees">open</a><script>fetch("{server.url}/trees").catch(() => document.title = "refused")</script>'

            class Foreign(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html")
                    self.end_headers()
                    self.wfile.write(body.encode())

                def log_message(self, *arguments):
                    pass

            foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
            threading.Thread(target=foreign.serve_forever, daemon=True).start()
            context = self.browser.new_context()
            try:
                page = context.new_page()
                page.goto(f"http://localhost:{foreign.server_port}/")
                expect(page).to_have_title("refused")
                page.get_by_role("link", name="open").click()
                expect(page.locator("#live")).to_have_text("live")
                expect(page.get_by_role("row", name="albums")).to_be_visible()
            finally:
                context.close()
                foreign.shutdown()

    def scene_event_source(self):
        """EventSource with a ticket: resumes by itself, and after a kill with a new ticket. No loss, no repeat."""
        with self.music("events", "--keep", "64M") as server, self.browse(server) as watched:
            watched.expects(r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|status of 401")
            page = watched.open("trees")
            expect(page.locator("#live")).to_have_text("live")
            # The server ends each stream after three commits: the browser connects again with Last-Event-ID.
            page.evaluate(FOLLOW, [TOKEN, "/changes?tree=albums&limit=3"])
            self.wait_until(page, "window.followed.opened === 1")
            expected = [f"event {number:03}" for number in range(12)]
            for key in expected[:7]:
                server.batch("albums", [(key, "v")])
            self.wait_until(page, "window.followed.keys.length === 7")
            assert page.evaluate("window.followed.tickets") == 1, "the browser did not connect again by itself"
            server.batch("albums", [(expected[7], "v")])
            server.kill()
            server.start()
            for key in expected[8:]:
                server.batch("albums", [(key, "v")])
            self.wait_until(page, "window.followed.keys.length >= 12")
            followed = page.evaluate("window.followed")
            assert followed["keys"] == expected, followed
            assert followed["tickets"] >= 2 and len(set(followed["ids"])) == 12, followed

    def wait_until(self, page, expression):
        """`wait_for_function` evaluates its text inside the page, which the policy of the page forbids."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not page.evaluate(expression):
            assert time.monotonic() < deadline, f"never {expression}: {page.evaluate('window.followed')}"
            page.wait_for_timeout(50)

    def stats(self, server, query=""):
        return json.loads(server.ask("GET", f"/stats{query}"))

    def change_stats(self, page, change):
        """Changes the statistics that the page gets."""

        def answer(route):
            response = route.fetch()
            stats = response.json()
            change(stats)
            route.fulfill(response=response, json=stats)

        page.route("**/stats?*", answer)

    def scene_keyboard(self):
        """From the first key to an edited record without the mouse, with a visible focus at each stop."""
        with self.music("keyboard") as server, self.browse(server) as watched:
            page = watched.open("trees")
            expect(page.get_by_role("row", name="albums")).to_be_visible()
            press = page.keyboard.press
            press("Tab")
            expect(page.locator("#skip")).to_be_focused()
            self.tab_to(page, "#tree-filter")
            page.keyboard.type("alb")
            expect(page.get_by_text("1 of 5 trees")).to_be_visible()
            self.tab_to(page, "table[role=grid]")
            press("Enter")
            expect(page.get_by_role("heading", level=1)).to_have_text("Trees / albums")
            expect(page.get_by_role("row", name="artist 000")).to_be_visible()
            self.tab_to(page, "table[role=grid]")
            for _ in range(3):
                press("ArrowDown")
            current = page.locator("tr.current")
            expect(current).to_contain_text("artist 003")
            press("End")
            expect(current).to_contain_text("artist 099")
            press("PageUp")
            press("Home")
            press("ArrowDown")
            press("Enter")
            expect(page.get_by_role("complementary", name="Record")).to_be_focused()
            expect(page.locator("h2.key")).to_have_text("artist 001")
            self.tab_to(page, "button.main:has-text('Edit')")
            press("Enter")
            expect(page.get_by_label("Value", exact=True)).to_be_focused()
            press("ControlOrMeta+a")
            page.keyboard.type("by keys")
            self.tab_to(page, "button.main:has-text('Save')")
            press("Enter")
            expect(page.locator("pre")).to_have_text("by keys")

    def tab_to(self, page, selector):
        for _ in range(60):
            if page.evaluate("(selector) => document.activeElement.matches(selector.split(':has-text')[0]) ", selector):
                wanted = re.search(r":has-text\('(.*)'\)", selector)
                if not wanted or wanted[1] in page.evaluate("document.activeElement.textContent"):
                    return
            page.keyboard.press("Tab")
            seen = page.evaluate("""() => {
                const element = document.activeElement;
                const style = getComputedStyle(element);
                const row = element.querySelector?.('tr.current td');
                const border = element.matches('aside') && style.borderColor !== '';
                return element === document.body || style.outlineStyle !== 'none' || border || (row && getComputedStyle(row).boxShadow !== 'none')
                    || element.querySelector?.('td.empty') !== null;
            }""")
            assert seen, f"no visible focus at {page.evaluate('document.activeElement.outerHTML.slice(0, 120)')}"
        raise AssertionError(f"the tab key does not reach {selector}")

    def scene_phone(self):
        with self.music("phone") as server, self.browse(server, viewport={"width": 320, "height": 640}) as watched:
            explanation_shown = "It waited behind commits of other threads, held up by sync"
            slow = [{
                "sequence": 7, "time_us": self.stats(server)["time_us"], "took_us": 200_000, "cause": "queue", "behind": "sync",
                "parts": [{"name": "queue", "us": 190_000}, {"name": "write", "us": 10_000}], "background": None, "records": 1, "bytes": 10,
            }]
            self.change_stats(watched.page, lambda stats: stats.update(slow_commits=slow))
            for part in ["", "trees", "trees/albums", "partitions", "commits"]:
                page = watched.open(part)
                expect(page.locator("#live")).to_have_text("live")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                if part == "trees/albums":
                    # The list of trees, which is a grid too, may still be there.
                    key = page.get_by_role("grid").locator("td.key").first
                    expect(key).to_be_visible()
                    key.click()
                    expect(page.get_by_role("complementary").locator("pre")).to_be_visible()
                    # Keys that differ at their ends were cut to the same text.
                    assert not page.evaluate("[...document.querySelectorAll('td.key')].some((cell) => cell.scrollWidth > cell.clientWidth)")
                if part == "partitions":
                    expect(page.get_by_role("grid").locator("td.key").first).to_be_visible()
                if part == "commits":
                    why = page.locator("table.slow tbody tr td").nth(3)
                    expect(why).to_contain_text(explanation_shown)
                    assert why.bounding_box()["width"] > 200, "the explanation has a narrow column"
                nav = page.evaluate("document.getElementById('nav').scrollWidth - document.getElementById('nav').clientWidth")
                assert nav <= 0, "links are cut"
                watched.check_width()
                self.shoot(page, f"phone-{part.replace('/', '-') or 'overview'}")

    def scene_dark(self):
        """Dark colours follow the system, and text has enough contrast in both."""
        with self.music("dark") as server:
            for scheme, is_dark in [("light", False), ("dark", True)]:
                with self.browse(server, color_scheme=scheme) as watched:
                    page = watched.open()
                    expect(page.locator("#live")).to_have_text("live")
                    expect(page.locator(".panel").first).to_be_visible()
                    contrasts = page.evaluate(CONTRASTS)
                    assert (contrasts["paper"] < 0.2) == is_dark, contrasts
                    low = {name: value for name, value in contrasts["names"].items() if value < 4.5}
                    assert not low, f"low contrast in {scheme}: {low}"
                    self.shoot(page, scheme)

    def scene_many_trees(self):
        with self.serve(self.create("many"), "--write") as server:
            names = [f"tree-{number:05}" for number in range(10_000)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda name: server.ask("PUT", f"/trees/{name}"), names))
            server.batch("tree-07777", [("k", "v")])
            with self.browse(server) as watched:
                began = time.monotonic()
                page = watched.open("trees")
                expect(page.get_by_text("10,000 trees")).to_be_visible()
                shown = time.monotonic() - began
                rows = page.locator("tbody tr[data-at]").count()
                assert rows < 200, f"{rows} rows are in the document"
                page.get_by_role("grid").focus()
                page.keyboard.press("End")
                expect(page.locator("tr.current")).to_contain_text("tree-09999")
                began = time.monotonic()
                page.get_by_label("Filter").fill("7777")
                expect(page.get_by_text("1 of 10,000 trees")).to_be_visible()
                filtered = time.monotonic() - began
                self.shoot(page, "many-trees")
                page.get_by_role("link", name="tree-07777").click()
                expect(page.get_by_role("row", name="k v")).to_be_visible()
                print(f"  10,000 trees: shown after {shown:.2f} s, filtered in {filtered:.2f} s")

    def scene_server_gone(self):
        with self.music("gone") as server, self.browse(server) as watched:
            watched.expects(r"ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET")
            page = watched.open()
            expect(page.locator("#live")).to_have_text("live")
            server.stop()
            expect(page.get_by_role("alert").filter(has_text="The server does not answer")).to_be_visible()
            expect(page.locator("#live")).to_have_text("no answer")
            self.shoot(page, "gone")
            server.start()
            expect(page.locator("#live")).to_have_text("live")
            expect(page.get_by_text("The server does not answer")).to_have_count(0)

    def scene_damage(self):
        db = self.create("damage")
        with self.serve(db, "--write") as server:
            server.ask("PUT", "/trees/albums")
            for round in range(4):
                server.batch("albums", [(f"key {number:05}", f"{round} {os.urandom(300).hex()}") for number in range(4000)])
        self.run("compact", db)
        run = max(db.glob("*.run"), key=lambda path: path.stat().st_size)
        with open(run, "r+b") as file:
            file.seek(run.stat().st_size // 2)
            file.write(b"\xff" * 20_000)
        with self.serve(db, "--write") as server, self.browse(server) as watched:
            watched.expects(r"status of 500|ERR_INCOMPLETE_CHUNKED_ENCODING")
            page = watched.open("trees/albums")
            expect(page.get_by_role("row", name="key 00000")).to_be_visible()
            page.get_by_label("From").fill("key 02000")
            page.keyboard.press("Enter")
            expect(page.locator("#search-error")).to_contain_text(re.compile("damaged|Corrupt|corrupt|checksum", re.I))
            self.shoot(page, "damage-records")
            page.get_by_label("From").fill("")
            page.keyboard.press("Enter")
            expect(page.get_by_role("row", name="key 00000")).to_be_visible()
            page.get_by_role("link", name="Overview").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Needs attention.")
            expect(page.get_by_text("A request met damage")).to_be_visible()
            self.shoot(page, "damage")

    def scene_snapshot_gone(self):
        """The server keeps the snapshots of 64 scans: later ones push the page's out."""
        with self.music("snapshot") as server, self.browse(server) as watched:
            watched.expects(r"status of 410")
            page = watched.open("trees/albums")
            expect(page.get_by_text("1 to 100")).to_be_visible()
            for _ in range(70):
                server.ask("GET", "/trees/albums/?limit=1")
            page.get_by_role("button", name="Next page").click()
            expect(page.get_by_text("The snapshot of this search is gone")).to_be_visible()
            page.get_by_role("button", name="Search again").click()
            expect(page.get_by_text("1 to 100")).to_be_visible()


# The causes of slow commits, and parts of their explanations.
EXPLANATIONS = {
    "queue": "waited behind commits of other threads",
    "sync": "took long to sync the log",
    "memory_full": "Memtables were full",
    "merge": "Merges fell behind",
    "view_build": "while a view was built",
    "rotation": "The log began a new segment",
    "full_disk": "The disk was full",
    "lock": "excluded it",
    "conflict": "reads of its transaction were checked",
    "write": "Its bytes were prepared and written",
}

# The program of docs/http.md, with a record of what it got.
FOLLOW = """([token, path]) => {
    const followed = window.followed = { keys: [], ids: [], opened: 0, tickets: 0 };
    const headers = { Authorization: `Bearer ${token}` };
    async function follow(after) {
        let source;
        try {
            const answer = await fetch("/ticket", { method: "POST", headers });
            const { ticket } = await answer.json();
            followed.tickets += 1;
            source = new EventSource(`${path}&after=${after}&ticket=${ticket}`);
        } catch {
            return setTimeout(follow, 1000, after);
        }
        let changes = [];
        source.addEventListener("open", () => {
            followed.opened += 1;
            changes = [];
        });
        source.addEventListener("change", (event) => changes.push(JSON.parse(event.data)));
        source.addEventListener("commit", (event) => {
            after = event.lastEventId;
            followed.keys.push(...changes.map(({ key }) => key));
            followed.ids.push(after);
            changes = [];
        });
        source.addEventListener("error", () => {
            if (source.readyState === EventSource.CLOSED) setTimeout(follow, 1000, after);
        });
    }
    fetch("/trees/albums/?limit=1", { headers }).then((scan) => follow(scan.headers.get("braid-version").replaceAll('"', "")));
}"""


CONTRASTS = """() => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const hex = style.getPropertyValue(`--${name}`).trim();
        const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
            .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const names = {};
    for (const name of ["ink", "muted", "link", "bad", "slow", "good"]) {
        for (const ground of ["paper", "raised"]) names[`${name} on ${ground}`] = contrast(light(name), light(ground));
    }
    return { paper: light("paper"), names };
}"""


# It waits for an idle server, which other load on the machine can hide.
LONG = ["scene_own_polling"]


def duration(us):
    return f"{us / 1e6:.2f} s"


def explanation(cause):
    return EXPLANATIONS[cause]


def fill(server):
    for tree in ["albums", "numbers", "pairs", "bytes", "hostile"]:
        server.ask("PUT", f"/trees/{tree}")
    server.batch("albums", [(f"artist {number:03}", json.dumps({"title": f"Title {number}", "year": 1990 + number % 30, "tracks": ["One", "Two"]})) for number in range(250)])
    server.batch("numbers", [({"hex": number.to_bytes(8, "big").hex()}, str(number)) for number in [0, 1, 255, 256, 2**53 + 1, 2**64 - 1]])
    server.batch("bytes", [({"hex": "00ff" + "10" * number}, {"hex": "ff00" * 40}) for number in range(3)])
    server.batch("hostile", [(HOSTILE, HOSTILE), ("line\nbreak\u202e", "a\tb")])
    operations = [{"op": "put", "tree": "pairs", "codec": "tuple", "key": ["pt", number], "value": str(number)} for number in [7, 2**53 + 1, -3]]
    operations += [{"op": "put", "tree": "pairs", "codec": "tuple", "key": [name], "value": ""} for name in ["aa", "other"]]
    server.ask("POST", "/batch", json.dumps(operations))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", required=True, help="the program")
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--screens", help="folder for pictures of the scenes")
    parser.add_argument("--long", action="store_true", help="also the scene that needs an idle machine")
    parser.add_argument("--only", help="scenes whose names contain this text")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="braid-page-"))
    failed = []
    expect.set_options(timeout=PATIENCE_MS)
    try:
        with sync_playwright() as playwright:
            # Containers of CI have no rights for Chromium's sandbox.
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            print(f"Chromium {browser.version}")
            checks = Checks(options, browser, folder)
            scenes = [name for name in vars(Checks) if name.startswith("scene_") and (options.only or "") in name]
            if not options.long and not options.only:
                scenes = [name for name in scenes if name not in LONG]
                print(f"SKIPPED without --long: {', '.join(name.removeprefix('scene_') for name in LONG)}")
            for name in scenes:
                began = time.monotonic()
                try:
                    getattr(checks, name)()
                    print(f"{name.removeprefix('scene_')}: ok, {time.monotonic() - began:.1f} s", flush=True)
                except Exception:
                    failed.append(name)
                    # The snapshots of the page that Playwright adds are long.
                    report = traceback.format_exc().split("Aria snapshot")[0]
                    print(f"{name.removeprefix('scene_')}: FAILED\n{report}", flush=True)
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(scenes) - len(failed)} of {len(scenes)} scenes passed")
    sys.exit(1 if failed or not scenes else 0)


if __name__ == "__main__":
    main()
