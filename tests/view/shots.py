"""Screenshots of every tab of the page, light, dark and on a telephone, for models that train in a minute or so.

    python tests/view/shots.py FOLDER          [--pages FOLDER/of/pages] to take those instead of making some

The models learn from data that ships with the package, so nothing is downloaded.
"""

import argparse
import tempfile
from pathlib import Path

from conftest import Browser, installed

from regard.cli import main
from regard.data.bundled import shapes

LOOKS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (400, "light")}
