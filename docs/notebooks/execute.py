"""Run the notebooks of this folder and store what they print.

    python docs/notebooks/execute.py                # all of them, in place
    python docs/notebooks/execute.py first_epsilon  # one

In: notebooks, with or without outputs.  Out: the same notebooks with the outputs of this
interpreter and of the mmcc it imports.  Nothing of the machine is stored: no times, no paths.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
SECONDS = 1800
"""After which a cell is given up."""


def executed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """A copy of the notebook with fresh outputs, run in `folder` by the interpreter that asks."""
    notebook = nbformat.from_dict(notebook)
    # Sockets in a short path of their own: ports can be taken by someone else before the kernel is
    # up, and names of Unix sockets have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="mmcc-") as private:
        manager = AsyncKernelManager(
            kernel_name="python3",
            transport="ipc",
            connection_file=str(Path(private) / "kernel.json"),
        )
        manager.kernel_spec_manager.kernel_dirs = []  # none but the interpreter's own
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=SECONDS,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        )
        # One's own start-up files and matplotlib settings are no part of a notebook.
        environment = os.environ | {"IPYTHONDIR": private, "MATPLOTLIBRC": private}
        environment.pop("MPLBACKEND", None)
        client.execute(env=environment, cleanup_kc=True)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main(names: list[str]) -> None:
    """Store fresh outputs in the notebooks that were named, or in all."""
    files = [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for file in files:
        with tempfile.TemporaryDirectory() as empty:
            fresh = executed(nbformat.read(file, as_version=4), Path(empty))
        nbformat.write(fresh, file)


if __name__ == "__main__":
    main(sys.argv[1:])
