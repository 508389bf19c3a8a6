"""The tests of sdk/python: this is a copy in target/clients/composite, so the project is three folders up."""

import sys
import unittest
from pathlib import Path

package = Path(__file__).resolve().parents[3] / "sdk" / "python"
sys.path.insert(0, str(package))
found = unittest.defaultTestLoader.discover(str(package / "tests"), top_level_dir=str(package / "tests"))
outcome = unittest.TextTestRunner(verbosity=2).run(found)
sys.exit(0 if outcome.wasSuccessful() and outcome.testsRun > 0 else 1)
