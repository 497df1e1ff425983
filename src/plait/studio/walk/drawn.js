// Drawn: rows and tables of numbers as colours, which a pointer or the arrow keys read off and choose from.

const el = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
};

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// How strong the colour of a value is; small ones are still seen.
const strength = (value, largest) => (largest > 0 && Number.isFinite(value) ? Math.sqrt(Math.abs(value) / largest) : 0);
const largest = (row) => row.reduce((top, one) => (Number.isFinite(one) ? Math.max(top, Math.abs(one)) : top), 0);

const cellSize = (n) => (n <= 128 ? 13 : n <= 1024 ? 9 : n <= 4096 ? 6 : 4);

// A vector's numbers as cells, line after line; the chosen one has a frame.
const paint = (canvas, row, chosen) => {
  const cell = cellSize(row.length);
  const across = Math.max(1, Math.min(row.length, Math.floor(canvas.parentElement.clientWidth / cell)));
  const down = Math.ceil(row.length / across);
  const density = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: across * cell * density, height: down * cell * density, across, cell });
  Object.assign(canvas.style, { width: `${across * cell}px`, height: `${down * cell}px` });
  const pen = canvas.getContext("2d");
  const [plus, minus_, ink, rule] = ["--one", "--two", "--ink", "--rule"].map(colour);
  const top = largest(row);
  pen.scale(density, density);
  row.forEach((value, i) => {
    const [x, y] = [(i % across) * cell, Math.floor(i / across) * cell];
    pen.globalAlpha = 0.45;
    pen.fillStyle = rule;
    pen.fillRect(x, y, cell - 1, cell - 1);
    pen.globalAlpha = strength(value, top);
    pen.fillStyle = value < 0 ? minus_ : plus;
    pen.fillRect(x, y, cell - 1, cell - 1);
    if (i === chosen) {
      pen.globalAlpha = 1;
      pen.strokeStyle = ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(x - 0.25, y - 0.25, cell - 0.5, cell - 0.5);
    }
  });
};

const labelled = (view) => (view.label ? el("figcaption", {}, say(view.label)) : "");

const FIRST = 5; // numbers that are written out

const vector = (view) => {
  const canvas = el("canvas", view.sets ? { tabindex: 0, role: "slider" } : {});
  const [read, first] = [el("p", { class: "read" }), el("p", { class: "first" })];
  const figure = el("figure", { class: "vector" }, labelled(view), el("div", { class: "cells" }, canvas), read, first);
  const choose = (i) => {
    const n = at(view.at).length;
    state[view.sets] = Math.max(0, Math.min(n - 1, i));
    refresh();
  };
  const under = (event) => {
    const i = Math.floor(event.offsetY / canvas.cell) * canvas.across + Math.floor(event.offsetX / canvas.cell);
    return i >= 0 && i < at(view.at).length ? i : null;
  };
  const tell = (i) => {
    const row = at(view.at);
    const of = say("of_vector", { n: row.length.toLocaleString("en"), size: number(size(row)) });
    read.textContent = i === null ? of : `${say("number_at", { i, value: number(row[i]) })} · ${of}`;
  };
  const update = () => {
    const row = at(view.at);
    const chosen = view.sets ? Math.min(variable(view.sets), row.length - 1) : null;
    paint(canvas, row, chosen);
    tell(chosen);
    first.textContent = [...row.slice(0, FIRST)].map(number).join("  ") + (row.length > FIRST ? "  …" : "");
    canvas.setAttribute("aria-label", view.label ? say(view.label) : "");
    if (!view.sets) return;
    for (const [key, value] of Object.entries({ min: 0, max: row.length - 1, now: chosen }))
      canvas.setAttribute(`aria-value${key}`, value);
    canvas.setAttribute("aria-valuetext", say("number_at", { i: chosen, value: number(row[chosen]) }));
  };
  canvas.addEventListener("pointermove", (event) => tell(under(event)));
  canvas.addEventListener("pointerleave", () => tell(view.sets ? variable(view.sets) : null));
  if (view.sets) {
    canvas.addEventListener("click", (event) => under(event) !== null && choose(under(event)));
    canvas.addEventListener("keydown", (event) => {
      const now = variable(view.sets);
      const move = {
        ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: now - canvas.across, ArrowDown: now + canvas.across,
        Home: 0, End: at(view.at).length - 1,
      }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      choose(move);
    });
  }
  return { figure, update };
};

// Tokens by tokens: a row for each that looks, a column for each that is looked at.
const ROOM = 9; // columns up to which numbers are written

const grid = (view) => {
  const table = el("table", { class: "grid-view", role: "grid" });
  const figure = el("figure", { class: "wide" }, labelled(view), el("div", { class: "scroll" }, table));
  const [rows, columns] = [tower().tokens, seen().tokens];
  const cells = [];
  const corner = seen() === tower() ? "" : `${say(tower().name)} ↓ ${say(seen().name)} →`;
  const head = columns.map((token, k) => el("th", { scope: "col" }, el("span", {}, token), el("i", {}, String(k))));
  table.append(el("thead", {}, el("tr", {}, el("td", { class: "corner" }, corner), ...head)));
  const body = el("tbody");
  rows.forEach((token, p) => {
    const line = columns.map((_, k) => {
      const cell = el("td", {
        role: "gridcell",
        onfocus: () => choose(p, k),
        onclick: () => cell.focus(),
        onpointerenter: () => ((state.peek = { p, k }), tellAll()),
        onpointerleave: () => ((state.peek = null), tellAll()),
        onkeydown: (event) => move(event, p, k),
      });
      return cell;
    });
    cells.push(line);
    body.append(el("tr", {}, el("th", { scope: "row" }, el("i", {}, String(p)), el("span", {}, token)), ...line));
  });
  table.append(body);
  const choose = (p, k) => {
    if (own().p === p && state.k === k) return;
    own().p = p;
    state.k = k;
    refresh();
  };
  const move = (event, p, k) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    cells[p + down]?.[k + right]?.focus();
  };
  const update = () => {
    const values = at(view.at);
    const allowed = view.more.seen ? at(view.more.seen) : null;
    const top = view.scale === "share" ? 1 : largest(values);
    const short = view.scale === "share" ? percent : number;
    cells.forEach((line, p) =>
      line.forEach((cell, k) => {
        const i = p * columns.length + k;
        const hidden = allowed !== null && !allowed[i];
        const strong = strength(values[i], top);
        cell.className = hidden ? "hidden" : values[i] < 0 ? "minus" : "plus";
        cell.classList.toggle("strong", strong > 0.62);
        cell.classList.toggle("row", p === own().p);
        cell.classList.toggle("here", p === own().p && k === state.k);
        cell.style.setProperty("--strength", hidden ? 0 : strong.toFixed(3));
        cell.textContent = columns.length > ROOM ? "" : hidden && view.scale === "share" ? "" : short(values[i]);
        const value = hidden ? say("hidden_cell") : short(values[i]);
        cell.title = say("cell_at", { row: rows[p], column: columns[k], value });
        cell.setAttribute("aria-label", cell.title);
        cell.tabIndex = p === own().p && k === state.k ? 0 : -1;
      }),
    );
    table.setAttribute("aria-label", say(view.label));
  };
  return { figure, update };
};
