"""Run mutated inputs in forked children, which are watched: time, memory, crashes, files, sockets, code.

A child handles many inputs, so that one costs milliseconds. It works in a folder of its own (`Place`), of which
only the artefact, the cache and the folder for temporary files may change.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import selectors
import shutil
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ensembed.errors import EnsembedError
from fuzz.mutations import Files, Kind, Mutator, Recipe, apply

SECONDS, MEGABYTES = 2.0, 300.0
"""What an input may take."""
_HANG = 30.0  # seconds after which a child is ended: others may have the processor
_ADDRESSES = 3 << 30  # bytes that a child may ask for beyond what it has: a bomb must not harm the machine
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RUNS = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pickle.find_class")
)
_WRITES = frozenset(
    (
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.symlink",
        "os.link",
        "os.truncate",
        "os.chmod",
        "shutil.rmtree",
    )
)


@dataclass(frozen=True)
class Format:
    """A file format, as ensembed reads it.

    Attributes:
        make: writes a small artefact into a folder.
        read: opens the artefact in a folder and returns an answer that can be compared.
        repair: makes the hashes of a mutated artefact right; None if it has none.
        sealed: whether damage must not change the answer unless the hashes were repaired.
        also: answers that damage may give instead, such as "nothing is known".
        names: what an error has to say, one of these; by default the folder or the mutated files.
        parts: more places to mutate, with the groups of operations that fit them.
        kinds: what may take the place of a file.
        modules: imported before children are forked.
        slow: whether it is left out of short runs, because its libraries are slow.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    repair: Callable[[Files], None] | None = None
    sealed: bool = False
    also: tuple[object, ...] = ()
    names: tuple[str, ...] = ()
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = tuple(Kind)
    modules: tuple[str, ...] = ()
    slow: bool = False

    def mutator(self, files: Files) -> Mutator:
        """Return what mutates the artefact with these files."""
        return Mutator(files, self.parts, self.kinds)


@dataclass(frozen=True)
class Result:
    """What came of an input: "ok", "refused", or a failure, with its reason and where it happened."""

    outcome: str
    seconds: float = 0.0
    megabytes: float = 0.0
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is a failure."""
        return self.outcome not in ("ok", "refused")


@dataclass
class Place:
    """The folder of a child: the artefact, and around it what must not change."""

    root: Path

    def prepare(self) -> None:
        """Make everything anew, and go there: artefacts name each other by relative paths."""
        shutil.rmtree(self.root, ignore_errors=True)
        for name in ("artefact", "cache", "tmp", "outside", "home"):
            (self.root / name).mkdir(parents=True)
        (self.root / "outside" / "secret").write_text("what no artefact may change\n")
        os.mkfifo(self.root / "outside" / "pipe")
        os.chdir(self.root)
        os.environ |= {
            "ENSEMBED_CACHE": f"{self.root}/cache",
            "TMPDIR": str(self.root / "tmp"),
            "HOME": f"{self.root}/home",
        }
        os.environ.pop("ENSEMBED_DATA", None)

    @property
    def artefact(self) -> Path:
        """The folder of the artefact."""
        return self.root / "artefact"

    def write(self, name: str, content: bytes | Kind) -> None:
        """Write a file of the artefact, or what takes its place."""
        path = self.artefact / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is Kind.FOLDER:
            path.mkdir()
        elif content is Kind.PIPE:
            os.mkfifo(path)
        elif content is not Kind.MISSING:
            path.symlink_to(
                {Kind.LOOP: path.name, Kind.ZEROS: "/dev/zero"}.get(content, self.root / "outside" / "secret")
            )

    def restore(self, files: Files, states: dict[str, tuple[int, ...]]) -> None:
        """Bring artefact, cache and temporary files back to what they were; `states` tells what was written."""
        for name in ("cache", "tmp"):
            for path in (self.root / name).iterdir():
                _remove(path)
        artefact = str(self.artefact)
        folders = {name[:i] for name in files for i, letter in enumerate(name) if letter == "/"}
        for place, below, names in os.walk(artefact):
            prefix = place[len(artefact) + 1 :] + "/" if place != artefact else ""
            for name in (*names, *below):
                known = prefix + name in files or (prefix + name in folders and not os.path.islink(f"{place}/{name}"))  # noqa: PTH114 - for speed
                if not known:
                    _remove(Path(place, name))
        for name, content in files.items():
            if _state(f"{artefact}/{name}") != states.get(name):
                _remove(self.artefact / name)
                self.write(name, content)
                states[name] = _state(f"{artefact}/{name}")

    def outside(self) -> list[str]:
        """Return what is where nothing may change."""
        paths = [*self.root.iterdir(), *(self.root / "outside").iterdir(), *(self.root / "home").iterdir()]
        secret = self.root / "outside" / "secret"
        return [*sorted(map(str, paths)), secret.read_text() if secret.is_file() else ""]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _state(path: str) -> tuple[int, ...]:
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Guard:
    """Notes what an artefact must not make ensembed do, and stops it; Python tells such a hook before it happens."""

    def __init__(self, place: Place) -> None:
        self._allowed = tuple(f"{place.root}/{name}" for name in ("artefact", "cache", "tmp"))
        self._root = str(place.root)
        self.active, self.noted = False, list[str]()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Look at an event."""
        if not self.active:
            return
        problem = ""
        if event == "pickle.find_class" and str(arguments[0]).startswith("qdrant_client."):
            return  # its data classes, which have been checked
        if event in _RUNS:
            problem = f"runs a program or a pickle: {event} {str(arguments)[:200]}"
        elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(self._root):
            problem = f"runs code of the artefact: {arguments[0].co_filename}"
        elif event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
            address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments
            host = address[0] if isinstance(address, tuple) and address else address
            if host not in _LOOPBACK:
                problem = f"uses the network: {event} {address!r}"
        elif event == "open" and isinstance(arguments[0], (str, bytes)):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                problem = self._outside("" if flags & os.O_NOFOLLOW else event, arguments[0])
        elif event in _WRITES:
            problem = next(filter(None, (self._outside(event, path) for path in arguments[:2])), "")
        if problem:
            self.noted.append(problem)
            raise PermissionError(problem)

    def _outside(self, event: str, path: object) -> str:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        text = os.fsdecode(path)
        # A link is replaced, not followed, by all but `open`.
        real = os.path.realpath(text) if event == "open" else f"{os.path.realpath(Path(text).parent)}/x"
        if real.startswith(self._allowed) or real in ("/dev/null", f"{self._root}/x"):
            return ""
        return f"writes outside of the artefact: {text}"


