"""Who is silent, and for how long: told in the looker's own turns."""

from pathlib import Path

from runtime.workers.beats import TURN_S, Beats


def test_only_a_rank_that_began_and_stopped_is_silent(tmp_path: Path) -> None:
    first, second, third = (Beats(tmp_path / "beats", rank, 3) for rank in range(3))
    for _ in range(5):
        second.turn()
        told = first.turn()
    assert told == {1: 0, 2: 0}  # the third has not begun, however long it loads
    third.turn()
    for turns in range(4):
        assert first.turn() == {1: turns + 1, 2: turns}
    third.turn()
    second.turn()
    assert first.turn() == {1: 0, 2: 0}


def test_the_sentence_names_the_silent_rank_or_what_a_publication_missed(tmp_path: Path) -> None:
    first, second = (Beats(tmp_path / "beats", rank, 2) for rank in range(2))
    second.turn()
    told = first.until_silent(TURN_S, lambda: "")
    assert told.startswith(f"rank 1 has given no sign of life for {TURN_S:g} s: it stands still")
    assert second.until_silent(60, lambda: "publication") == "publication"
