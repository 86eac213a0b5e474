"""Claim: a ledger is one file; whatever is in its way, no line is lost and no other file harmed."""

from __future__ import annotations

import errno
import os
import sys
import threading

import pytest
from cases.ledgers import begin

from mmcc.ledger import Ledger, LedgerError
from mmcc.ledger import _files as files

if sys.platform == "win32":
    pytest.skip("needs POSIX file locks", allow_module_level=True)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.jsonl")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refused(write) -> str:
    with pytest.raises(LedgerError) as caught:
        write()
    said = str(caught.value)
    assert said.isprintable()
    assert said.endswith(".")
    return said


def test_nothing_else_is_left_in_the_folder(ledger, tmp_path):
    run = begin(ledger)
    ledger.end(run, position=8)
    assert names(tmp_path) == ["ledger.jsonl"]


def test_deleting_all_other_files_during_a_write_loses_no_line(ledger, tmp_path, monkeypatch):
    """The second writer waits for the first, and then finds that the file is another one."""
    known = [begin(ledger)]
    inside, go_on, replace = threading.Event(), threading.Event(), files._replace

    def slow(*arguments):
        if threading.current_thread().name == "first":
            inside.set()
            assert go_on.wait(60)
        replace(*arguments)

    monkeypatch.setattr(files, "_replace", slow)
    writers = [
        threading.Thread(target=lambda: known.append(begin(ledger)), name=name)
        for name in ("first", "second")
    ]
    writers[0].start()
    assert inside.wait(60)
    for path in tmp_path.iterdir():
        if path != ledger.path:
            path.unlink()
    writers[1].start()
    writers[1].join(0.3)
    go_on.set()
    for writer in writers:
        writer.join(60)
    assert len(known) == 3
    assert set(ledger.history().runs) == set(known)


@pytest.mark.parametrize("put_back", [False, True])
def test_a_ledger_that_is_deleted_or_replaced_during_a_write(
    ledger, tmp_path, monkeypatch, put_back
):
    begin(ledger)
    content, replace = ledger.path.read_bytes(), files._replace

    def meddled(*arguments):
        other = tmp_path / "other"
        other.write_bytes(content)
        ledger.path.unlink()
        if put_back:
            other.rename(ledger.path)
        else:
            other.unlink()
        replace(*arguments)

    monkeypatch.setattr(files, "_replace", meddled)
    assert "deleted or replaced" in refused(lambda: begin(ledger))
    assert names(tmp_path) == ["ledger.jsonl"] * put_back


def test_a_refused_entry_makes_no_file_and_an_empty_one_stays(ledger, tmp_path):
    for wrong in (
        lambda: begin(ledger, data=""),
        lambda: ledger.end("unknown", position=1),
        lambda: ledger.resume("unknown", "f"),
    ):
        refused(wrong)
        assert names(tmp_path) == []
    ledger.path.touch(mode=0o640)
    refused(lambda: begin(ledger, data=""))
    assert ledger.path.read_bytes() == b""
    assert ledger.history().lines == 0
    assert "no run" in refused(lambda: ledger.total("d"))
    begin(ledger)
    assert ledger.total("d").epsilon == 1.0
    assert ledger.path.stat().st_mode & 0o777 == 0o640


def test_a_ledger_with_two_hard_links_is_refused(ledger, tmp_path):
    begin(ledger)
    other = tmp_path / "other.jsonl"
    os.link(ledger.path, other)
    before = other.read_bytes()
    for one in (ledger, Ledger(other)):
        assert "2 names" in refused(lambda one=one: begin(one))
        assert ledger.path.read_bytes() == other.read_bytes() == before
    other.unlink()
    begin(ledger)
    assert len(ledger.history().runs) == 2


def test_a_link_in_the_place_of_the_second_file_is_not_followed(ledger, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "ledger.jsonl.new").symlink_to(victim)
    begin(ledger)
    begin(ledger)
    assert victim.read_text() == "precious"
    assert not ledger.path.is_symlink()
    assert len(ledger.history().runs) == 2


def test_what_is_no_plain_file_is_no_ledger(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is not a regular file" in refused(lambda: begin(Ledger(pipe)))
    assert pipe.is_fifo()
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "cannot be written: Is a directory" in refused(lambda: begin(Ledger(folder)))
    assert "cannot be read: Is a directory" in refused(lambda: Ledger(folder).history())
    beyond = Ledger(pipe / "ledger.jsonl")
    assert "no folder" in refused(lambda: begin(beyond))
    assert "cannot be read: Not a directory" in refused(beyond.history)


def test_a_folder_in_the_place_of_the_second_file(ledger, tmp_path):
    begin(ledger)
    (tmp_path / "ledger.jsonl.new").mkdir()
    assert "ledger.jsonl.new" in refused(lambda: begin(ledger))
    assert len(ledger.history().runs) == 1


@pytest.mark.parametrize(
    ("call", "number"),
    [("fsync", errno.ENOSPC), ("replace", errno.EIO), ("open", errno.EROFS)],
)
def test_what_the_system_refuses_is_one_sentence_and_changes_nothing(
    ledger, tmp_path, monkeypatch, call, number
):
    begin(ledger)
    before = ledger.path.read_bytes()

    def failing(*_arguments):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, failing)
        said = refused(lambda: begin(ledger))
    assert said == f"the ledger '{ledger.path}' cannot be written: {os.strerror(number)}."
    assert ledger.path.read_bytes() == before
    assert names(tmp_path) == ["ledger.jsonl"]
    begin(ledger)
    assert len(ledger.history().runs) == 2
