"""Routes: the HTTP API as one table. The same table serves the requests and makes the OpenAPI document."""

from __future__ import annotations

from buoy.web.endpoint import Endpoint
from buoy.web.run_routes import RUN_ENDPOINTS
from buoy.web.store_routes import STORE_ENDPOINTS

API = "/api/v1"
ENDPOINTS: tuple[Endpoint, ...] = RUN_ENDPOINTS + STORE_ENDPOINTS
