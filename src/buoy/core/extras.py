"""Extras: the packages of the optional parts, as commands that install them.

The commands name the packages themselves: `pip install 'buoy[server]'` would fail for a Buoy that came from a clone.
"""

from __future__ import annotations

INSTALL_POSTGRES = "pip install 'psycopg[binary]>=3.2'"
INSTALL_S3 = "pip install 'obstore>=0.12'"
INSTALL_SERVER = "pip install 'prometheus-client>=0.20' 'starlette>=0.40' 'uvicorn>=0.30'"
