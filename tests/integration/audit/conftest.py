"""An application whose history a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.histories import Application


@pytest.fixture
def application(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Application:
    return Application.create(kafka.bootstrap_servers, unique_name("audited"), tmp_path)
