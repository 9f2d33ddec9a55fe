"""The process that redacts paired samples and writes them: from its input, one after another.

Each is a line of JSON, with the sizes of the bodies, and then the bodies. It answers each with a
line that says what became of it.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from fleet.paired_samples import Answer, NotKept, PairedSample, Place, line

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 10


def send(to: IO[bytes], place: Place, sample: PairedSample) -> None:
    """Hand a sample to the process.

    Raises:
        OSError: it has died.
    """
    answers = {"": sample.production, **sample.candidates}
    head = {
        "place": place,
        "at": sample.at,
        "endpoint": sample.endpoint,
        "path": sample.path,
        "sample_by": sample.sample_by,
        "server": sample.server,
        "request": sum(map(len, sample.request)),
        "answers": {
            name: [each.result, each.status, each.seconds, each.is_stream, sum(map(len, each.body))]
            for name, each in answers.items()
        },
    }
    to.write(json.dumps(head).encode() + b"\n")
    to.writelines(sample.request)
    for each in answers.values():
        to.writelines(each.body)
    to.flush()


def received(source: IO[bytes]) -> Iterator[tuple[Place, PairedSample]]:
    """What ``send`` sent, until the input ends."""
    while raw := source.readline():
        head: dict[str, Any] = json.loads(raw)
        request = source.read(head["request"])
        answers = _answers(head["answers"], source)
        production = answers.pop("")
        yield (
            Place(*head["place"]),
            PairedSample(
                **{key: head[key] for key in ("at", "endpoint", "path", "sample_by", "server")},
                request=[request],
                production=production,
                candidates=answers,
            ),
        )


def _answers(heads: Mapping[str, Any], source: IO[bytes]) -> dict[str, Answer]:
    return {
        name: Answer(result, status, seconds, is_stream, [source.read(size)])
        for name, (result, status, seconds, is_stream, size) in heads.items()
    }


def written(place: Place, sample: PairedSample) -> str:
    """What became of it, in the words of the metric."""
    try:
        data = line(sample, place.hidden)
        if len(data) > place.limit // 2:
            return "too_long"
        append(Path(place.file), data, place.limit)
    except NotKept:
        return "not_readable"
    except OSError:
        return "disk"
    return "written"


def append(path: Path, data: bytes, limit: int) -> None:
    """Add to a file for its owner alone. At half the limit it becomes ``FILE.1``, in place of an
    older one.

    Raises:
        OSError: it can't be written.
    """
    for _ in range(_TRIES):
        file = os.fdopen(os.open(path, _APPEND, 0o600), "ab")
        with file:
            # Several processes of a gateway write to one file; the lock ends with the file.
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(path, file):
                continue
            size = os.fstat(file.fileno()).st_size
            if size and size + len(data) > limit // 2:
                path.replace(path.with_name(path.name + ".1"))
                continue
            file.write(data)
            return
    raise OSError("the file is moved away again and again")


def _is_still(path: Path, file: IO[bytes]) -> bool:
    """Whether the file is the one at the path: another process may have moved it away."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def main() -> None:
    for place, sample in received(sys.stdin.buffer):
        sys.stdout.write(written(place, sample) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
