"""Whatever is asked within, or beside, the API's own description: never a fault of ours."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, assume, settings
from schemathesis.checks import not_a_server_error

from rollscope.server.openapi import describe
from rollscope.server.routes import ROUTES

from .conftest import Served, serving

calm = schemathesis.openapi.from_dict(describe([r for r in ROUTES if not r.stream]))
streams = schemathesis.openapi.from_dict(describe([r for r in ROUTES if r.stream]))
ask = settings(
    max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.fixture(scope="module")
def own_site(store_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store that may be written to: labels are among what is asked."""
    directory = tmp_path_factory.mktemp("asked") / "store"
    shutil.copytree(store_dir, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        with serving(directory) as served:
            yield served


@pytest.fixture(scope="module")
def ids(own_site: Served) -> list[str]:
    return [row["id"] for row in own_site.get("rollouts", limit=5)["rows"]]


@calm.parametrize()
@ask
def test_no_question_breaks_the_server(
    case: schemathesis.Case, own_site: Served, ids: list[str]
) -> None:
    if "id" in case.path_parameters and len(str(case.query)) % 2:
        case.path_parameters["id"] = ids[0]
    if case.method == "POST" and isinstance(case.body, dict) and "rollout" in case.body:
        case.body["rollout"] = ids[0]  # of one that is there, so that it comes to writing
    assume(_fits(case, own_site))
    case.call_and_validate(base_url=own_site.url, checks=[not_a_server_error], timeout=60)


def _fits(case: schemathesis.Case, site: Served) -> bool:
    """HTTP's own limit comes before ours: on a longer line the connection is closed unread."""
    asked = case.as_transport_kwargs(base_url=site.url)
    url = requests.Request(asked["method"], asked["url"], params=asked.get("params")).prepare().url
    return len(url or "") < 60_000


@streams.parametrize()
@ask
def test_no_question_breaks_a_stream(case: schemathesis.Case, own_site: Served) -> None:
    """Some of them never end: they have begun well when the first event is there."""
    assume(_fits(case, own_site))
    asked = case.as_transport_kwargs(base_url=own_site.url)
    with requests.request(**asked, stream=True, timeout=60) as answer:
        assert answer.status_code < 500, answer.text
        if answer.status_code == 200:
            assert next(answer.iter_lines()).startswith(b"event: ")
