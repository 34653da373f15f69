"use strict";
// Tables that are sorted by a click on a heading, and searched. Without this script they are tables all the same.
(() => {
  const number = (text) => {
    const found = parseFloat(text.replace(/[\s,\u00a0]/g, ""));
    return Number.isNaN(found) ? null : found;
  };
  const compare = (one, other) => (typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true }));

  const sort = (table, place, numeric, descending) => {
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => {
      const text = row.cells[place].textContent;
      return { row, key: numeric ? number(text) : text === "-" ? null : text };
    });
    const known = keyed.filter((line) => line.key !== null);
    known.sort((one, other) => (descending ? compare(other.key, one.key) : compare(one.key, other.key)));
    const rest = keyed.filter((line) => line.key === null); // what is not known comes last, either way
    body.append(...known.concat(rest).map((line) => line.row));
  };

  const sortable = (table) => {
    const headings = Array.from(table.tHead.rows[0].cells);
    headings.forEach((heading, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      const numeric = heading.classList.contains("n");
      button.addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        const descending = before ? before === "ascending" : numeric;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sort(table, place, numeric, descending);
      });
    });
  };

  const searchable = (table) => {
    const words = (row) => Array.from(row.cells, (cell) => cell.textContent).join(" ").toLowerCase();
    const rows = Array.from(table.tBodies[0].rows, (row) => ({ row, text: words(row) }));
    const tools = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    tools.className = "tools";
    input.type = "search";
    input.placeholder = "words that a row must have";
    label.append("Filter ", input);
    tools.append(label, count);
    table.parentElement.before(tools);
    const show = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const { row, text } of rows) {
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = shown === rows.length ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
    };
    input.addEventListener("input", show);
    show();
  };

  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length > 1) sortable(table);
    if (table.classList.contains("searched")) searchable(table);
  }
})();
