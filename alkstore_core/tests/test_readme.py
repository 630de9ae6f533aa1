"""The README's programs run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
OUTPUTS = ["sending {'order': 7}\n", ""]


@pytest.mark.parametrize(("program", "output"), list(zip(PROGRAMS, OUTPUTS, strict=True)), ids="wt")
def test_a_program_of_the_readme_runs(program: str, output: str) -> None:
    """Without a warning, and it says what it should."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")
