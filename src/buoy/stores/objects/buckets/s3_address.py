"""S3 address: which bucket a URL names, and with which clients it is reached.

Invariants: a URL never carries credentials; they come from the environment, a profile or the machine's role. What is
shown of an address holds no secret. A conditional write is sent once: the client for those has no retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from buoy.config import aws_profile, aws_setting
from buoy.core.extras import INSTALL_S3
from buoy.core.urls import BUCKET_OPTIONS, shown_url
from buoy.errors import BadInput, StoreUnusable
from buoy.stores.objects.bucket import is_key
from buoy.stores.objects.buckets.s3_answers import first_line

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client = S3Store | GCSStore | AzureStore

TIMEOUT_S = 60.0
# Reads are sent again after 5xx and lost connections, for so long and so often.
READ_RETRIES = 6
READ_RETRY_S = 30
_FORM = "write 's3://bucket/prefix?endpoint=https://host:port&region=name'"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One place in one bucket. `prefix` has no slash at its ends."""

    scheme: str
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    path_style: bool = True
    profile: str | None = None
    timeout_s: float = TIMEOUT_S

    @property
    def name(self) -> str:
        """For people; it opens the same place, and holds no secret."""
        place = f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return f"{place}?endpoint={quote(self.endpoint, safe=':/')}" if self.endpoint else place


def parse_address(url: str) -> Address:
    """The address that a URL means, or a refusal that shows no secret."""
    shown = shown_url(url)
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    bucket, _, prefix = place.partition("/")
    if "@" in place:
        raise BadInput(f"store {shown!r} carries credentials; leave them to the environment or to a profile")
    prefix = unquote(prefix.strip("/"))
    if not bucket or (prefix and not is_key(prefix)):
        raise BadInput(f"store {shown!r} names no bucket and prefix; {_FORM}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in BUCKET_OPTIONS:
            # What is no name may be a secret that is at the wrong place.
            found = repr(name) if name.isidentifier() else "in its query"
            raise BadInput(f"store {shown!r}: unknown option {found}; choose {', '.join(BUCKET_OPTIONS)}")
    endpoint = options.get("endpoint") or (aws_setting("ENDPOINT_URL_S3", "ENDPOINT_URL") if scheme == "s3" else None)
    return Address(
        scheme=scheme,
        bucket=bucket,
        prefix=prefix,
        endpoint=_endpoint(endpoint, shown),
        region=options.get("region"),
        path_style=_flag(options.get("path_style", "true"), shown),
        profile=options.get("profile"),
        timeout_s=_seconds(options.get("timeout"), shown),
    )


def _endpoint(text: str | None, shown: str) -> str | None:
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc or parts.query:
        raise BadInput(f"store {shown!r}: the endpoint is no plain http(s) URL; {_FORM}")
    return text.rstrip("/")


def _flag(text: str, shown: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise BadInput(f"store {shown!r}: path_style is {text[:20]!r}; choose true or false")
    return text in ("true", "1")


def _seconds(text: str | None, shown: str) -> float:
    if text is None:
        return TIMEOUT_S
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 600.0:
        raise BadInput(f"store {shown!r}: timeout is {text[:20]!r}; write seconds between 0.1 and 600")
    return found


def make_client(address: Address, *, retries: bool) -> Client:
    """A client of that bucket. `retries`: it repeats what had no clear answer, so only for reads and deletes."""
    try:
        from datetime import timedelta

        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError as error:
        raise StoreUnusable(
            f"{address.name} needs the package obstore, which is not installed; {INSTALL_S3}"
        ) from error
    options: dict[str, Any] = {
        "prefix": address.prefix or None,
        "client_options": {
            "timeout": timedelta(seconds=address.timeout_s),
            "connect_timeout": timedelta(seconds=min(5.0, address.timeout_s)),
            "allow_http": bool(address.endpoint and address.endpoint.startswith("http:")),
        },
        "retry_config": {
            "max_retries": READ_RETRIES if retries else 0,
            "retry_timeout": timedelta(seconds=READ_RETRY_S),
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=3.0),
                "base": 2.0,
            },
        },
    }
    try:
        match address.scheme:
            case "gs":
                return GCSStore(address.bucket, **options)
            case "az":
                return AzureStore(address.bucket, **options)
            case _:
                return S3Store(address.bucket, **options, **_s3_options(address))
    except (BaseError, ValueError) as error:
        raise BadInput(f"{address.name} cannot be reached with these settings: {first_line(error)}") from error


def _s3_options(address: Address) -> dict[str, Any]:
    options: dict[str, Any] = {"virtual_hosted_style_request": not address.path_style}
    if address.endpoint:
        options["endpoint"] = address.endpoint
    profile = aws_profile(address.profile)
    region = address.region or aws_setting("REGION", "DEFAULT_REGION") or profile.get("region")
    if region or address.endpoint:
        options["region"] = region or "us-east-1"
    if address.profile or not aws_setting("ACCESS_KEY_ID"):
        for option, key in (
            ("access_key_id", "aws_access_key_id"),
            ("secret_access_key", "aws_secret_access_key"),
            ("session_token", "aws_session_token"),
        ):
            if key in profile:
                options[option] = profile[key]
    return options
