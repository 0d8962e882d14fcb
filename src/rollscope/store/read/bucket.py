"""Object storage: what lies at an address, and its bytes.

`obstore` repeats what fails for a moment: dropped connections, time-outs, throttling, errors 5xx.
What is left becomes one line for the person. That line never has what the storage answered: its
text may name keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._%-]{1,250}")
"""All that a name in a store is made of (`paths.encode_name`). Other keys are no files of ours, and
none of these leads out of a folder."""

_RETRY: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=90)}
_SECONDS = "60"
"""How long one request may take; `ROLLSCOPE_STORAGE_TIMEOUT` says otherwise."""
_HINTS = {
    "s3": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    "gs": "check GOOGLE_APPLICATION_CREDENTIALS",
    "az": "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


class BucketError(ValueError):
    """An address that cannot be read; the text says why and what to do instead."""


class Remote(NamedTuple):
    """A file at an address."""

    size: int
    time: float
    """When it was last changed, Unix seconds."""
    tag: str
    """Another one if the content is another."""


class Bucket:
    """One address. Any thread may ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._remote = _open(url)

    def list(self) -> dict[str, Remote]:
        """Every file of a store, by its path below the address."""
        return dict(self._listed())

    def _listed(self) -> Iterator[tuple[str, Remote]]:
        import obstore

        try:
            for batch in obstore.list(self._remote):
                for meta in batch:
                    parts = str(meta["path"]).split("/")
                    if len(parts) > 2 and all(map(_NAME.fullmatch, parts)):
                        time = meta["last_modified"].timestamp()
                        tag = str(meta.get("e_tag") or time)
                        yield str(meta["path"]), Remote(int(meta["size"]), time, tag)
        except Exception as error:
            raise self._told(error) from None

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from `start` up to, not including, `end`. Raises FileNotFoundError if
        it is gone."""
        import obstore

        try:
            if end is None and not start:
                return bytes(obstore.get(self._remote, path).bytes())
            return bytes(obstore.get_range(self._remote, path, start=start, end=end))
        except Exception as error:
            if type(error).__name__ in ("NotFoundError", "FileNotFoundError"):
                raise FileNotFoundError(path) from None
            raise self._told(error) from None

    def pieces(self, path: str) -> Iterator[bytes]:
        """A file of any size, from its beginning to its end."""
        import obstore

        try:
            for piece in obstore.get(self._remote, path):
                yield bytes(piece)
        except Exception as error:
            if type(error).__name__ in ("NotFoundError", "FileNotFoundError"):
                raise FileNotFoundError(path) from None
            raise self._told(error) from None

    def _told(self, error: Exception) -> BucketError:
        """What went wrong, without anything that was sent or answered."""
        hint = _HINTS.get(self.url.partition("://")[0], "check the credentials")
        said = str(error)
        found = re.search(r"<Code>(\w{1,60})</Code>", said)
        code = found[1] if found else None
        kind = type(error).__name__
        if kind in ("PermissionDeniedError", "UnauthenticatedError") or code in _DENIED:
            why = f"access is denied{f' ({code})' if code else ''}: {hint}"
        elif code == "NoSuchBucket" or kind in ("NotFoundError", "FileNotFoundError"):
            why = "there is no such bucket"
        elif kind == "InvalidPathError":
            why = "a key in it is no path, so it holds something else than a store"
        elif "169.254.169.254" in said:  # where a machine of a cloud finds its own
            why = f"no credentials were found: {hint}"
        elif code is not None:
            why = f"the storage answers {code}, also when it is asked again"
        else:
            why = "the storage does not answer, also when it is asked again"
        return BucketError(f"{self.url}: {why}")


_DENIED = (
    "AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
)  # fmt: skip
"""What S3 calls it. Some answers of these are no 403."""


def _open(url: str) -> Any:
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        raise BucketError(
            f"{url}: a web server does not tell which files it has. Give the bucket behind it "
            "(s3://, gs://, az://), or open a running Rollscope server in the browser"
        )
    if ":" in urlsplit(url).netloc.rpartition("@")[0]:
        raise BucketError("a password does not belong into an address: give it in the environment")
    if scheme not in SCHEMES:
        raise BucketError(f"{url}: known are {', '.join(f'{s}://' for s in SCHEMES)}")
    try:
        from obstore.store import from_url
    except ImportError:
        raise BucketError(
            "reading from object storage needs obstore: pip install 'rollscope[remote]'"
        ) from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    plain = scheme.startswith("s3") and endpoint.startswith("http://")
    if scheme == "file":
        return from_url(url)
    said = os.environ.get("ROLLSCOPE_STORAGE_TIMEOUT", "")
    seconds = said if said.isdecimal() else _SECONDS
    client: Any = {"connect_timeout": "10s", "timeout": f"{seconds}s"}
    if plain:
        client["allow_http"] = True
    try:
        return from_url(url, client_options=client, retry_config=_RETRY)
    except Exception as error:
        raise BucketError(f"{url}: {error}") from None
