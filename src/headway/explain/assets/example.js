// A worked example's own words and tables.

function buildExample({ paragraphs, table: numbers }) {
  return (body) => {
    body.append(...paragraphs.map((text) => el("p", { class: "prose", dir: "auto", text })));
    if (!numbers) return;
    const text = (value) => el("td", { dir: "auto", text: value });
    body.append(
      table(
        numbers.columns,
        numbers.rows.map(([first, ...others]) => line(first, others.map(text))),
      ),
    );
  };
}