class Judge:
    """Runs inputs of one format in this process, and judges them."""

    def __init__(self, form: Format, files: Files, place: Place) -> None:
        self._format, self._files, self._place = form, files, place
        self._mutator = form.mutator(files)
        self._states: dict[str, tuple[int, ...]] = {}
        self._guard = Guard(place)
        place.prepare()
        place.restore(files, self._states)
        self._answer = form.read(place.artefact)  # also starts whatever the libraries start
        place.restore(files, self._states)
        if form.read(place.artefact) != self._answer:
            raise AssertionError("the whole artefact does not give the same answer twice")
        place.restore(files, self._states)
        self._outside = place.outside()
        sys.addaudithook(self._guard)
        soft = _pages("size") + _ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (soft, soft))

    def run(self, what: Recipe | str) -> Result:
        """Judge a recipe, or the recipe of a seed."""
        recipe = what if isinstance(what, Recipe) else self._mutator.choose(what)
        changed = apply(self._files, recipe, self._format.repair)
        different = [name for name in {*changed, *self._files} if changed.get(name) != self._files.get(name)]
        for name in different:
            _remove(self._place.artefact / name)
            if name in changed:
                self._place.write(name, changed[name])
        result = self._judge(recipe, different)
        if not result.failed and result.seconds > SECONDS:
            self._place.restore({**changed}, {})
            again = self._judge(recipe, different)  # other processes may have had the processor
            result = (
                Result("slow", again.seconds, again.megabytes, f"{again.seconds:.1f} s")
                if again.seconds > SECONDS
                else again
            )
        for name in changed.keys() - self._files.keys():
            _remove(self._place.artefact / name)
        self._place.restore(self._files, self._states)
        return result

    def _judge(self, recipe: Recipe, different: list[str]) -> Result:
        place, guard = self._place, self._guard
        guard.noted.clear()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        before = _pages("resident")
        signal.setitimer(signal.ITIMER_REAL, _HANG)
        error: BaseException | None = None
        answer: object = None
        start = time.perf_counter() - _waited()
        guard.active = True
        try:
            answer = self._format.read(place.artefact)
        except BaseException as raised:  # noqa: BLE001 - that is what is being tested
            error = raised
        guard.active = False
        seconds = time.perf_counter() - _waited() - start
        signal.setitimer(signal.ITIMER_REAL, 0)
        megabytes = max(0.0, (_peak() - before) / 1e6)
        outcome, problem = self._verdict(recipe, different, answer, error)
        if outcome in ("ok", "refused") and megabytes > MEGABYTES:
            outcome, problem = "memory", f"{megabytes:.0f} MB"
        return Result(outcome, seconds, megabytes, problem)

    def _verdict(
        self, recipe: Recipe, different: list[str], answer: object, error: BaseException | None
    ) -> tuple[str, str]:
        if self._guard.noted:
            return "forbidden", self._guard.noted[0]
        if self._place.outside() != self._outside:
            self._place.prepare()
            self._states.clear()
            return "forbidden", "something outside of the artefact has changed"
        if isinstance(error, EnsembedError):
            text = str(error)
            files = (*different, *(Path(name).name for name in different)) if different else ()
            names = self._format.names or (str(self._place.artefact), *files)
            if not any(name in text for name in names) and not text.startswith(("encoder ", "member ")):
                return "unnamed", f"{type(error).__name__}: {text[:300]} {_where(error)}"
            return "refused", ""
        if error is not None:
            return "exception", f"{type(error).__name__}: {str(error)[:200]} {_where(error)}"
        repaired = recipe.repair and self._format.repair is not None
        if self._format.sealed and not repaired and answer != self._answer and answer not in self._format.also:
            return "wrong", "damage changed the answer silently"
        return "ok", ""


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ensembed/" in frame.filename]
    return f"in {Path(frames[-1].filename).name}, {frames[-1].name}" if frames else ""


