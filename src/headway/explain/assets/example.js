// A worked example's own words and tables.

function buildExample(section) {
  return (body) => {
    body.append(...section.paragraphs.map((text) => el("p", { class: "prose", dir: "auto", text })));
    if (!section.table) return;
    const { columns, rows } = section.table;
    body.append(
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          { class: "sums" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              columns.map((text) => el("th", { scope: "col", text })),
            ),
          ),
          el(
            "tbody",
            {},
            rows.map((row) =>
              el(
                "tr",
                {},
                row.map((text, i) => el(i ? "td" : "th", { dir: "auto", text })),
              ),
            ),
          ),
        ),
      ),
    );
  };
}
