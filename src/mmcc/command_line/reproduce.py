"""The command `mmcc reproduce`: the paper's figures, one study or all of them.

In: the name of a study and a folder.  Out: files in the folder, what they show on stdout.
"""

from __future__ import annotations

import sys
import textwrap
import time
from typing import Annotated

import typer

from mmcc.command_line import output
from mmcc.command_line.completion import one_of
from mmcc.command_line.words import STUDIES, UsageError
from mmcc.errors import suggestion

ALL = "all"
FOLDER = "reproduction"
WITH_DATA = ("cifar10",)
IMAGES = "cifar-10"

Name = Annotated[
    str,
    typer.Argument(
        help=f"A study: {', '.join(STUDIES)}; or all of them.",
        metavar="NAME|all",
        autocompletion=one_of((*STUDIES, ALL)),
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A part of the points: minutes in all.")]
Out = Annotated[
    str, typer.Option("--out", help="Folder for the files; points in it are kept.", metavar="DIR")
]
Data = Annotated[
    str, typer.Option("--data", help="cifar10: folder that has the images.", metavar="DIR")
]


def show_study(name: str, quick: bool, folder: str, data: str) -> None:
    """Run what was asked for; print what each study shows as soon as it is done.

    Of all studies, one that lacks a package or its data is left out, and stderr says so.
    """
    from mmcc import studies

    known = (*studies.STUDIES, ALL)
    if name not in known:
        raise UsageError(f"unknown study {name!r}; {suggestion(name, known)}")
    for chosen in studies.STUDIES if name == ALL else (name,):
        start = time.perf_counter()
        needs = {"data": data} if chosen in WITH_DATA else {}
        try:
            with output.progress_bar() as progress:
                found = studies.STUDIES[chosen](folder, quick=quick, progress=progress, **needs)
        except studies.MissingPartError as problem:
            if name != ALL:
                raise
            print(f"{chosen} left out: {problem}", file=sys.stderr, flush=True)
            continue
        seconds = time.perf_counter() - start
        print(f"{found.name} ({len(found.table)} points, {seconds:.0f} s)")
        for text in (found.paragraph, found.note):
            if text:
                print(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  "))
        print(f"  {', '.join(str(file) for file in found.files)}\n", flush=True)