def _pages(what: str) -> int:
    size, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(size if what == "size" else resident) * resource.getpagesize()


def _waited() -> float:
    """Return the seconds that this process has waited for a processor, which others had."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


# --- Children ---------------------------------------------------------------------------------------------------------


@dataclass
class _Child:
    """A child at work on some inputs of a format."""

    pid: int
    pipe: int
    name: str
    inputs: list[Any]
    log: Path
    done: int = 0
    rest: bytes = b""


class Pool:
    """Runs inputs in children, a number of them at the same time."""

    def __init__(self, formats: dict[str, Format], artefacts: dict[str, Files], root: Path, processes: int) -> None:
        self._formats, self._artefacts, self._root, self._processes = formats, artefacts, root, processes
        self._free = list(range(processes))
        self._slots: dict[int, int] = {}

    def run(self, jobs: Iterator[tuple[str, list[Any]]]) -> Iterator[tuple[str, Any, Result]]:
        """Yield the format, the input (a seed, or a recipe) and the result of every input of the jobs."""
        selector = selectors.DefaultSelector()
        waiting: list[tuple[str, list[Any]]] = []
        more = True
        while more or waiting or self._slots:
            while self._free and (waiting or more):
                job = waiting.pop() if waiting else next(jobs, None)
                if job is None:
                    more = False
                    break
                child = self._start(*job)
                selector.register(child.pipe, selectors.EVENT_READ, child)
            for key, _ in selector.select(1.0):
                child = key.data
                data = os.read(child.pipe, 1 << 16)
                *lines, child.rest = (child.rest + data).split(b"\n")
                for line in lines:
                    yield child.name, child.inputs[child.done], Result(**json.loads(line))
                    child.done += 1
                if not data:
                    selector.unregister(child.pipe)
                    rest = self._end(child)
                    if rest is not None:
                        yield child.name, child.inputs[child.done], rest
                        if left := child.inputs[child.done + 1 :]:
                            waiting.append((child.name, left))
        selector.close()

    def _start(self, name: str, inputs: list[Any]) -> _Child:
        slot = self._free.pop()
        root = self._root / f"slot{slot}"
        root.mkdir(exist_ok=True)
        log = root / "log"
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _work(self._formats[name], self._artefacts[name], Place(root / "work"), inputs, writer, log)
        os.close(writer)
        self._slots[pid] = slot
        return _Child(pid, reader, name, inputs, log)

    def _end(self, child: _Child) -> Result | None:
        """Return the result of the input at which a child died, if it did."""
        os.close(child.pipe)
        _, status = os.waitpid(child.pid, 0)
        self._free.append(self._slots.pop(child.pid))
        if child.done == len(child.inputs):
            return None
        text = child.log.read_text(errors="replace")
        frames = [line.strip() for line in text.splitlines() if "/ensembed/" in line][:1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return Result("hang", _HANG, 0.0, f"no end within {_HANG:.0f} s {frames}")
        reason = (
            signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        )
        return Result("crash", 0.0, 0.0, f"{reason} {frames or text[-300:]}")


def _work(form: Format, files: Files, place: Place, inputs: Sequence[Any], writer: int, log: Path) -> None:
    """Be a child: judge the inputs and write the results to a pipe."""
    status = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends, and then the pipe
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, chain=True)  # prints where it hangs; then the signal ends the process
        warnings.simplefilter("ignore")
        judge = Judge(form, files, place)
        for what in inputs:
            os.write(writer, json.dumps(asdict(judge.run(what))).encode() + b"\n")
        status = 0
    except BaseException:  # noqa: BLE001 - the parent reads the log
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def make_artefact(form: Format, place: Place) -> Files:
    """Make the artefact of a format in a child, and return its files."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            warnings.simplefilter("ignore")
            place.prepare()
            form.make(place.artefact)
            status = 0
        except BaseException:  # noqa: BLE001 - it is printed
            traceback.print_exc()
        os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the artefact could not be made")
    files: Files = {}
    for path in sorted(place.artefact.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode):
            files[str(path.relative_to(place.artefact))] = path.read_bytes()
    return files
