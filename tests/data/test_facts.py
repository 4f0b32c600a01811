"""Facts of one pass: counts of all rows, labels with their first place, and the rows that are kept."""

from headway.data.facts import characters, scan
from headway.data.row import Row


def rows(count: int) -> list[Row]:
    return [Row({"text": "x" * (1 + i % 9), "label": "ab"[i % 2]}, f"file:{i + 1}") for i in range(count)]


def test_everything_is_kept_of_little_data() -> None:
    made = rows(20)
    facts = scan(iter(made), labels=lambda row: [row.fields["label"]])
    assert (facts.count, list(facts.rows)) == (20, made)
    assert facts.labels == {"a": (10, "file:1"), "b": (10, "file:2")}
    assert facts.total(lambda row: len(row.fields["text"])) == sum(len(row.fields["text"]) for row in made)


def test_of_much_data_rows_are_drawn_and_counts_are_of_all() -> None:
    made = rows(5000)
    facts = scan(iter(made), labels=lambda row: [row.fields["label"]], kept=3000)
    kept = sum(map(characters, facts.rows))
    assert 0 < kept <= 3000 and [row for row in made if row in facts.rows] == list(facts.rows), "in their order"
    assert facts.count == 5000 and facts.labels["b"] == (2500, "file:2")
    whole = sum(len(row.fields["text"]) for row in made)
    assert abs(facts.total(lambda row: len(row.fields["text"])) - whole) < 0.1 * whole
    assert facts == scan(iter(made), labels=lambda row: [row.fields["label"]], kept=3000), "the same each time"


def test_rows_without_texts_count_too() -> None:
    assert characters(Row({"image": object(), "boxes": [1, 2]}, "a")) == 300
    assert characters(Row({"words": ["one", "two"], "tags": ["O", "O"]}, "a")) == 8
