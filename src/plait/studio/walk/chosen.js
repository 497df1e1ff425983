// Chosen: views from which a token, an answer, an expert or a layer is chosen: chips, bars, rows and the table of layers.

const tokensView = () => {
  const list = el("div", { class: "chips" });
  const chips = tower().tokens.map((token, p) =>
    el(
      "button",
      { type: "button", onclick: () => ((own().p = p), refresh()) },
      el("i", {}, String(p)), el("b", {}, token), el("span", {}, words(`${tower().name}.ids[${p} 0]`)),
    ),
  );
  list.append(...chips);
  const update = () => chips.forEach((chip, p) => chip.setAttribute("aria-pressed", String(p === own().p)));
  return { figure: list, update };
};

const bars = (view) => {
  const list = el("table", { class: "bars" });
  const figure = el("figure", {}, labelled(view), list);
  const update = () => {
    const row = at(view.at);
    const count = Number(view.more.most ?? row.length);
    let order = Array.from(row, (_, i) => i);
    if (count < row.length) order = order.sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, count);
    const names = view.more.names ? words(view.more.names) : null;
    const top = largest(row);
    const focus = [...list.querySelectorAll("button")].indexOf(document.activeElement);
    list.replaceChildren(
      ...order.map((i) => {
        const name = names ? names[i] : String(i);
        const chosen = view.sets && variable(view.sets) === i;
        const choose = () => ((state[view.sets] = i), refresh());
        const label = view.sets ? el("button", { type: "button", onclick: choose, "aria-pressed": String(chosen) }, name) : name;
        const wide = `width:${top ? (100 * Math.abs(row[i])) / top : 0}%`;
        return el(
          "tr",
          { class: chosen ? "here" : "" },
          el("th", { scope: "row" }, label),
          el("td", { class: "value" }, view.scale === "share" ? percent(row[i]) : number(row[i])),
          el("td", { class: "long" }, el("u", { class: row[i] < 0 ? "minus" : "plus", style: wide })),
        );
      }),
    );
    if (focus >= 0) list.querySelectorAll("button")[focus]?.focus();
  };
  return { figure, update };
};

// A vector for each token, each as one line of colours.
const rowsView = (view) => {
  const table = el("table", { class: "rows" });
  const figure = el("figure", { class: "wide" }, labelled(view), table);
  const [counts, along] = view.sets.split(" ");
  const tokens = counts === "k" ? seen().tokens : tower().tokens;
  const pick = (i) => (counts === "p" ? (own().p = i) : (state.k = i), refresh());
  const lines = tokens.map((token, i) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const share = el("td", { class: "value" });
    const button = el("button", { type: "button", onclick: () => pick(i) }, el("i", {}, String(i)), ` ${token}`);
    const line = el("tr", {}, el("th", { scope: "row" }, button), share, el("td", { class: "long" }, canvas));
    canvas.addEventListener("click", (event) => {
      state[along] = Math.min(Math.floor((event.offsetX / canvas.clientWidth) * canvas.width), canvas.width - 1);
      pick(i);
    });
    table.append(line);
    return { line, canvas, share, button };
  });
  const update = () => {
    const values = at(view.at);
    const n = values.length / tokens.length;
    const shares = view.more.shares ? at(view.more.shares) : null;
    const top = largest(values);
    const [plus, minus_] = ["--one", "--two"].map(colour);
    const here = Math.min(variable(counts), tokens.length - 1);
    lines.forEach(({ line, canvas, share, button }, i) => {
      Object.assign(canvas, { width: n, height: 1 });
      const pen = canvas.getContext("2d");
      values.slice(i * n, (i + 1) * n).forEach((value, x) => {
        pen.globalAlpha = strength(value, top);
        pen.fillStyle = value < 0 ? minus_ : plus;
        pen.fillRect(x, 0, 1, 1);
      });
      share.textContent = shares ? percent(shares[i]) : number(size(values.slice(i * n, (i + 1) * n)));
      line.className = i === here ? "here" : "";
      button.setAttribute("aria-pressed", String(i === here));
    });
  };
  return { figure, update };
};

// How large the stream is behind each layer, what was added, and what it would say.
const layersView = (view) => {
  const parts = ["attention", "cross", "ffn"].filter((part) => part in view.more);
  const table = el("table", { class: "layers" });
  const figure = el("figure", { class: "wide" }, el("div", { class: "scroll", tabindex: 0 }, table));
  const update = () => {
    const sizes_ = at(view.more.stream);
    const added = parts.map((part) => at(view.more[part]));
    const [says, shares] = view.more.says ? [words(view.more.says), at(view.more.share)] : [null, null];
    const top = Math.max(largest(sizes_), ...added.map(largest));
    const cell = (value) =>
      value === null
        ? el("td")
        : el("td", {}, el("b", {}, number(value)), el("u", { class: "plus", style: `width:${(100 * value) / top}%` }));
    const open = (layer) => {
      own().layer = layer;
      go(tower().before.length);
    };
    const heads = ["behind", "stream_size", ...parts.map((part) => `${part}_size`), ...(says ? ["would_say"] : [])];
    table.replaceChildren(
      el("thead", {}, el("tr", {}, ...heads.map((key) => el("th", { scope: "col" }, say(key))))),
      el("tbody", {}, ...Array.from(sizes_, (value, i) =>
        el("tr", { class: i - 1 === own().layer ? "here" : "" },
          el("th", { scope: "row" }, i ? el("button", { type: "button", onclick: () => open(i - 1) }, String(i - 1)) : say("embedded")),
          cell(value),
          ...added.map((row) => cell(i ? row[i - 1] : null)),
          ...(says ? [el("td", {}, `“${says[i]}” ${percent(shares[i])}`)] : []),
        ),
      )),
    );
  };
  return { figure, update };
};

// A pair of numbers as a hand of a clock, before and after it is turned.
const turn = (view) => {
  const held = el("div", { class: "clock" });
  const figure = el("figure", {}, labelled(view), held);
  const update = () => {
    const [x, y, u, v] = ["x", "y", "turned_x", "turned_y"].map((key) => at(view.more[key]));
    const reach = Math.max(Math.hypot(x, y), Math.hypot(u, v)) || 1;
    const hand = (a, b, kind) => {
      const [right, up] = [(80 * a) / reach, (-80 * b) / reach];
      return `<line class="${kind}" x1="0" y1="0" x2="${right}" y2="${up}"/><circle class="${kind}" cx="${right}" cy="${up}" r="5"/>`;
    };
    held.innerHTML =
      `<svg viewBox="-100 -100 200 200" role="img" aria-label="${say(view.label)}"><circle r="80" class="rim"/>` +
      `<path d="M-95 0H95M0 -95V95" class="rim"/>${hand(x, y, "before")}${hand(u, v, "after")}</svg>`;
    const legend = (key, kind, a, b) => el("p", { class: kind }, `${say(key)}: (${number(a)}, ${number(b)})`);
    held.append(el("div", {}, legend("before_turn", "before", x, y), legend("after_turn", "after", u, v)));
  };
  return { figure, update };
};

const VIEWS = { tokens: tokensView, vector, rows: rowsView, grid, bars, layers: layersView, turn };
